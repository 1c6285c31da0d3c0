"""Median or least time of a call, after one to warm up."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable


def milliseconds(call: Callable[[], object], repeats: int = 9) -> float:
    return statistics.median(_times(call, repeats))


def least_milliseconds(
    call: Callable[[], object], repeats: int = 9, clock: Callable[[], float] = time.perf_counter
) -> float:
    return min(_times(call, repeats, clock))


def processor() -> float:
    """Seconds of the processor, of this process and of those it waited for."""
    own = os.times()
    return time.process_time() + own.children_user + own.children_system


def _times(
    call: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    call()
    times = []
    for _ in range(repeats):
        started = clock()
        call()
        times.append(1e3 * (clock() - started))
    return times
