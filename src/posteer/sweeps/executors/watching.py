"""How an executor waits: it looks at the job's files while its workers are at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from posteer.core.errors import InputError, require

WATCH_SECONDS = 0.5
SHARE = 0.1
"""Of the time, at most, that is spent looking."""


def attend(
    look: Callable[[], bool],
    at_work: Callable[[], bool],
    complaints: Callable[[], list[str]] = list,
    logs: Path | None = None,
) -> None:
    """Look at the job's files until no worker is left; what workers complain of is raised.

    `look` is the job's `watch`, begun before the workers were: what was there by then is no news.
    """
    pause, busy, done = WATCH_SECONDS, True, False
    while busy:
        time.sleep(pause)
        busy = at_work()  # before the news: none is lost
        began = time.perf_counter()
        done = look()
        pause = max(pause, (time.perf_counter() - began) / SHARE)
        for text in complaints():
            raise InputError(text)
    require(
        done,
        "the workers were killed from outside (out of memory?): the same command goes on, "
        "with fewer `workers`" + ("" if logs is None else f"; {logs} has what they wrote"),
    )
