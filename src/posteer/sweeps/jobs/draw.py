"""A draw as a job: ranges of rollouts are kept beside the bank until it is whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posteer.banks.parts import chunks_in, folder_of
from posteer.banks.plans import DrawPlan
from posteer.banks.sharding import draw_together
from posteer.core.claiming import Claiming
from posteer.core.files import remove_folder
from posteer.core.leases import Terms
from posteer.models import Metered, open_model
from posteer.sweeps.jobs.protocol import Hand
from posteer.sweeps.runner import Report


@dataclass(frozen=True)
class DrawJob:
    """The bank of a plan, in ranges of `size` rollouts; the model as it is opened by name."""

    model: str
    plan: DrawPlan
    out: Path
    size: int
    alphabet: str | None = None
    text: str = ""

    @property
    def home(self) -> Path:
        return self.out.with_name(f"{self.out.name}.work")

    def work(self, hand: Hand) -> None:
        model = open_model(self.model, hand.device, alphabet=self.alphabet, text=self.text)
        claiming = self._claiming(hand.terms)
        begin = -(-self.plan.n_samples // self.size) * hand.worker // hand.of
        given = (self.plan, self.out, claiming, self.size, begin, hand.report.within)
        with claiming.alive():
            draw_together(Metered(model), *given)

    def _claiming(self, terms: Terms | None) -> Claiming:
        self.home.mkdir(parents=True, exist_ok=True)
        return Claiming(self.home / "claims", self.home / "leases", terms)

    def watch(self, report: Report) -> Callable[[], bool]:
        def look() -> bool:
            done = self.out.exists()
            drawn = sum(last - first for first, last in chunks_in(folder_of(self.out)))
            if report.within is not None:
                total = self.plan.n_samples
                report.within("rollouts", total if done else min(drawn, total), total)
            return done

        return look

    def tidy(self) -> None:
        """Remove what only those needed who were at work."""
        remove_folder(self.home / "leases", lambda _name: False)
        remove_folder(self.home, {"claims"}.__contains__)

    def to_json(self) -> dict[str, Any]:
        facts = {"model": self.model, "size": self.size, "alphabet": self.alphabet}
        plan, out = asdict(self.plan), str(self.out.absolute())
        return {"job": "draw", **facts, "text": self.text, "plan": plan, "out": out}


def job_of(facts: dict[str, Any]) -> DrawJob:
    """From JSON."""
    plan: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in facts["plan"].items()
    }
    given = {key: facts[key] for key in ("model", "size", "alphabet", "text")}
    return DrawJob(plan=DrawPlan(**plan), out=Path(facts["out"]), **given)
