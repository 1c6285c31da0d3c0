"""What lasts as long as one call from outside: a command, or a function of the library's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_KEPT: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)


@contextmanager
def one_call() -> Iterator[None]:
    """What is kept inside is forgotten at the end of the outermost call."""
    if _KEPT.get() is not None:
        yield
        return
    before = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(before)


def kept_in_call() -> dict[Any, Any]:
    """What was kept so far; outside of all calls nothing is."""
    kept = _KEPT.get()
    return {} if kept is None else kept
