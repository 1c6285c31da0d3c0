"""Where the time goes: `with phase("ascend"):` adds to whoever is listening with `timed()`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listening: ContextVar[dict[str, float] | None] = ContextVar("phases", default=None)


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Seconds by phase of all that runs inside; what an inner listener hears, an outer does not."""
    seconds: dict[str, float] = {}
    token = _listening.set(seconds)
    try:
        yield seconds
    finally:
        _listening.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Time what runs inside, under this name."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds = _listening.get()
        if seconds is not None:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started


Progress = Callable[[str, int, int], None]
"""Called as work proceeds, with (what is being done, steps done, steps at most)."""
