"""Random search: the best of so many uniform prompts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posteer.core import Progress, Spec, integer
from posteer.core.limits import MOST_OF_ANY
from posteer.core.randomness import torch_stream
from posteer.core.spec import within
from posteer.methods.answers import StopReason
from posteer.methods.direct.field import DirectSearch, Field
from posteer.methods.protocol import Problem


@dataclass(frozen=True, kw_only=True)
class RandomSearch(DirectSearch):
    """The best of so many uniform prompts."""

    prompts: int = 1000
    at_once: int = 64

    def __post_init__(self) -> None:
        within(self.prompts, "random: prompts", 1, MOST_OF_ANY)

    def tokens(self, problem: Problem) -> float:
        price = problem.model.tokens_of(problem.length, problem.horizon)
        return float(self.prompts * price)

    def search(self, field: Field, progress: Progress | None) -> None:
        runs = list(range(len(field.runs)))
        streams = [torch_stream(run.problem.seed, "random-search") for run in field.runs]
        left = self.prompts
        while runs and left > 0:
            owners, prompts = [], []
            for run in runs:
                n = field.affordable(run, min(self.at_once, left))
                owners += [run] * n
                prompts.append(field.draw(n, streams[run]))
                if n < min(self.at_once, left):
                    field.runs[run].stop_reason = StopReason.BUDGET
            left -= self.at_once
            every = torch.cat(prompts)
            values = field.values(torch.tensor(owners, dtype=torch.long), every)
            for run, value, prompt in zip(owners, values.tolist(), every, strict=True):
                field.runs[run].offer(value, prompt)
            for run in dict.fromkeys(owners):
                field.record(run, owners.count(run))
            runs = [run for run in runs if field.runs[run].stop_reason != StopReason.BUDGET]
            if progress is not None:
                progress("random search", self.prompts - max(left, 0), self.prompts)


def from_spec(spec: Spec) -> RandomSearch:
    """`random(prompts=1000)`."""
    given = spec.take(prompts=RandomSearch.prompts)
    return RandomSearch(prompts=integer(given["prompts"], "prompts"))
