"""Ascent from many starts at once, over any neighbourhood, with every class scored once.

Rows of whole numbers stand for what is searched: classes (moves.py) or prompts (token_moves.py).
Fewer violations of what is allowed come before any utility, so a start need not be allowed itself.

Where neighbours are very many, the best of some is nearly as good a step as the best of all. So the
moves are dealt into random shares, one where they are few, taken in turn round after round: a row
goes to the best neighbour of the share if that is better, and is a local optimum once every share
has failed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Bool, Float, Int
from posteer.methods.scorers.protocol import HardScorer

Description = tuple[Tensor, Tensor, Tensor]
"""Counts of the model's order, first and last contexts: what a scorer is asked about."""

CHUNK_ELEMENTS = 2**24
"""Counts (classes x edges) that are in memory at a time."""

AT_ONCE = 2**24
"""Numbers of neighbouring rows that are in memory at a time."""

SHARE = 4096
"""The least number of moves tried from a row in one round, if there are as many."""

LEAST_GAIN = 1e-12
"""Differences below it are rounding, and would let equal classes chase each other."""


@runtime_checkable
class Neighbourhood(Protocol):
    """Rows to rows, by moves that are numbered from 0 to `size - 1`."""

    @property
    def size(self) -> int: ...

    def __call__(
        self, rows: Int[Tensor, "K D"], moves: Int[Tensor, "n"]
    ) -> tuple[Int[Tensor, "N D"], Int[Tensor, "N"]]:
        """What the moves that are possible make of each row, and the index of that row."""
        ...


@dataclass(frozen=True, eq=False)
class Climb:
    """The best rows seen anywhere, best first, no two of one class."""

    rows: Int[Tensor, "K D"]
    values: Float[Tensor, "K"]
    finished: bool
    n_scored: int
    history: list[tuple[float, int, float]] = field(repr=False)

    @property
    def rounds(self) -> int:
        return len(self.history)


def climb(
    neighbourhood: Neighbourhood,
    describe: Callable[[Tensor], Description],
    scorer: HardScorer,
    violations: Callable[[Tensor], Tensor] | None,
    starts: Int[Tensor, "R D"],
    stream: np.random.Generator,
    keep: int,
    max_rounds: int,
    report: Callable[[int, int], None] | None = None,
    share: int = SHARE,
    leading: Callable[[Tensor, Tensor, int], None] | None = None,
) -> Climb:
    """Move every start to better neighbours until none of its neighbours is better.

    `history` holds, round by round, the best value so far, the classes newly scored and the time;
    `leading` is told after each the best rows, their values and how many were scored.
    """
    known = Known(describe, scorer, violations, keep)
    shares = _dealt(neighbourhood.size, share, stream)
    current = starts.unique(dim=0)
    standing = known.standing(current)
    failed = torch.zeros(len(current), dtype=torch.long)  # shares in a row without a better one
    started, history = time.perf_counter(), []
    for done in range(max_rounds):
        if len(current) == 0:
            break
        before = len(known.values)
        near = [
            _best_neighbours(neighbourhood, known, current, moves)
            for moves in shares[done % len(shares)].split(max(1, AT_ONCE // current.numel()))
        ]
        rows, reached, owners = (torch.cat(parts) for parts in zip(*near, strict=True))
        best = best_of_each(reached, owners)
        best = best[better(reached[best], standing[owners[best]])]
        moved = owners[best]
        current[moved], standing[moved] = rows[best], reached[best]
        failed += 1
        failed[moved] = 0
        kept = first_of_equal(current) & (failed < len(shares))
        current, standing, failed = current[kept], standing[kept], failed[kept]
        seconds = time.perf_counter() - started
        history.append((known.best, len(known.values) - before, seconds))
        if leading is not None:
            leading(*known.top(starts.shape[1]), len(known.values))
        if report is not None:
            report(len(history), max_rounds)
    finished = len(current) == 0
    return Climb(*known.top(starts.shape[1]), finished, len(known.values), history)


def _best_neighbours(
    neighbourhood: Neighbourhood, known: Known, rows: Tensor, moves: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row the best neighbour by some moves: itself, its standing and whose it is."""
    near, owners = neighbourhood(rows, moves)
    reached = known.standing(near)
    best = best_of_each(reached, owners)
    return near[best], reached[best], owners[best]


def _dealt(size: int, least: int, stream: np.random.Generator) -> list[Tensor]:
    """All moves in random parts of at least so many, each in its own order."""
    parts = np.array_split(stream.permutation(size), max(1, size // least))
    return [torch.from_numpy(np.sort(part)) for part in parts]


def best_of_each(standing: Float[Tensor, "N 2"], owners: Int[Tensor, "N"]) -> Int[Tensor, "K"]:
    """The best row of each owner that has any, the first of equal ones."""
    order = np.lexsort((-standing[:, 1].numpy(), -standing[:, 0].numpy(), owners.numpy()))
    _, first = np.unique(owners.numpy()[order], return_index=True)
    return torch.from_numpy(order[first])


def better(new: Float[Tensor, "K 2"], old: Float[Tensor, "K 2"]) -> Bool[Tensor, "K"]:
    """Whether each standing beats another by more than rounding."""
    closer = new[:, 0] > old[:, 0]
    return closer | ((new[:, 0] == old[:, 0]) & (new[:, 1] > old[:, 1] + LEAST_GAIN))


def first_of_equal(rows: Int[Tensor, "K D"]) -> Bool[Tensor, "K"]:
    """Which rows no earlier one equals."""
    _, index = rows.unique(dim=0, return_inverse=True)
    return ~(index[:, None] == index).tril(-1).any(-1)


class Known:
    """Values of all classes met, by a hash of what the scorer sees of them.

    The hash is linear modulo 2**64 with random coefficients: among a million classes two share
    theirs with a chance of about one in ten million.
    """

    def __init__(
        self,
        describe: Callable[[Tensor], Description],
        scorer: HardScorer,
        violations: Callable[[Tensor], Tensor] | None,
        keep: int,
    ) -> None:
        self.describe, self.scorer, self.violations = describe, scorer, violations
        self.values: dict[int, float] = {}
        self.keep = keep
        self.leaders: tuple[Tensor, Tensor] | None = None  # the best rows and their values

    @property
    def best(self) -> float:
        return -torch.inf if self.leaders is None else float(self.leaders[1][0])

    def standing(self, rows: Int[Tensor, "N D"]) -> Float[Tensor, "N 2"]:
        """(minus the violations, the value) of each row: larger is better.

        A row that is not allowed is not scored: its value is -inf.
        """
        standing = torch.zeros(len(rows), 2, dtype=torch.float64)
        if self.violations is not None:
            standing[:, 0] = -self.violations(rows).double()
        allowed = standing[:, 0] == 0
        standing[:, 1] = -torch.inf
        standing[allowed, 1] = self._values(rows[allowed])
        return standing

    def _values(self, rows: Int[Tensor, "N D"]) -> Float[Tensor, "N"]:
        if len(rows) == 0:
            return torch.zeros(0, dtype=torch.float64)
        entries = self.describe(rows[:1])[0].numel()
        parts = rows.split(max(1, CHUNK_ELEMENTS // entries))
        return torch.cat([self._values_of_part(part) for part in parts])

    def _values_of_part(self, rows: Int[Tensor, "N D"]) -> Float[Tensor, "N"]:
        counts, first, last = self.describe(rows)
        keys = _keys(counts, last)
        fresh = {key: i for i, key in enumerate(keys) if key not in self.values}
        if fresh:
            index = torch.tensor(list(fresh.values()))
            scores = self.scorer(counts[index], first[index], last[index]).value
            self.values.update(zip(fresh, scores.tolist(), strict=True))
            self._lead(rows[index], scores)
        return torch.tensor([self.values[key] for key in keys], dtype=torch.float64)

    def _lead(self, rows: Int[Tensor, "N D"], values: Float[Tensor, "N"]) -> None:
        if self.leaders is not None:
            rows = torch.cat([self.leaders[0], rows])
            values = torch.cat([self.leaders[1], values])
        best = values.argsort(descending=True, stable=True)[: self.keep]
        self.leaders = rows[best], values[best]

    def top(self, width: int) -> tuple[Tensor, Tensor]:
        """The best rows that are possible, and their values."""
        if self.leaders is None:
            return torch.zeros(0, width, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        rows, values = self.leaders
        possible = values > -torch.inf
        return rows[possible], values[possible]


def _keys(counts: Int[Tensor, "N C V"], last: Int[Tensor, "N"]) -> list[int]:
    table = torch.cat([counts.flatten(1), last[:, None]], -1)
    ends = np.iinfo(np.int64)
    stream = numpy_stream(0, "class-keys")
    factors = stream.integers(ends.min, ends.max, size=table.shape[1], endpoint=True)
    return (table * torch.from_numpy(factors)).sum(-1).tolist()
