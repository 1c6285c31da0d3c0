"""Sweeps, draws and trainings as work for any number of processes, on any machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.registry import Registry
from posteer.sweeps.jobs.protocol import Hand, Job

__all__ = ["JOBS", "Hand", "Job", "job_from"]

JOBS: Registry[Callable[[dict[str, Any]], Job]] = Registry(
    "job",
    "jobs",
    {
        "sweep": "posteer.sweeps.jobs.sweep:job_of",
        "draw": "posteer.sweeps.jobs.draw:job_of",
        "train": "posteer.sweeps.jobs.train:job_of",
    },
)


def job_from(facts: dict[str, Any]) -> Job:
    """The job that `to_json` told of."""
    return JOBS[facts["job"]](facts)
