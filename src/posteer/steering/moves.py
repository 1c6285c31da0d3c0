"""Moves between classes of prompts: changes of edge counts that leave an Eulerian walk possible.

A prompt is a walk on the de Bruijn graph of contexts, a class its first context and edge counts.
The last context follows: the counts of a walk balance at every context but its two ends. A change
of counts keeps that if it is made of

* cycles: some copies of one simple cycle taken out, another of the same total length put in;
* substitutions: one token inside the walk changed, with the edges that pass over it;
* ends: the shortest path between the present ends taken out, that between others put in, alone or
  with a small exchange of cycles;
* slides: the first edge of the walk dropped and one appended at its end, or the other way round.

What remains to be seen is that no count falls below zero and that the walk is still in one piece.
A class is kept as one row of whole numbers, its counts and then its first context.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from torch import Tensor

from posteer.kernels import ContextSpace, count_transitions
from posteer.shapes import Bool, Int
from posteer.utilities.base import all_sequences

MOST_CYCLES = 32
MOST_EXCHANGES = 600
MOST_SUBSTITUTIONS = 4096
MOST_END_MOVES = 4096


def simple_cycles(
    space: ContextSpace, most: int = MOST_CYCLES
) -> list[tuple[int, Int[Tensor, "C V"]]]:
    """The shortest simple cycles, as (length, edge counts); a whole length more than `most` if the
    last one does not fit, so that symmetric cycles are treated alike."""
    next_context = space.next_context.tolist()
    found: list[tuple[int, Tensor]] = []
    # paths from their least context on, so that each cycle is met once
    paths: list[tuple[list[int], list[int]]] = [([s], []) for s in range(space.n_contexts)]
    for length in range(1, space.n_contexts + 1):
        longer = []
        for nodes, tokens in paths:
            for token, there in enumerate(next_context[nodes[-1]]):
                if there == nodes[0]:
                    table = torch.zeros(space.n_contexts, space.vocab_size, dtype=torch.long)
                    table[nodes, [*tokens, token]] = 1
                    found.append((length, table))
                elif there > nodes[0] and there not in nodes:
                    longer.append(([*nodes, there], [*tokens, token]))
        if len(found) >= most or len(longer) > 64 * most:
            break
        paths = longer
    return found


def cycle_exchanges(space: ContextSpace, most: int = MOST_EXCHANGES) -> Int[Tensor, "M C V"]:
    """Changes of counts that swap cycles for others of the same total length.

    Any two cycles by as many copies as make the lengths equal; a cycle for two that are together as
    long, or the other way round; and, if not too many, any bundles of up to three short cycles.
    """
    cycles = simple_cycles(space)
    exchanges = []
    for i, (length, one) in enumerate(cycles):
        for j, (other_length, other) in enumerate(cycles):
            if i != j:
                whole = int(np.lcm(length, other_length))
                exchanges.append(whole // other_length * other - whole // length * one)
    bundles: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    for size in (1, 2, 3) if len(cycles) <= MOST_CYCLES else (1, 2):
        for chosen in combinations_with_replacement(cycles, size):
            total = sum((table for _, table in chosen), torch.zeros_like(chosen[0][1]))
            bundles[sum(length for length, _ in chosen), size].append(total)
    for length in {length for length, _ in cycles}:
        singles, pairs = bundles[length, 1], bundles[length, 2]
        if len(singles) * len(pairs) <= most:
            exchanges += [sign * (a - b) for a in singles for b in pairs for sign in (1, -1)]
    for length in (1, 2, 3):
        own = [table for size in (1, 2, 3) for table in bundles[length, size]]
        if len(own) ** 2 <= most:
            exchanges += [new - old for new in own for old in own]
    if not exchanges:
        return torch.zeros(0, space.n_contexts, space.vocab_size, dtype=torch.long)
    distinct = torch.stack(exchanges).unique(dim=0)
    return distinct[distinct.flatten(1).any(-1)]


def substitutions(space: ContextSpace) -> Int[Tensor, "M C V"]:
    """Changes of counts by which one token with `order` others on both sides becomes another.

    With them, no prompt of a local optimum can be improved by changing one of its inner tokens.
    """
    vocab, width = space.vocab_size, 2 * space.order + 1
    if vocab**width * (vocab - 1) > MOST_SUBSTITUTIONS:
        return torch.zeros(0, space.n_contexts, vocab, dtype=torch.long)
    windows = all_sequences(vocab, width)
    counts = count_transitions(space, windows).long()
    changes = []
    for shift in range(1, vocab):
        other = windows.clone()
        other[:, space.order] = (other[:, space.order] + shift) % vocab
        changes.append(count_transitions(space, other).long() - counts)
    return torch.cat(changes).unique(dim=0)


def multiples(exchanges: Int[Tensor, "M C V"], steps: int) -> Int[Tensor, "N C V"]:
    """Each exchange once, twice, four times and so on, while `steps` edges have room for it."""
    scaled = [exchanges]
    while 2 ** len(scaled) <= steps:
        factor = 2 ** len(scaled)
        removed = (-exchanges).clamp(min=0).sum((1, 2)) * factor
        scaled.append(exchanges[removed <= steps] * factor)
    return torch.cat(scaled).unique(dim=0)


@dataclass(frozen=True, eq=False)
class ClassMoves:
    """All neighbours of classes of prompts with `steps` transitions."""

    space: ContextSpace
    steps: int
    exchanges: Int[Tensor, "M C V"]
    small: Int[Tensor, "N C V"]
    paths: Int[Tensor, "C C E"]

    @classmethod
    def of(cls, space: ContextSpace, steps: int) -> ClassMoves:
        exchanges = cycle_exchanges(space)
        n = space.n_contexts
        room = max(1, MOST_END_MOVES // n**2)
        by_size = exchanges.abs().sum((1, 2)).argsort(stable=True)
        small = exchanges[by_size[: room - 1]]
        still = torch.zeros(1, n, space.vocab_size, dtype=torch.long)
        return cls(
            space,
            steps,
            torch.cat([multiples(exchanges, steps), substitutions(space)]).unique(dim=0),
            torch.cat([still, small]),
            _shortest_paths(space) if n**2 <= MOST_END_MOVES else torch.zeros(n, 0, 0).long(),
        )

    def rows_of(self, prompts: Int[Tensor, "K m"]) -> Int[Tensor, "K D"]:
        """The classes of prompts."""
        counts = count_transitions(self.space, prompts).long().flatten(1)
        first = self.space.encode(prompts[:, : self.space.order])
        return torch.cat([counts, first[:, None]], -1)

    def parts_of(
        self, rows: Int[Tensor, "K D"]
    ) -> tuple[Int[Tensor, "K C V"], Int[Tensor, "K"], Int[Tensor, "K"]]:
        """Counts, first and last context of each class."""
        counts, first = rows[:, :-1].unflatten(1, (self.space.n_contexts, -1)), rows[:, -1]
        return counts, first, last_context(self.space, counts, first)

    def __call__(self, rows: Int[Tensor, "K D"]) -> tuple[Int[Tensor, "N D"], Int[Tensor, "N"]]:
        """Neighbours of every class and whose they are; walks all of them."""
        neighbours, owners = [], []
        for owner, row in enumerate(rows):
            counts, first, last = self.parts_of(row[None])
            found = [
                _rows(counts + self.exchanges, first),
                self._other_ends(counts[0], int(first), int(last)),
                self._slides(counts[0], int(first), int(last)),
            ]
            own = torch.cat(found)
            own = own[(own >= 0).all(-1)].unique(dim=0)
            tables, starts, _ = self.parts_of(own)
            own = own[in_one_piece(self.space, tables, starts)]
            neighbours.append(own)
            owners.append(torch.full((len(own),), owner))
        return torch.cat(neighbours), torch.cat(owners)

    def _other_ends(self, counts: Int[Tensor, "C V"], first: int, last: int) -> Int[Tensor, "N D"]:
        """Every pair of ends, by the paths of `order` steps between them."""
        if self.paths.shape[1] == 0 or self.space.order == 0:
            return torch.zeros(0, counts.numel() + 1, dtype=torch.long)
        change = self.paths - self.paths[first, last]
        tables = (counts.flatten() + change)[:, :, None] + self.small.flatten(1)
        starts = torch.arange(self.space.n_contexts)[:, None, None, None]
        starts = starts.expand(*tables.shape[:-1], 1)
        return torch.cat([tables, starts], -1).flatten(0, 2)

    def _slides(self, counts: Int[Tensor, "C V"], first: int, last: int) -> Int[Tensor, "N D"]:
        space, vocab = self.space, self.space.vocab_size
        rows = []
        for dropped in range(vocab):  # from the front; one appended at the end
            for added in range(vocab):
                table = counts.clone()
                table[first, dropped] -= 1
                table[last, added] += 1
                rows.append(_rows(table[None], space.next_context[first, dropped][None]))
        before_last, before_first = space.incoming[last], space.incoming[first]
        for dropped in before_last.tolist():  # from the end; one put before the front
            for added in before_first.tolist():
                flat = counts.flatten().clone()
                flat[dropped] -= 1
                flat[added] += 1
                start = torch.tensor([added // vocab])
                rows.append(torch.cat([flat[None], start[:, None]], -1))
        return torch.cat(rows)


def _rows(counts: Int[Tensor, "K C V"], first: Int[Tensor, "#K"]) -> Int[Tensor, "K D"]:
    return torch.cat([counts.flatten(1), first.expand(len(counts))[:, None]], -1)


def _shortest_paths(space: ContextSpace) -> Int[Tensor, "C C E"]:
    """Edge counts of the walk of `order` steps from each context to each other."""
    contexts = space.decode(torch.arange(space.n_contexts))
    n = space.n_contexts
    tokens = torch.cat([contexts[:, None].expand(n, n, -1), contexts.expand(n, n, -1)], -1)
    return count_transitions(space, tokens).long().flatten(-2)


def last_context(
    space: ContextSpace, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"]
) -> Int[Tensor, "K"]:
    """Where a walk with these counts ends: entered once more than left, or back at its start."""
    surplus = counts.flatten(1)[:, space.incoming].sum(-1) - counts.sum(-1)
    surplus[torch.arange(len(counts)), first] += 1
    return surplus.argmax(-1)


def in_one_piece(
    space: ContextSpace, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"]
) -> Bool[Tensor, "K"]:
    """Whether every edge is connected to the first context; with balanced counts that is enough."""
    used = counts > 0
    touched = used.any(-1) | used.flatten(1)[:, space.incoming].any(-1)
    reached = torch.nn.functional.one_hot(first, space.n_contexts).bool()
    for _ in range(space.n_contexts):
        ahead = used & reached[:, :, None]
        back = used & reached[:, space.next_context]
        grown = reached | ahead.flatten(1)[:, space.incoming].any(-1) | back.any(-1)
        if torch.equal(grown, reached):
            break
        reached = grown
    return (reached | ~touched).all(-1)
