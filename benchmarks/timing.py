"""Median time of a call, after one to warm up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def milliseconds(call: Callable[[], object], repeats: int = 9) -> float:
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)
