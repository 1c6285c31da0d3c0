"""A bank drawn wherever an executor has its workers, equal to the bit to one drawn here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posteer.banks.drawn import LatentBank
from posteer.banks.plans import DrawPlan
from posteer.banks.sharding import shard_size
from posteer.banks.sizing import draw, is_sized, most_of
from posteer.core import Progress, require
from posteer.core.spec import within
from posteer.models import Metered, Model
from posteer.sweeps.executors import prepared
from posteer.sweeps.jobs.draw import DrawJob
from posteer.sweeps.runner import MOST_WORKERS, Report


@dataclass(frozen=True)
class DrawnBy:
    """What `sample` takes as `drawn_by`: workers of an executor, who open the model by its name."""

    executor: str
    workers: int
    model: str
    device: str = "auto"
    alphabet: str | None = None
    text: str = ""
    progress: Progress | None = None

    def __post_init__(self) -> None:
        within(self.workers, "workers", 1, MOST_WORKERS)

    def __call__(
        self, model: Model, plan: DrawPlan, out: Path | None, chunk: int | None
    ) -> LatentBank:
        execute = prepared(self.executor)
        require(out is not None, "workers share a draw by its file: expected `out`")
        assert out is not None
        sized = is_sized(model, plan)
        require(not sized, "workers share a draw of known size: expected `rollouts` and `length`")
        whole = most_of(model, plan)
        whole.check(model)
        size = chunk or shard_size(whole, self.workers)
        job = DrawJob(self.model, whole, out, size, self.alphabet, self.text)
        report = Report(within=self.progress)
        if not out.exists():
            execute(job, execute.place(self.device), self.workers, report)
        bank = draw(Metered(model), whole, out, progress=self.progress)
        job.tidy()
        return bank
