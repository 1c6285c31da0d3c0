"""Time and peak memory of a call in a process of its own, and how figures grow.

Memory is the resident set (VmHWM of /proc/self/status, which sees what torch, numpy and libraries
allocate alike): its peak during a call less what stood just before it, when imports and set-up
were done, a small call of the same kind had loaded its code and freed memory had gone back to the
system. Torch's allocator on some machines keeps what is freed, so memory is measured in processes
where it is told not to (`RETURNING`), and time in others, where it does as it likes. Figures below
`RESOLUTION` are noise. What an allocator takes beyond the size of many small pieces counts too.

Time is that of the processor, which for one thread that waits for nothing is the time on the wall
of a machine with nothing else to do; the wall time of the machine as it was is kept beside it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

MIB = 2**20
RESOLUTION = 1 * MIB
RETURNING = {"MIMALLOC_PURGE_DELAY": "0"}
"""What makes torch's allocator give freed memory back at once; glibc's is trimmed by hand."""


def peak_extra_bytes(call: Callable[[], object]) -> int:
    """Bytes by which the resident set grew at most while `call` ran."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    call()
    return max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


@dataclass(frozen=True)
class Timing:
    """Median processor time and median wall time of a number of calls."""

    seconds: float
    wall_seconds: float
    repeats: int


def timed(call: Callable[[], object], budget: float, most: int = 15) -> Timing:
    """As many calls as the budget has room for, after one to warm up.

    A first call that takes the budget several times over is taken as it is.
    """
    first = _seconds(call)
    if first[0] > 3 * budget:
        return Timing(*first, 1)
    repeats = min(most, max(1, int(budget / max(first[0], 1e-9))))
    taken = [_seconds(call) for _ in range(repeats)]
    processor, wall = (statistics.median(column) for column in zip(*taken, strict=True))
    return Timing(processor, wall, repeats)


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    processor, wall = time.thread_time(), time.perf_counter()
    call()
    return time.thread_time() - processor, time.perf_counter() - wall


def growth(x: Sequence[float], y: Sequence[float], last: int = 3) -> float | None:
    """The exponent p of `y ~ x^p`: slope of log y in log x over the last points; None below two."""
    logs = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True) if b > 0][-last:]
    if len(logs) < 2:
        return None
    centre = [sum(column) / len(logs) for column in zip(*logs, strict=True)]
    square = sum((a - centre[0]) ** 2 for a, _ in logs)
    return sum((a - centre[0]) * (b - centre[1]) for a, b in logs) / square


class FreshProcesses:
    """Answers each question in a process forked from one that has only imported.

    The server is `python file --serve`, which calls `serve`; a question is any JSON object.
    """

    def __init__(self, file: str, environment: dict[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, file, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def send(self, question: dict[str, Any]) -> None:
        """Ask without waiting; answers are received in the order of the questions."""
        assert self._server.stdin is not None
        print(json.dumps(question), file=self._server.stdin, flush=True)

    def receive(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        return json.loads(self._server.stdout.readline())

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self.send(question)
        return self.receive()

    def __enter__(self) -> FreshProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.communicate()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]], seconds: int, size: int) -> None:
    """Answer questions from standard input until it ends, each within `seconds` of the
    processor and `size` bytes.

    What does not fit is answered by `{"left_out": why}`.
    """
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            allowed = _status("VmData") + size
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            print(json.dumps(_answered(answer, json.loads(line), size)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            over = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
            why = f"more than {seconds} s" if over else f"ended with status {status}"
            print(json.dumps({"left_out": why}), flush=True)


def _answered(
    answer: Callable[[dict[str, Any]], dict[str, Any]], question: dict[str, Any], size: int
) -> dict[str, Any]:
    try:
        return answer(question)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            return {"left_out": f"more than {size / 2**30:g} GiB"}
        raise
