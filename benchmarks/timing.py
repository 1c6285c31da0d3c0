"""Median or least time of a call, after one to warm up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def milliseconds(call: Callable[[], object], repeats: int = 9) -> float:
    return statistics.median(_times(call, repeats))


def least_milliseconds(call: Callable[[], object], repeats: int = 9) -> float:
    return min(_times(call, repeats))


def _times(call: Callable[[], object], repeats: int) -> list[float]:
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return times
