"""How the work of a sweep is split over workers, and how long it takes so."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from posteer.sweeps.forecast import Forecast

BATCHES_A_WORKER = 2
"""More would keep workers busier, and the folder too (`benchmarks/stragglers.py`)."""
GOLDEN = 0.6180339887498949
"""Whose multiples lie evenly between 0 and 1."""


def batch_for(runs: int, workers: int, usual: int) -> int:
    """Runs of a batch where nobody says how many: the usual number, fewer if there were too few
    batches to go round."""
    if workers == 1:
        return usual
    return max(1, min(usual, -(-runs // (BATCHES_A_WORKER * workers))))


def path_of(batches: int, worker: int, of: int) -> tuple[int, int]:
    """Where a worker begins among so many batches, and in which strides it goes through all of
    them: workers with strides of their own seldom want the same batch twice."""
    begin = batches * worker // of
    if of == 1:
        return begin, 1
    stride = max(1, int(batches * ((worker + 1) * GOLDEN % 1)))
    while math.gcd(stride, batches) != 1:
        stride += 1
    return begin, stride


@dataclass(frozen=True)
class Split:
    """Batches over workers: `seconds` of the whole as foretold, `longest` of one batch, None where
    some group says nothing; the most bytes that one worker holds."""

    executor: str
    workers: int
    batches: int
    runs_a_batch: int
    seconds: float | None
    longest: float | None
    bytes_a_worker: float

    @property
    def busy(self) -> int:
        """Workers that have anything to do."""
        return min(self.workers, self.batches)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def split_of(
    found: Iterable[Forecast], size: int, workers: int, executor: str, devices: int
) -> Split:
    """Each batch to the worker that is free first; workers of one device take turns on it."""
    groups = list(found)
    tasks: list[float | None] = []
    for group in groups:
        for at in range(0, group.runs, size):
            n = min(size, group.runs - at)
            one = group.seconds
            tasks.append(None if one is None or one != one else one * n / group.runs)
    known = [seconds for seconds in tasks if seconds is not None]
    told = len(known) == len(tasks)
    return Split(
        executor,
        workers,
        len(tasks),
        size,
        _scheduled(known, devices) if told else None,
        max(known, default=0.0) if told else None,
        max((group.bytes_in_memory for group in groups), default=0.0),
    )


def _scheduled(tasks: list[float], devices: int) -> float:
    """In no particular order, as their hashes put them: longest last would be unfair to them."""
    free = [0.0] * min(devices, max(len(tasks), 1))
    mixed = sorted(range(len(tasks)), key=lambda at: (at * 2_654_435_761) % 2**32)
    for at in mixed:
        heapq.heappush(free, heapq.heappop(free) + tasks[at])
    return max(free)
