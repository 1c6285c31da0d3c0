"""What people see in a terminal while work goes on: progress bars."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from posteer.core.progress import Progress as Report

PATIENCE_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def delayed_progress() -> Iterator[Report]:
    """A progress bar on standard error once work has taken longer than a second, however long its
    first step takes; where that is no terminal, a line now and then, whether or not it reports."""
    screen = Console(stderr=True)
    started = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} at most"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,  # a log is for what ended, in one line
    )
    tasks: dict[str, TaskID] = {}
    shown, lock, over = threading.Event(), threading.Lock(), threading.Event()
    due = threading.Event()
    latest = "at work"

    def tell() -> None:
        while not over.wait(SECONDS_BETWEEN_LINES):
            screen.print(f"{latest}, {time.monotonic() - started:.0f} s")

    def show() -> None:
        due.set()
        with lock:
            if tasks and not shown.is_set():
                shown.set()
                bar.start()

    def report(what: str, done: int, at_most: int) -> None:
        nonlocal latest
        latest = f"{what}: {done:,} of at most {at_most:,}"
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=at_most)
        bar.update(tasks[what], completed=done, total=at_most)
        if due.is_set() or time.monotonic() - started >= PATIENCE_SECONDS:
            show()

    # what was reported early and then takes long is shown all the same
    late = threading.Timer(min(PATIENCE_SECONDS, threading.TIMEOUT_MAX), show)
    late.daemon = True
    late.start()
    if not screen.is_terminal:
        threading.Thread(target=tell, daemon=True).start()
    try:
        yield report
    finally:
        over.set()
        late.cancel()
        with lock:
            if bar.live.is_started:
                bar.stop()
            shown.set()


def rows_table() -> Table:
    """Two columns: what, and its figure."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    return rows
