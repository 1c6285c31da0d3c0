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

from posteer.core.shapes import Bool, Int
from posteer.families.markov.walks import eulerian_walk
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

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

    With them, no prompt of a local optimum can be improved by changing one of its inner tokens;
    there are none where they would be too many.
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
    """All neighbours of classes of prompts with `steps` transitions.

    A move adds a row of `changes`; where `starts` is not -1 that is the new first context, and the
    path between the old ends is taken out. Slides have the numbers after those of `changes`.
    """

    space: ContextSpace
    changes: Int[Tensor, "M E"]
    starts: Int[Tensor, "M"]
    paths: Int[Tensor, "C C E"]

    @classmethod
    def of(cls, space: ContextSpace, steps: int) -> ClassMoves:
        n, exchanges = space.n_contexts, cycle_exchanges(space)
        inner = torch.cat([multiples(exchanges, steps), substitutions(space)]).unique(dim=0)
        changes, starts = [inner.flatten(1)], [torch.full((len(inner),), -1)]
        paths = inner.new_zeros(0, 0, n * space.vocab_size)
        if space.order > 0 and n**2 <= MOST_END_MOVES:
            paths = _shortest_paths(space)
            by_size = exchanges.abs().sum((1, 2)).argsort(stable=True)
            small = exchanges[by_size[: MOST_END_MOVES // n**2 - 1]].flatten(1)
            small = torch.cat([torch.zeros_like(paths[0, :1]), small])
            changes.append((paths[:, :, None] + small).flatten(0, 2))
            starts.append(torch.arange(n).repeat_interleave(n * len(small)))
        return cls(space, torch.cat(changes), torch.cat(starts), paths)

    @property
    def size(self) -> int:
        return len(self.changes) + 2 * self.space.vocab_size**2

    def rows_of(self, prompts: Int[Tensor, "K m"]) -> Int[Tensor, "K D"]:
        """The classes of prompts."""
        counts = count_transitions(self.space, prompts).long().flatten(1)
        first = self.space.encode(prompts[:, : self.space.order])
        return torch.cat([counts, first[:, None]], -1)

    def prompts_of(self, rows: Int[Tensor, "K D"]) -> Int[Tensor, "K m"]:
        """One prompt of each class, an Eulerian walk on its counts."""
        counts, first, _ = self.parts_of(rows)
        prompts = []
        for table, start in zip(counts, first, strict=True):
            walk = eulerian_walk(self.space, table, int(start))
            assert walk is not None, "moves keep an Eulerian walk possible"
            prompts.append(torch.cat([self.space.decode(start), torch.tensor(walk)]))
        return torch.stack(prompts)

    def parts_of(
        self, rows: Int[Tensor, "K D"]
    ) -> tuple[Int[Tensor, "K C V"], Int[Tensor, "K"], Int[Tensor, "K"]]:
        """Counts, first and last context of each class."""
        counts, first = rows[:, :-1].unflatten(1, (self.space.n_contexts, -1)), rows[:, -1]
        return counts, first, last_context(self.space, counts, first)

    def __call__(
        self, rows: Int[Tensor, "K D"], moves: Int[Tensor, "n"] | None = None
    ) -> tuple[Int[Tensor, "N D"], Int[Tensor, "N"]]:
        """Neighbours of every class, by all moves or some, and whose they are; all are walks."""
        if moves is None:
            moves = torch.arange(self.size)
        plain = moves < len(self.changes)
        found = torch.cat(
            [
                self._changed(rows, moves[plain]),
                self._slid(rows, moves[~plain] - len(self.changes)),
            ],
            1,
        )
        possible = (found >= 0).all(-1)
        owners, found = possible.nonzero()[:, 0], found[possible]
        counts, first, _ = self.parts_of(found)
        whole = in_one_piece(self.space, counts, first)
        return found[whole], owners[whole]

    def _changed(self, rows: Int[Tensor, "K D"], moves: Int[Tensor, "n"]) -> Int[Tensor, "K n D"]:
        _, first, last = self.parts_of(rows)
        found = rows[:, None].repeat(1, len(moves), 1)
        found[..., :-1] += self.changes[moves]
        starts = self.starts[moves]
        ends = (starts >= 0).nonzero()[:, 0]
        if len(ends):
            found[:, ends, :-1] -= self.paths[first, last][:, None]
            found[:, ends, -1] = starts[ends]
        return found

    def _slid(self, rows: Int[Tensor, "K D"], moves: Int[Tensor, "n"]) -> Int[Tensor, "K n D"]:
        """The first edge dropped and one appended, or the last dropped and one put before."""
        space, vocab = self.space, self.space.vocab_size
        _, first, last = self.parts_of(rows)
        one, other = moves // vocab % vocab, moves % vocab
        onwards = moves < vocab**2
        ahead, behind = first[:, None] * vocab + one, last[:, None] * vocab + other
        before_last, before_first = space.incoming[last][:, one], space.incoming[first][:, other]
        dropped = torch.where(onwards, ahead, before_last)
        added = torch.where(onwards, behind, before_first)
        found = rows[:, None].repeat(1, len(moves), 1)
        step = torch.ones_like(dropped)[..., None]
        found.scatter_add_(-1, dropped[..., None], -step).scatter_add_(-1, added[..., None], step)
        found[..., -1] = torch.where(
            onwards, space.next_context.flatten()[dropped], before_first // vocab
        )
        return found


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
