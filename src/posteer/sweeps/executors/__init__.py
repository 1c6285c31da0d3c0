"""Where work runs, by name.

A job's files own what is done: which runs there are, who claims them, what is whole. An executor
only decides in which processes, on which machines, they are worked on; any number of them may be at
one job at once, be killed at any moment, and go on with what another began. A package offers its
own under the entry-point group `posteer.executors`; a process adds its own:

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from posteer.sweeps.configuration import config_from
>>> from posteer.sweeps.execution import run_sweep
>>> def loudly(work):
...     print(f"{work.workers} on {work.device} for {work.job.config.name}")
...     run_here(work)
>>> EXECUTORS.add("loudly", loudly)
>>> tiny = {"models": "exact:urn", "utilities": "dyck", "methods": "coordinate", "lengths": [3]}
>>> with TemporaryDirectory() as folder:
...     run_sweep(config_from(tiny, "here"), Path(folder), device="cpu", executor="loudly").statuses
1 on cpu for sweep
{'done': 10}
>>> EXECUTORS.remove("loudly")
"""

from __future__ import annotations

from dataclasses import dataclass

from posteer.core.device import pick_device
from posteer.core.leases import Terms
from posteer.core.registry import Registry
from posteer.core.spec import Spec, parse_spec
from posteer.sweeps.executors.protocol import Executor, Work, run_here
from posteer.sweeps.jobs import Job
from posteer.sweeps.runner import Report

__all__ = ["EXECUTORS", "Executor", "Prepared", "Work", "prepared", "run_here"]

EXECUTORS: Registry[Executor] = Registry(
    "executor",
    "executors",
    {
        "local": "posteer.sweeps.executors.local:run",
        "shared": "posteer.sweeps.executors.local:run_shared",
        "slurm": "posteer.sweeps.executors.on_slurm:run",
        "ray": "posteer.sweeps.executors.on_ray:run",
    },
)


@dataclass(frozen=True)
class Prepared:
    """An executor that can be used, and the terms of its workers' leases."""

    execute: Executor
    spec: Spec
    terms: Terms | None

    def place(self, device: str) -> str:
        """The device that was asked for, as its workers have it."""
        place = getattr(self.execute, "place", None)
        return pick_device(device) if place is None else str(place(self.spec, device))

    @property
    def is_elsewhere(self) -> bool:
        """Whether each worker has a device of its own."""
        return hasattr(self.execute, "place")

    def __call__(self, job: Job, device: str, workers: int, report: Report) -> None:
        self.execute(Work(job, device, workers, report, self.terms, self.spec))


def prepared(text: str) -> Prepared:
    """An executor by name, as in `shared(lease=30)`; what cannot be used is refused here."""
    spec = parse_spec(text)
    execute = EXECUTORS[spec.name]
    prepare = getattr(execute, "prepare", None)
    return Prepared(execute, spec, None if prepare is None else prepare(spec))
