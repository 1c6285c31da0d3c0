"""Many trainings from their plans to their models, by whichever executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posteer.core import Progress, require
from posteer.core.errors import InputError
from posteer.core.sealing import read_sealed
from posteer.core.spec import within
from posteer.sweeps.executors import prepared
from posteer.sweeps.jobs.train import TrainJob
from posteer.sweeps.runner import MOST_WORKERS, Report
from posteer.training.plan import TrainingPlan

OWN = {"ended", "claims", "leases", "jobs"}


def train_many(
    plans: dict[str, TrainingPlan],
    out: Path,
    *,
    device: str = "auto",
    workers: int = 1,
    executor: str = "local",
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Train what has not ended in `out`; how each training there ended, by name."""
    within(workers, "workers", 1, MOST_WORKERS)
    execute = prepared(executor)
    place = execute.place(device)
    require(not out.exists() or out.is_dir(), f"{out} is a file: expected a folder")
    for path in out.iterdir() if out.is_dir() else []:
        known = path.name in OWN or path.name in plans
        require(known, f"{out}: there is something here that is none of these trainings: {path}")
    out.mkdir(parents=True, exist_ok=True)
    execute(TrainJob(out, plans), place, workers, Report(within=progress))
    return {name: _ended(out / "ended" / f"{name}.json") for name in plans}


def _ended(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path) if path.exists() else {"status": "left", "step": None}
    except InputError:
        path.unlink()  # damaged: the training is there, and goes on from its last checkpoint
        return {"status": "left", "step": None}
