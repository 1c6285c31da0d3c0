"""Many trainings as a job: each a folder of its own, in which whoever comes goes on.

NAME/               the folder of a training (`training.folder`)
ended/NAME.json     how it ended, sealed; a training is done if this is there
claims, leases/     where a process is at work
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from posteer.core.claiming import Claiming
from posteer.core.leases import POLL_SECONDS
from posteer.core.sealing import sealed
from posteer.sweeps.jobs.protocol import Hand
from posteer.sweeps.runner import Report
from posteer.training.folder import LostError
from posteer.training.loop import Trainer
from posteer.training.plan import TrainingPlan


@dataclass(frozen=True)
class TrainJob:
    """Plans by the names of their folders."""

    out: Path
    plans: dict[str, TrainingPlan]

    @property
    def home(self) -> Path:
        return self.out

    @property
    def _ended(self) -> Path:
        return self.out / "ended"

    def left(self) -> list[str]:
        """Trainings that have not ended."""
        return [name for name in self.plans if not (self._ended / f"{name}.json").exists()]

    def work(self, hand: Hand) -> None:
        self._ended.mkdir(parents=True, exist_ok=True)
        claiming = Claiming(self.out / "claims", self.out / "leases", hand.terms)
        with claiming.alive():
            while names := self.left():
                at = len(names) * hand.worker // hand.of
                turned = names[at:] + names[:at]
                if not any(self._train(name, hand, claiming) for name in turned):
                    time.sleep(POLL_SECONDS)  # the rest is in other hands: they may be killed

    def _train(self, name: str, hand: Hand, claiming: Claiming) -> bool:
        """Whether this training was ours, and has ended."""
        target = self._ended / f"{name}.json"
        with claiming.claim(name, target) as mine:
            if not mine or target.exists():
                return False
            trainer = Trainer(
                self.plans[name], self.out / name, device=hand.device, warn=hand.report.warn
            )
            trainer.folder.still_ours = partial(claiming.holds, name)
            if hand.report.within is not None:
                tell = partial(hand.report.within, name)
                trainer.report = lambda now: tell(now.step, now.steps)
            try:
                ended = trainer.run()
            except LostError:
                return False
            text = json.dumps(sealed({"status": ended.status, "step": ended.step}))
            return claiming.publish(name, target, text.encode())

    def watch(self, report: Report) -> Callable[[], bool]:
        def look() -> bool:
            left = len(self.left())
            if report.within is not None:
                report.within("trainings", len(self.plans) - left, len(self.plans))
            return left == 0

        return look

    def to_json(self) -> dict[str, Any]:
        plans = {name: plan.to_json() for name, plan in self.plans.items()}
        return {"job": "train", "out": str(self.out.absolute()), "plans": plans}


def job_of(facts: dict[str, Any]) -> TrainJob:
    """From JSON."""
    plans = {name: TrainingPlan.from_json(one) for name, one in facts["plans"].items()}
    return TrainJob(Path(facts["out"]), plans)
