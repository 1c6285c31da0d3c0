"""Moves between prompts themselves: one token changed, or two.

Where positions matter, or a prompt is refused by rules that its counts do not show, a class does
not say which of its prompts may be used, so a search has to hold prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from posteer.shapes import Bool, Int

MOST_PAIRS = 4096
"""Changes of two tokens tried from one prompt; past it, as many drawn at random."""


@dataclass(frozen=True, eq=False)
class TokenMoves:
    """All prompts one token away, and those two tokens away.

    `mask` says which tokens a position may hold, `parts_of` what a scorer is told of prompts:
    counts, first and last contexts.
    """

    parts_of: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    mask: Bool[Tensor, "m V"]
    stream: np.random.Generator
    singles: Int[Tensor, "S 2"] = field(init=False)

    def __post_init__(self) -> None:
        # every (position, token) that is allowed
        object.__setattr__(self, "singles", self.mask.nonzero())

    def __call__(self, rows: Int[Tensor, "K m"]) -> tuple[Int[Tensor, "N m"], Int[Tensor, "N"]]:
        """Neighbours of every prompt and whose they are."""
        n = len(self.singles)
        pairs = torch.combinations(torch.arange(n)) if n**2 <= 2 * MOST_PAIRS else self._drawn(n)
        first, second = self.singles[pairs[:, 0]], self.singles[pairs[:, 1]]
        neighbours, owners = [], []
        for owner, prompt in enumerate(rows):
            one = _changed(prompt, self.singles)
            two = prompt.repeat(len(pairs), 1)
            index = torch.arange(len(pairs))
            two[index, first[:, 0]] = first[:, 1]
            two[index, second[:, 0]] = second[:, 1]
            own = torch.cat([one, two]).unique(dim=0)
            neighbours.append(own)
            owners.append(torch.full((len(own),), owner))
        return torch.cat(neighbours), torch.cat(owners)

    def _drawn(self, n: int) -> Int[Tensor, "P 2"]:
        return torch.from_numpy(self.stream.integers(0, n, size=(MOST_PAIRS, 2)))


def _changed(prompt: Int[Tensor, "m"], changes: Int[Tensor, "S 2"]) -> Int[Tensor, "S m"]:
    rows = prompt.repeat(len(changes), 1)
    rows[torch.arange(len(changes)), changes[:, 0]] = changes[:, 1]
    return rows
