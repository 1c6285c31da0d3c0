"""What people see in a terminal while work goes on: progress bars, a training that is watched."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from rich.text import Text

from posteer.core.device import pick_device
from posteer.core.progress import Progress as Report
from posteer.training.loop import Progress as TrainingProgress
from posteer.training.plan import TrainingPlan
from posteer.training.ranks import is_first, joined, open_trainer

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


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second one interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt("the same command goes on from its last checkpoint")
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch_training(
    plan: TrainingPlan,
    out: Path,
    device: str,
    max_minutes: float,
    checkpoints: tuple[int, float],
    quiet: bool,
) -> dict[str, Any]:
    """Train with a live bar on standard error; returns how it ended. Checkpoints come after so many
    steps or seconds."""
    device = pick_device(device)
    screen = Console(stderr=True, quiet=quiet or not is_first())
    bar = Progress(
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        console=screen,
    )
    with joined(device) as device, stop_on_signals() as should_stop:
        trainer = open_trainer(
            plan,
            out,
            device=device,
            compiled=device != "cpu",
            checkpoint_every=checkpoints[0],
            checkpoint_seconds=checkpoints[1],
            warn=lambda text: screen.print(Text(text, style="yellow")),
        )
        task = bar.add_task("starting", total=plan.steps, completed=trainer.step)
        told = [-math.inf]

        def report(now: TrainingProgress) -> None:
            excess = "" if now.excess is None else f" · excess {now.excess.overall:.1e}"
            text = f"loss {now.loss:.4f}{excess} · {now.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=now.step, description=text)
            if not screen.is_terminal and time.monotonic() - told[-1] >= SECONDS_BETWEEN_LINES:
                told.append(time.monotonic())
                screen.print(f"{now.step}/{plan.steps} steps: {text}", highlight=False)

        trainer.report = report
        with bar:
            outcome = trainer.run(max_minutes=max_minutes, should_stop=should_stop)
    endings = {
        "finished": f"finished; the model is in {out / 'model'}",
        "stopped": "stopped; the same command goes on from here",
        "diverged": "the loss is not a number or exploded; the last good checkpoint is kept",
    }
    screen.print(f"step {outcome.step}: {endings[outcome.status]}")
    last = trainer.records[-1] if trainer.records else None
    return {"status": outcome.status, "step": outcome.step, "excess_risk": last}
