"""Steepest ascent from many starts at once, over any neighbourhood, with every class scored once.

Rows of whole numbers stand for what is searched: classes (moves.py) or prompts (token_moves.py).
Fewer violations of what is allowed come before any utility, so a start need not be allowed itself.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from posteer.latents.hard_prompts import HardScorer
from posteer.shapes import Float, Int

Description = tuple[Tensor, Tensor, Tensor]
"""Counts of the model's order, first and last contexts: what a scorer is asked about."""

CHUNK_ELEMENTS = 2**24
"""Counts (classes x edges) that are in memory at a time."""

LEAST_GAIN = 1e-12
"""Differences below it are rounding, and would let equal classes chase each other."""


@runtime_checkable
class Neighbourhood(Protocol):
    """Rows to rows: all neighbours, with the index of the row each belongs to."""

    def __call__(self, rows: Int[Tensor, "K D"]) -> tuple[Int[Tensor, "N D"], Int[Tensor, "N"]]: ...


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
    keep: int,
    max_rounds: int,
    report: Callable[[int, int], None] | None = None,
) -> Climb:
    """Move every start to its best neighbour until none is better.

    `history` holds, round by round, the best value so far, the classes newly scored and the time.
    """
    known = _Known(describe, scorer, violations)
    current = starts.unique(dim=0)
    standing = known.standing(current)
    started, history = time.perf_counter(), []
    for _ in range(max_rounds):
        if len(current) == 0:
            break
        before = len(known.values)
        rows, owners = neighbourhood(current)
        reached = known.standing(rows)
        moved = []
        for owner in range(len(current)):
            mine = (owners == owner).nonzero().flatten().tolist()
            if not mine:
                continue
            best = max(mine, key=reached.__getitem__)
            gain = reached[best][1] - standing[owner][1]
            if reached[best][0] > standing[owner][0] or (
                reached[best][0] == standing[owner][0] and gain > LEAST_GAIN
            ):
                moved.append(best)
        current = rows[moved].unique(dim=0)
        standing = known.standing(current)
        seconds = time.perf_counter() - started
        history.append((known.best, len(known.values) - before, seconds))
        if report is not None:
            report(len(history), max_rounds)
    rows, values = known.top(keep, starts.shape[1])
    return Climb(rows, values, len(current) == 0, len(known.values), history)


class _Known:
    """Values of all classes met, by what the scorer sees of them, with one row for each."""

    def __init__(
        self,
        describe: Callable[[Tensor], Description],
        scorer: HardScorer,
        violations: Callable[[Tensor], Tensor] | None,
    ) -> None:
        self.describe, self.scorer, self.violations = describe, scorer, violations
        self.values: dict[bytes, float] = {}
        self.row_of: dict[bytes, bytes] = {}
        self.best = -torch.inf

    def standing(self, rows: Int[Tensor, "N D"]) -> list[tuple[int, float]]:
        """(minus the violations, the value) of each row: larger is better.

        A row that is not allowed is not scored: its value is -inf.
        """
        broken = [0] * len(rows) if self.violations is None else self.violations(rows).tolist()
        allowed = torch.tensor([count == 0 for count in broken], dtype=torch.bool)
        values = iter(self._values(rows[allowed]))
        return [(-count, next(values) if count == 0 else -torch.inf) for count in broken]

    def _values(self, rows: Int[Tensor, "N D"]) -> list[float]:
        if len(rows) == 0:
            return []
        entries = self.describe(rows[:1])[0].numel()
        parts = rows.split(max(1, CHUNK_ELEMENTS // entries))
        return [value for part in parts for value in self._values_of_part(part)]

    def _values_of_part(self, rows: Int[Tensor, "N D"]) -> list[float]:
        counts, first, last = self.describe(rows)
        table = torch.cat([counts.flatten(1), last[:, None]], -1).numpy()
        keys = [hashlib.blake2b(entry.tobytes(), digest_size=16).digest() for entry in table]
        fresh = {key: i for i, key in enumerate(keys) if key not in self.values}
        if fresh:
            index = torch.tensor(list(fresh.values()))
            scores = self.scorer(counts[index], first[index], last[index]).value
            plain = rows.numpy()
            for (key, i), value in zip(fresh.items(), scores.tolist(), strict=True):
                self.values[key] = value
                self.row_of[key] = plain[i].tobytes()
            self.best = max(self.best, float(scores.max()))
        return [self.values[key] for key in keys]

    def top(self, keep: int, width: int) -> tuple[Tensor, Tensor]:
        possible = (key for key, value in self.values.items() if value > -torch.inf)
        best = heapq.nlargest(keep, possible, key=self.values.__getitem__)
        if not best:
            return torch.zeros(0, width, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
        values = torch.tensor([self.values[key] for key in best], dtype=torch.float64)
        rows = np.frombuffer(b"".join(self.row_of[key] for key in best), dtype=np.int64)
        return torch.from_numpy(rows.copy()).view(len(best), width), values
