"""A training that is watched in a terminal."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from posteer.core.device import pick_device
from posteer.training.loop import Progress as TrainingProgress
from posteer.training.plan import TrainingPlan
from posteer.training.ranks import is_first, joined, open_trainer
from posteer.views.terminal.panels import SECONDS_BETWEEN_LINES


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
