"""Work that many processes do together, and how one of them goes about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from posteer.core.leases import Terms
from posteer.sweeps.runner import Report


@dataclass(frozen=True)
class Hand:
    """One worker: where it computes, whom it tells, and by which claims it works.

    Without `terms` by locks, with them by leases. It is number `worker` of so many, as far as it
    was told: where to begin, so that not all begin at the same place.
    """

    device: str
    report: Report = field(default_factory=Report)
    terms: Terms | None = None
    worker: int = 0
    of: int = 1


@runtime_checkable
class Job(Protocol):
    """Work whose files say what is done: any process may go on with what another began."""

    @property
    def home(self) -> Path:
        """The folder of its files; what executors keep goes there too."""

    def work(self, hand: Hand, /) -> None:
        """Do what is left, beside any others, until nothing is."""

    def watch(self, report: Report, /) -> Callable[[], bool]:
        """A look at the files: tells what is new since the last, or since this call, and whether
        all is done."""

    def to_json(self) -> dict[str, Any]:
        """What another process makes it of, by `job_from`."""
