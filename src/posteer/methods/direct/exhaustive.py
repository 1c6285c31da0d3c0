"""Try every prompt; on an exact model every class of prompts it can tell apart."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from posteer.core import InputError, Progress, Spec, require
from posteer.core.limits import LISTED_PROMPTS
from posteer.evaluation import PromptLandscape, landscape, tokens_of_landscape
from posteer.methods.answers import Answer, Step, StopReason
from posteer.methods.forecasting import work_of_search
from posteer.methods.protocol import Needs, Problem, Work
from posteer.models.meter import Metered
from posteer.models.protocol import Can
from posteer.tokens.drawing import list_allowed


@dataclass(frozen=True, kw_only=True)
class ExhaustiveSearch:
    """The optimum by definition, where it can be had."""

    @property
    def needs(self) -> Needs:
        return Needs(continuations=True)

    def forecast(self, problem: Problem, together: int) -> Work:
        bits = problem.length * math.log2(problem.vocab_size)
        return Work(None) if bits > 40 else work_of_search(problem, float(_price(problem)), self)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        answers: list[Answer] = []
        solved: dict[int, Answer] = {}  # seeds do not matter to this search
        for problem in problems:
            key = id(problem.goal)
            if key not in solved:
                solved[key] = self._solve(problem, progress)
            answers.append(solved[key])
        return answers

    def _solve(self, problem: Problem, progress: Progress | None) -> Answer:
        _require_budget(problem)
        before, started = replace(problem.model.queries), time.perf_counter()
        found = _landscape(problem, problem.model, progress)
        if found is None:
            vocab = problem.vocab_size
            raise InputError(
                f"exhaustive: {vocab}**{problem.length} prompts with {vocab}**"
                f"{problem.horizon} continuations each are too many to try"
            )
        spent = problem.model.queries.since(before)
        seconds = time.perf_counter() - started
        step = Step(found.optimum, len(found.sizes), spent.forward_tokens, 0, seconds)
        return Answer(
            prompt=found.best_prompt,
            queries=spent,
            steps=1,
            stop_reason=StopReason.COMPLETE,
            history=[step],
        )


def _landscape(
    problem: Problem, model: Metered, progress: Progress | None
) -> PromptLandscape | None:
    return landscape(
        model, problem.goal, problem.length, problem.horizon, progress, problem.allowed
    )


def _require_budget(problem: Problem) -> None:
    budget = problem.max_model_tokens
    if budget is None or problem.length * math.log2(problem.vocab_size) > 40:
        return  # what cannot be tried at all is refused by the search itself
    price = _price(problem)
    require(
        price <= budget,
        f"exhaustive: trying every prompt takes {price:,} model tokens, the budget is {budget:,}",
    )


def _price(problem: Problem) -> int:
    """On an exact model nothing is read twice, so trying it on the side tells the price."""
    model = problem.model
    if Can.EXACT in model.can:
        aside = Metered(model.inner)
        _landscape(problem, aside, None)
        return aside.queries.forward_tokens
    known = tokens_of_landscape(model, problem.length, problem.horizon, problem.allowed)
    if known is not None:
        return known
    n_prompts: int = problem.vocab_size**problem.length
    if problem.allowed is not None and n_prompts <= LISTED_PROMPTS:
        n_prompts = len(list_allowed(problem.allowed, problem.length))
    return n_prompts * model.tokens_of(problem.length, problem.horizon)


def from_spec(spec: Spec) -> ExhaustiveSearch:
    """`exhaustive`: it has no settings."""
    spec.take()
    return ExhaustiveSearch()
