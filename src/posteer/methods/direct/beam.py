"""Beam search: grow prompts from the left."""

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
from posteer.methods.protocol import Problem
from posteer.tokens.contexts import all_sequences


@dataclass(frozen=True, kw_only=True)
class BeamSearch(DirectSearch):
    """Grow prompts from the left, keeping the `width` best of each length by their own value.

    It begins with the shortest prompts that have a value: all of them, or `width` at random. Where
    beginnings that may become allowed prompts have no such continuation, `width` random ones stand
    in for them.
    """

    width: int = 8

    def __post_init__(self) -> None:
        within(self.width, "beam: width", 1, MOST_OF_ANY)

    def tokens(self, problem: Problem) -> float:
        read = (problem.model.tokens_of(n, problem.horizon) for n in range(1, problem.length + 1))
        return float(self.width * problem.vocab_size * sum(read))

    def search(self, field: Field, progress: Progress | None) -> None:
        generators = [torch_stream(run.problem.seed, "beam") for run in field.runs]
        beams: dict[int, Tensor] = {}
        read = len(field.model.context)
        shortest = [
            max(field.model.order - read, goal.order - read, 0) for goal in field.objectives
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
                    field.runs[run].stop_reason = StopReason.BUDGET
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
                    field.runs[run].stop_reason = StopReason.COMPLETE
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


def from_spec(spec: Spec) -> BeamSearch:
    """`beam(width=8)`."""
    return BeamSearch(width=integer(spec.take(width=BeamSearch.width)["width"], "width"))
