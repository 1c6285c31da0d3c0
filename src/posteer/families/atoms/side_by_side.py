"""Latents of several kinds side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.finite_state.machines import StateLatents, padded
from posteer.families.finite_state.suffixes import Suffixes, suffixes_of
from posteer.families.finite_state.unifilar import UnifilarLatents
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.goals.protocol import Utility

Machines = StateLatents | UnifilarLatents


@dataclass(frozen=True)
class AtomFamily:
    """Latents of any kind over a vocabulary; `only_asked` if nothing is known of their states."""

    vocab_size: int
    order: int = 0
    only_asked: bool = False

    @property
    def name(self) -> str:
        return "atoms"


@dataclass(frozen=True, eq=False)
class SideReading:
    """What each part has read."""

    parts: tuple[Any, ...]
    rows: Int[Tensor, "L"]

    @property
    def log_likelihood(self) -> Float[Tensor, "B L"]:
        return torch.cat([part.log_likelihood for part in self.parts], 1)[:, self.rows]

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        return torch.cat([part.log_probs for part in self.parts], 1)[:, self.rows]

    def select(self, rows: Int[Tensor, "K"]) -> SideReading:
        return replace(self, parts=tuple(part.select(rows) for part in self.parts))


@dataclass(frozen=True, eq=False)
class SideBySide(ReadingLatents):
    """The latents of all parts; `rows` puts them in an order, repeats allowed."""

    parts: tuple[ReadingLatents, ...]
    rows: Int[Tensor, "L"]

    @property
    def family(self) -> AtomFamily:
        return AtomFamily(self.parts[0].family.vocab_size)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    def start(self, batch: int) -> SideReading:
        return SideReading(tuple(part.start(batch) for part in self.parts), self.rows)

    def observe(self, reading: SideReading, tokens: Int[Tensor, "B"]) -> SideReading:
        pairs = zip(self.parts, reading.parts, strict=True)
        return replace(reading, parts=tuple(part.observe(read, tokens) for part, read in pairs))

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        means = [part.mean_after(utility, horizon) for part in self.parts]

        def mean(reading: SideReading, contexts: Int[Tensor, "B"]) -> Float[Tensor, "B L"]:
            pairs = zip(means, reading.parts, strict=True)
            return torch.cat([own(read, contexts) for own, read in pairs], 1)[:, self.rows]

        return mean

    def pick(self, rows: Int[Tensor, "K"]) -> SideBySide:
        return replace(self, rows=self.rows[rows])

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        tokens = torch.zeros(len(self), length, dtype=torch.long, device=generator.device)
        first = 0
        for part in self.parts:
            own = ((self.rows >= first) & (self.rows < first + len(part))).nonzero()[:, 0]
            if len(own):
                some = part.pick(self.rows[own] - first)
                tokens[own] = some.roll_out(length, generator, head)
            first += len(part)
        return tokens

    def tensors(self) -> dict[str, Tensor]:
        tensors = {
            f"{at}.{name}": tensor
            for at, part in enumerate(self.parts)
            for name, tensor in part.tensors().items()
        }
        return tensors | {"rows": self.rows}


FEW_STATES = 32
"""States up to which machines are bounded together, however different."""


@suffixes_of.register
def _of_side_by_side(
    latents: SideBySide, read: tuple[int, ...], length: int, utility: Utility, horizon: int
) -> Suffixes | None:
    """All parts as machines, where they are small."""
    machines = []
    for part in latents.parts:
        if part.family.order or len(part) == 0 or not isinstance(part, Machines):
            return None
        if part.family.n_states > FEW_STATES:
            return None
        machines.append(part.as_machines())
    return suffixes_of(padded(machines).pick(latents.rows), read, length, utility, horizon)


def side_by_side(parts: list[ReadingLatents]) -> ReadingLatents:
    """All latents of all parts; the part itself if there is one."""
    vocabs = sorted({part.family.vocab_size for part in parts})
    require(len(vocabs) == 1, f"atoms over {vocabs} tokens: expected one vocabulary")
    if len(parts) == 1:
        return parts[0]
    return SideBySide(tuple(parts), torch.arange(sum(map(len, parts))))
