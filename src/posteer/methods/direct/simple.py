"""What a gradient must beat: coordinate ascent with restarts, random search, beam search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.progress import Progress
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Int
from posteer.core.spec import Spec, integer
from posteer.methods.answers import Answer
from posteer.methods.direct.field import Field, grouped
from posteer.methods.protocol import Problem
from posteer.models.conditioned import context_of
from posteer.tokens.contexts import all_sequences


@dataclass(frozen=True, kw_only=True)
class CoordinateAscent:
    """Move to the best of all single substitutions; at a local optimum start again at random."""

    restarts: int = 1

    def __post_init__(self) -> None:
        require(self.restarts >= 1, f"coordinate: {self.restarts} restarts: expected at least 1")

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        return _solve(problems, "coordinate", self._search, progress)

    def _search(self, field: Field, progress: Progress | None) -> None:
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
                    field.runs[run].stop_reason = "budget"
                elif improved:
                    going.append(run)
                elif restarts[run] < self.restarts:
                    starting.append(run)
                else:
                    field.runs[run].stop_reason = "no-improvement"
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


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """The best of so many uniform prompts."""

    prompts: int = 1000
    at_once: int = 64

    def __post_init__(self) -> None:
        require(self.prompts >= 1, f"random: {self.prompts} prompts: expected at least 1")

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        return _solve(problems, "random", self._search, progress)

    def _search(self, field: Field, progress: Progress | None) -> None:
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
                    field.runs[run].stop_reason = "budget"
            left -= self.at_once
            every = torch.cat(prompts)
            values = field.values(torch.tensor(owners, dtype=torch.long), every)
            for run, value, prompt in zip(owners, values.tolist(), every, strict=True):
                field.runs[run].offer(value, prompt)
            for run in dict.fromkeys(owners):
                field.record(run, owners.count(run))
            runs = [run for run in runs if field.runs[run].stop_reason != "budget"]
            if progress is not None:
                progress("random search", self.prompts - max(left, 0), self.prompts)


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """Grow prompts from the left, keeping the `width` best of each length by their own value.

    It begins with the shortest prompts that have a value: all of them, or `width` at random. Where
    beginnings that may become allowed prompts have no such continuation, `width` random ones stand
    in for them.
    """

    width: int = 8

    def __post_init__(self) -> None:
        require(self.width >= 1, f"beam: width {self.width}: expected at least 1")

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        return _solve(problems, "beam", self._search, progress)

    def _search(self, field: Field, progress: Progress | None) -> None:
        generators = [torch_stream(run.problem.seed, "beam") for run in field.runs]
        beams: dict[int, Tensor] = {}
        read = len(context_of(field.model))
        shortest = [
            max(field.model.space.order - read, goal.order - read, 0) for goal in field.objectives
        ]
        waiting = list(range(len(field.runs)))
        for length in range(min(shortest) + 1, field.length + 1):
            for run in [run for run in waiting if shortest[run] < length]:
                waiting.remove(run)
                beams[run] = self._beginnings(field, shortest[run], generators[run])
            owners, grown = [], []
            for run in list(beams):
                wider = field.permitted(_extended(beams[run], field.vocab))
                if len(wider) == 0:  # a dead end of what is allowed: begin again from whole prompts
                    wider = field.draw(self.width, generators[run])[:, :length].unique(dim=0)
                rest = 0 if length == field.length else field.price  # one whole prompt at the end
                if field.runs[run].left < len(wider) * field.price_of(length) + rest:
                    field.runs[run].stop_reason = "budget"
                    self._finish(field, run, beams.pop(run), generators[run])
                    continue
                owners += [run] * len(wider)
                grown.append(wider)
            if not grown:
                if waiting:
                    continue
                return
            every = torch.cat(grown)
            values = field.values(torch.tensor(owners, dtype=torch.long), every)
            at = 0
            for run, wider in zip(list(beams), grown, strict=True):
                own = values[at : at + len(wider)]
                at += len(wider)
                kept = own.argsort(descending=True, stable=True)[: self.width]
                beams[run] = wider[kept]
                if length == field.length:
                    field.runs[run].offer(float(own[kept[0]]), wider[kept[0]])
                    field.runs[run].stop_reason = "complete"
                field.record(run, len(wider))
            if progress is not None:
                progress("beam search", length, field.length)

    def _beginnings(
        self, field: Field, length: int, generator: torch.Generator
    ) -> Int[Tensor, "K t"]:
        if field.vocab**length <= self.width:
            return field.permitted(all_sequences(field.vocab, length))
        if field.allowed is not None:
            return field.draw(self.width, generator)[:, :length].unique(dim=0)
        drawn = torch.randint(field.vocab, (self.width, length), generator=generator)
        return drawn.unique(dim=0)

    def _finish(
        self, field: Field, run: int, beam: Int[Tensor, "K t"], generator: torch.Generator
    ) -> None:
        """Out of budget: fill the best beginning up at random, if one evaluation can be paid."""
        rest = torch.randint(field.vocab, (1, field.length - beam.shape[1]), generator=generator)
        whole = field.permitted(torch.cat([beam[:1], rest[: len(beam)]], 1))
        if len(whole) == 0:
            whole = field.draw(1, generator)
        if field.affordable(run, 1):
            value = field.values(torch.tensor([run]), whole)
            field.runs[run].offer(float(value[0]), whole[0])
            field.record(run, 1)


def _extended(beam: Int[Tensor, "K t"], vocab_size: int) -> Int[Tensor, "KV t1"]:
    tokens = torch.arange(vocab_size).repeat(len(beam))[:, None]
    return torch.cat([beam.repeat_interleave(vocab_size, 0), tokens], 1)


def _solve(
    problems: list[Problem],
    name: str,
    search: Callable[[Field, Progress | None], None],
    progress: Progress | None,
) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for indices in grouped(problems):
        field = Field([problems[index] for index in indices], name)
        search(field, progress)
        answers |= dict(zip(indices, (run.answer() for run in field.runs), strict=True))
    return [answers[index] for index in range(len(problems))]


def coordinate_from_spec(spec: Spec) -> CoordinateAscent:
    """`coordinate(restarts=20)`."""
    return CoordinateAscent(restarts=integer(spec.take(restarts=1)["restarts"], "restarts"))


def random_from_spec(spec: Spec) -> RandomSearch:
    """`random(prompts=1000)`."""
    return RandomSearch(prompts=integer(spec.take(prompts=1000)["prompts"], "prompts"))


def beam_from_spec(spec: Spec) -> BeamSearch:
    """`beam(width=8)`."""
    return BeamSearch(width=integer(spec.take(width=8)["width"], "width"))
