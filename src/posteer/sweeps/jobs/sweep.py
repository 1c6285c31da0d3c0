"""A sweep as a job: the store owns what is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posteer.sweeps.configuration import SweepConfig, config_from
from posteer.sweeps.jobs.protocol import Hand
from posteer.sweeps.runner import Report, solve_here
from posteer.sweeps.runs import expand
from posteer.sweeps.store import RunStore


@dataclass(frozen=True)
class SweepJob:
    """What a store lacks of a sweep."""

    folder: Path
    config: SweepConfig

    @property
    def home(self) -> Path:
        return self.folder

    def work(self, hand: Hand) -> None:
        solve_here(
            self.folder,
            self.config,
            hand.device,
            hand.report,
            terms=hand.terms,
            share=(hand.worker, hand.of),
        )

    def watch(self, report: Report) -> Callable[[], bool]:
        store = RunStore(self.folder)
        wanted = {run.name for run in expand(self.config).runs}
        seen = store.names()

        def look() -> bool:
            nonlocal seen
            there = store.names()
            news, _ = store.records((there - seen) & wanted)
            seen = there
            if news:
                report.finished(news)
            return wanted <= there

        return look

    def to_json(self) -> dict[str, Any]:
        folder = str(self.folder.absolute())
        return {"job": "sweep", "folder": folder, "configuration": self.config.to_json()}


def job_of(facts: dict[str, Any]) -> SweepJob:
    """From JSON."""
    return SweepJob(Path(facts["folder"]), config_from(facts["configuration"], "the job"))
