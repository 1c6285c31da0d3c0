"""Coordinate ascent: what a gradient must beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Int, Progress, Spec, integer
from posteer.core.limits import MOST_OF_ANY
from posteer.core.randomness import torch_stream
from posteer.core.spec import within
from posteer.methods.answers import StopReason
from posteer.methods.direct.field import DirectSearch, Field
from posteer.methods.forecasting import rounds_of
from posteer.methods.protocol import Problem


@dataclass(frozen=True, kw_only=True)
class CoordinateAscent(DirectSearch):
    """Move to the best of all single substitutions; at a local optimum start again at random."""

    restarts: int = 1

    def __post_init__(self) -> None:
        within(self.restarts, "coordinate: restarts", 1, MOST_OF_ANY)

    def tokens(self, problem: Problem) -> float:
        choices = problem.length * (problem.vocab_size - 1)
        price = problem.model.tokens_of(problem.length, problem.horizon)
        return self.restarts * rounds_of(problem) * choices * price

    def search(self, field: Field, progress: Progress | None) -> None:
        runs = [run for run in range(len(field.runs)) if field.affordable(run, 1)]
        if not runs:
            return
        current: dict[int, tuple[float, Tensor]] = {}
        restarts = dict.fromkeys(runs, 0)
        streams = {run: torch_stream(field.runs[run].problem.seed, "coordinate") for run in runs}
        starting = list(runs)
        while runs:
            if starting:
                prompts = torch.cat([field.draw(1, streams[run]) for run in starting])
                values = field.values(torch.tensor(starting), prompts).tolist()
                for run, value, prompt in zip(starting, values, prompts, strict=True):
                    current[run] = (value, prompt)
                    field.runs[run].offer(value, prompt)
                    restarts[run] += 1
            starting, going = [], []
            proposed = [
                self._near(field, current[run][1])[: field.affordable(run, 10**9)] for run in runs
            ]
            owners = [run for run, some in zip(runs, proposed, strict=True) for _ in some]
            values_now = field.values(torch.tensor(owners, dtype=torch.long), torch.cat(proposed))
            at = 0
            for run, some in zip(runs, proposed, strict=True):
                own = values_now[at : at + len(some)]
                at += len(some)
                improved = len(own) > 0 and float(own.max()) > current[run][0]
                if improved:
                    best = int(own.argmax())
                    current[run] = (float(own[best]), some[best])
                    field.runs[run].offer(float(own[best]), some[best])
                field.record(run, len(some))
                if not field.affordable(run, 1):
                    field.runs[run].stop_reason = StopReason.BUDGET
                elif improved:
                    going.append(run)
                elif restarts[run] < self.restarts:
                    starting.append(run)
                else:
                    field.runs[run].stop_reason = StopReason.NO_IMPROVEMENT
            runs = going + starting
            if progress is not None:
                done = sum(restarts.values())
                progress("coordinate ascent", done, self.restarts * len(restarts))

    @staticmethod
    def _near(field: Field, prompt: Int[Tensor, "m"]) -> Int[Tensor, "K m"]:
        """Single substitutions; where not all are allowed, two tokens exchanged as well, since a
        bound on counts may leave no other move."""
        near = single_substitutions(prompt, field.vocab)
        if field.allowed is None:
            return near
        return field.permitted(torch.cat([near, exchanges(prompt)]))


def exchanges(prompt: Int[Tensor, "m"]) -> Int[Tensor, "K m"]:
    """Every prompt in which two unequal tokens have changed places."""
    pairs = torch.combinations(torch.arange(len(prompt)))
    pairs = pairs[prompt[pairs[:, 0]] != prompt[pairs[:, 1]]]
    changed, rows = prompt.repeat(len(pairs), 1), torch.arange(len(pairs))
    changed[rows, pairs[:, 0]] = prompt[pairs[:, 1]]
    changed[rows, pairs[:, 1]] = prompt[pairs[:, 0]]
    return changed


def single_substitutions(prompt: Int[Tensor, "m"], vocab_size: int) -> Int[Tensor, "K m"]:
    """Every prompt that differs in exactly one place."""
    length = len(prompt)
    changed = prompt.repeat(length * (vocab_size - 1), 1)
    shifts = torch.arange(1, vocab_size).repeat(length)
    places = torch.arange(length).repeat_interleave(vocab_size - 1)
    changed[torch.arange(len(changed)), places] = (prompt[places] + shifts) % vocab_size
    return changed


def from_spec(spec: Spec) -> CoordinateAscent:
    """`coordinate(restarts=20)`."""
    given = spec.take(restarts=CoordinateAscent.restarts)
    return CoordinateAscent(restarts=integer(given["restarts"], "restarts"))
