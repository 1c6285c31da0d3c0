"""Try every prompt; on an exact model every class of prompts it can tell apart."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from posteer.core.errors import InputError, require
from posteer.core.progress import Progress
from posteer.core.spec import Spec
from posteer.evaluation import PromptLandscape, landscape
from posteer.methods.answers import Answer, Step
from posteer.methods.protocol import Problem
from posteer.models import ExactModel, Metered
from posteer.tokens.drawing import LISTED_PROMPTS, list_allowed


@dataclass(frozen=True, kw_only=True)
class ExhaustiveSearch:
    """The optimum by definition, where it can be had."""

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        answers: list[Answer] = []
        solved: dict[tuple[int, ...], Answer] = {}  # seeds do not matter to this search
        for problem in problems:
            goal = (id(problem.model), id(problem.utility), id(problem.allowed))
            key = (*goal, problem.length, problem.horizon)
            if key in solved:
                answers.append(solved[key])
                continue
            _require_budget(problem)
            before, started = replace(problem.model.queries), time.perf_counter()
            found = _landscape(problem, problem.model, progress)
            if found is None:
                vocab = problem.model.space.vocab_size
                raise InputError(
                    f"exhaustive: {vocab}**{problem.length} prompts with {vocab}**"
                    f"{problem.horizon} continuations each are too many to try"
                )
            spent = problem.model.queries.since(before)
            seconds = time.perf_counter() - started
            step = Step(found.optimum, len(found.sizes), spent.forward_tokens, 0, seconds)
            solved[key] = Answer(
                found.best_prompt, spent, steps=1, stop_reason="complete", history=[step]
            )
            answers.append(solved[key])
        return answers


def _landscape(
    problem: Problem, model: Metered, progress: Progress | None
) -> PromptLandscape | None:
    return landscape(
        model, problem.utility, problem.length, problem.horizon, progress, problem.allowed
    )


def _require_budget(problem: Problem) -> None:
    """On an exact model nothing is read twice, so trying it on the side tells the price."""
    budget, model = problem.max_model_tokens, problem.model
    if budget is None:
        return
    if isinstance(model.inner, ExactModel):
        aside = Metered(model.inner)
        _landscape(problem, aside, None)
        price = aside.queries.forward_tokens
    elif problem.length * math.log2(model.space.vocab_size) > 40:
        return  # what cannot be tried at all is refused by the search itself
    else:
        one = model.tokens_of(problem.length, problem.horizon)
        n_prompts = model.space.vocab_size**problem.length
        if problem.allowed is not None and n_prompts <= LISTED_PROMPTS:
            n_prompts = len(list_allowed(problem.allowed, problem.length))
        price = n_prompts * one
    require(
        price <= budget,
        f"exhaustive: trying every prompt takes {price:,} model tokens, the budget is {budget:,}",
    )


def from_spec(spec: Spec) -> ExhaustiveSearch:
    spec.take()
    return ExhaustiveSearch()
