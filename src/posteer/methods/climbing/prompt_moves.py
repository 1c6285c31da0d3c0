"""Moves between prompts, by kind: a token changed, two exchanged, all turned round, one token taken
out and another put in elsewhere.

Each kind is a `Neighbourhood` (climb.py) of rows that are prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.core.shapes import Bool, Int

MOST_MOVES = 2**14
"""Of one kind; where there are more, as many drawn at random."""


@dataclass(frozen=True, eq=False)
class Rearrangements:
    """Neighbours that hold, place by place, a token of the prompt or a new one.

    `sources[n, i]` is the place that move n reads place i from; `m + v` stands for the token v.
    """

    sources: Int[Tensor, "M m"]

    @property
    def size(self) -> int:
        return len(self.sources)

    def __call__(
        self, rows: Int[Tensor, "K m"], moves: Int[Tensor, "n"]
    ) -> tuple[Int[Tensor, "N m"], Int[Tensor, "N"]]:
        sources = self.sources[moves]
        length = rows.shape[1]
        own = rows[:, sources.clamp(max=length - 1)]
        found = torch.where(sources < length, own, sources - length)
        return found.flatten(0, 1), torch.arange(len(rows)).repeat_interleave(len(moves))


def kinds_of_moves(
    mask: Bool[Tensor, "m V"], stream: np.random.Generator
) -> tuple[Rearrangements, ...]:
    """Substitutions, exchanges and turns, insertions with deletions: the few kinds first.

    `mask` says which tokens a place may hold; whoever climbs sees to what moves break besides.
    """
    return (
        Rearrangements(_some(_substitutions(mask), stream)),
        Rearrangements(_some(torch.cat([_exchanges(mask), _turns(mask)]), stream)),
        Rearrangements(_moved(mask, stream)),
    )


def _some(sources: Int[Tensor, "M m"], stream: np.random.Generator) -> Int[Tensor, "N m"]:
    if len(sources) <= MOST_MOVES:
        return sources
    return sources[torch.from_numpy(np.sort(stream.permutation(len(sources))[:MOST_MOVES]))]


def _substitutions(mask: Bool[Tensor, "m V"]) -> Int[Tensor, "M m"]:
    length = len(mask)
    places, tokens = mask.nonzero().unbind(1)
    sources = torch.arange(length).repeat(len(places), 1)
    sources[torch.arange(len(places)), places] = length + tokens
    return sources


def _exchanges(mask: Bool[Tensor, "m V"]) -> Int[Tensor, "M m"]:
    length = len(mask)
    if length * (length - 1) // 2 > MOST_MOVES:
        near = torch.arange(length)  # too many to list: neighbours, and some further apart
        shifts = [2**power for power in range(length.bit_length()) if 2**power < length]
        pairs = torch.cat([torch.stack([near[:-s], near[s:]], 1) for s in shifts])
    else:
        pairs = torch.combinations(torch.arange(length))
    sources = torch.arange(length).repeat(len(pairs), 1)
    rows = torch.arange(len(pairs))
    sources[rows, pairs[:, 0]], sources[rows, pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    return sources


def _turns(mask: Bool[Tensor, "m V"]) -> Int[Tensor, "M m"]:
    length = len(mask)
    return (torch.arange(length) + torch.arange(1, length)[:, None]) % length


def _moved(mask: Bool[Tensor, "m V"], stream: np.random.Generator) -> Int[Tensor, "M m"]:
    """One token left out, the tokens up to another place moved along, a token put in there."""
    length, vocab = mask.shape
    numbers = length * length * vocab
    chosen = np.arange(numbers)
    if numbers > MOST_MOVES:
        chosen = np.sort(stream.integers(0, numbers, size=MOST_MOVES))
    index = torch.from_numpy(chosen)
    token, place, left_out = index % vocab, index // vocab % length, index // vocab // length
    kept = (place != left_out) & mask[place, token]
    token, place, left_out = (part[kept, None] for part in (token, place, left_out))
    at = torch.arange(length)
    forth = ((at >= left_out) & (at < place)).long()
    back = ((at > place) & (at <= left_out)).long()
    return torch.where(at == place, length + token, at + forth - back)
