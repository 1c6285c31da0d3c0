"""Try every prompt; on an exact model every class of prompts it can tell apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posteer.errors import InputError
from posteer.evaluation import landscape
from posteer.problem import Answer, Problem, Progress
from posteer.spec import Spec


@dataclass(frozen=True, kw_only=True)
class ExhaustiveSearch:
    """The optimum by definition, where it can be had."""

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        answers: list[Answer] = []
        solved: dict[tuple[int, int, int, int], Answer] = {}  # seeds do not matter to this search
        for problem in problems:
            key = (id(problem.model), id(problem.utility), problem.length, problem.horizon)
            if key in solved:
                answers.append(solved[key])
                continue
            before = replace(problem.model.queries)
            found = landscape(
                problem.model, problem.utility, problem.length, problem.horizon, progress
            )
            if found is None:
                vocab = problem.model.space.vocab_size
                raise InputError(
                    f"exhaustive: {vocab}**{problem.length} prompts with {vocab}**"
                    f"{problem.horizon} continuations each are too many to try"
                )
            solved[key] = Answer(found.best_prompt, problem.model.queries.since(before))
            answers.append(solved[key])
        return answers


def from_spec(spec: Spec) -> ExhaustiveSearch:
    spec.take()
    return ExhaustiveSearch()
