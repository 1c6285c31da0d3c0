"""Moves between prompts themselves: one token changed, or two, of many pairs some.

Where positions matter, or a prompt is refused by rules that its counts do not show, a class does
not say which of its prompts may be used, so a search has to hold prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.core.shapes import Bool, Int

MOST_PAIRS = 4096
"""Changes of two tokens; where there are more, as many drawn at random."""


@dataclass(frozen=True, eq=False)
class TokenMoves:
    """All prompts one token away, and those two tokens away.

    `parts_of` is what a scorer is told of prompts: counts, first and last contexts. A move sets two
    positions to two tokens, a change of one token being made twice.
    """

    parts_of: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    changes: Int[Tensor, "M 2 2"]

    @classmethod
    def of(
        cls,
        parts_of: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
        mask: Bool[Tensor, "m V"],
        stream: np.random.Generator,
    ) -> TokenMoves:
        """`mask` says which tokens a position may hold."""
        singles = mask.nonzero()
        n = len(singles)
        if n**2 <= 2 * MOST_PAIRS:
            pairs = torch.combinations(torch.arange(n), with_replacement=True)
        else:
            same = torch.arange(n)[:, None].expand(-1, 2)
            drawn = torch.from_numpy(stream.integers(0, n, size=(MOST_PAIRS, 2)))
            pairs = torch.cat([same, drawn])
        return cls(parts_of, singles[pairs])

    def prompts_of(self, rows: Int[Tensor, "K m"]) -> Int[Tensor, "K m"]:
        """Rows are prompts."""
        return rows

    @property
    def size(self) -> int:
        return len(self.changes)

    def __call__(
        self, rows: Int[Tensor, "K m"], moves: Int[Tensor, "n"] | None = None
    ) -> tuple[Int[Tensor, "N m"], Int[Tensor, "N"]]:
        """Neighbours of every prompt, all or by some moves, and whose they are."""
        changes = self.changes if moves is None else self.changes[moves]
        index = torch.arange(len(changes))
        found = rows[:, None].repeat(1, len(changes), 1)
        for change in changes.unbind(1):
            found[:, index, change[:, 0]] = change[:, 1]
        return found.flatten(0, 1), torch.arange(len(rows)).repeat_interleave(len(changes))
