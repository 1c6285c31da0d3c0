"""What a sweep will take, before anything starts: time, memory, disk; each method says its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from posteer.core import InputError, Progress
from posteer.core.device import undisturbed
from posteer.methods.needs import require_needs
from posteer.methods.protocol import Problem, Work, pose
from posteer.methods.registry import open_method
from posteer.models import Model, open_model
from posteer.models.protocol import Can
from posteer.sweeps.runs import RunConfig

LOADED = 320e6
"""Bytes of a process before it has done anything: torch, a model, its banks."""
PASSES = {"cpu": 1e9, "cuda": 8e9}
RECORD_BYTES, STEP_BYTES = 2000, 5.5


@dataclass(frozen=True)
class Forecast:
    """Of one group of runs; seconds are None for a method that cannot say, or cannot run there."""

    model: str
    method: str
    length: int
    runs: int
    seconds: float | None
    bytes_in_memory: float
    bytes_on_disk: float

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@undisturbed()
def forecast(
    runs: Iterable[RunConfig], batch_size: int, device: str, progress: Progress | None = None
) -> list[Forecast]:
    """One forecast per group of runs that can share a batch."""
    groups: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], RunConfig] = {}
    for run in runs:
        group = run.group
        groups[group] += 1
        first.setdefault(group, run)
    models: dict[str, Model] = {}
    found = []
    for done, (group, count) in enumerate(groups.items()):
        run = first[group]
        if run.model not in models:
            models[run.model] = open_model(run.model, device)
        model = models[run.model]
        work = _work(model, run, min(count, batch_size), device)
        stays = Can.EXACT in model.can and not open_method(run.method).needs.device
        place = "cpu" if stays else device.partition(":")[0]
        found.append(
            Forecast(
                run.model,
                run.method,
                run.length,
                count,
                None if work.seconds is None else count * work.seconds,
                LOADED + PASSES[place] + work.bytes_in_memory,
                count * (RECORD_BYTES + work.steps * STEP_BYTES),
            )
        )
        if progress is not None:
            progress("timing a little of each group", done + 1, len(groups))
    return found


def require_possible(runs: Iterable[RunConfig]) -> None:
    """Refuse a sweep some of whose runs can never succeed, naming one of them; nothing is run."""
    models: dict[str, Model] = {}
    cells = {(run.group, run.utility): run for run in runs}
    for run in cells.values():
        if run.model not in models:
            models[run.model] = open_model(run.model, "cpu")
        _posed(models[run.model], run, "cpu")


def _posed(model: Model, run: RunConfig, device: str) -> Problem:
    try:
        problem = pose([run.request(model, None, device)])[0]
        require_needs(open_method(run.method).needs, problem, run.method)
    except InputError as error:
        raise InputError(
            f"{run.model}, {run.utility}, length {run.length}, horizon {run.horizon}: {error}"
        ) from error
    return problem


def _work(model: Model, run: RunConfig, together: int, device: str) -> Work:
    problem = _posed(model, run, device)
    try:
        return open_method(run.method).forecast(problem, together)
    except InputError:  # more than fits: it says so when it runs
        return Work(None)
