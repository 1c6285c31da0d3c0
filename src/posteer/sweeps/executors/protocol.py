"""What an executor is given, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from posteer.sweeps.configuration import SweepConfig
from posteer.sweeps.runner import Report


@dataclass(frozen=True)
class Work:
    """A sweep, the folder of a store that may hold some of it, and what was asked for.

    All but `report` can be sent to other processes. `workers` is how many were wanted, 1 or more.
    """

    folder: Path
    config: SweepConfig
    device: str
    workers: int
    report: Report


@runtime_checkable
class Executor(Protocol):
    """Has `run_here` called somewhere, until the store holds every run.

    `report.finished` is told the records that arrive meanwhile, each once. What cannot go on is
    raised, as an `InputError` with one line if a user can mend it; what is solved by then is kept.
    To return with runs left is no error: the outcome says how many.
    """

    def __call__(self, work: Work, /) -> None: ...
