"""Solving what a store does not hold yet, batch by batch.

Any number of processes may run this on one store, on one machine or many: each batch is claimed by
one of them, and what a killed process had claimed is free again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from posteer.api.eliciting import elicit_batch
from posteer.banks import DrawPlan, LatentBank, load_bank
from posteer.banks.plans import SIZES, plan_of
from posteer.banks.probes import behaviour
from posteer.banks.sharding import draw_together, shard_size
from posteer.banks.shipped import shipped_path
from posteer.banks.sizing import draw, is_sized, most_of
from posteer.core import InputError, Progress, integer, phase, timed
from posteer.core.device import undisturbed
from posteer.core.leases import Terms
from posteer.core.sealing import read_sealed, write_sealed
from posteer.core.spec import within
from posteer.core.userfiles import TOLD_TO_END
from posteer.methods.answers import StopReason
from posteer.methods.registry import open_method
from posteer.models import Metered, Model, open_model
from posteer.results import Elicitation
from posteer.sweeps.configuration import SweepConfig
from posteer.sweeps.histories import columns_of
from posteer.sweeps.provenance import Session, provenance
from posteer.sweeps.records import Record
from posteer.sweeps.runs import Batch, RunConfig, batches, expand, latents_to_draw, source_of
from posteer.sweeps.splitting import path_of
from posteer.sweeps.store import RunStore

MOST_WORKERS, MOST_IN_A_BATCH = 1024, 1_000_000
"""Processes of one command, and runs of one batch."""

Held = TypeVar("Held")

POLL_SECONDS, LONGEST_POLL = 0.2, 5.0
SHARING = 4
"""Workers that a bank of the store is cut for; a bank is the same however it is cut."""
BATCH_SIZES = {"cpu": 32, "cuda": 310}
"""Runs a batch: small enough that a kill costs little, large enough to fill a GPU."""


def size_of_batches(given: int | None, device: str) -> int:
    """What was asked for, or what suits the device."""
    if given is not None:
        return within(given, "batches of", 1, MOST_IN_A_BATCH)
    return BATCH_SIZES[device.partition(":")[0]]


@dataclass
class Report:
    """What a runner tells while it works; each is called if given."""

    finished: Callable[[list[Record]], None] = lambda _records: None
    within: Progress | None = None
    warn: Callable[[str], None] = lambda _text: None


@dataclass
class Runner:
    """One process's work on a store."""

    store: RunStore
    batches: list[Batch]
    bank_files: dict[str, Path]
    device: str
    report: Report = field(default_factory=Report)
    worker: int = 0
    rank: bool | None = True
    _models: dict[str, tuple[Model, str]] = field(default_factory=dict)
    _banks: dict[Path, LatentBank] = field(default_factory=dict)

    def run(self) -> None:
        """Until every run is in the store, whoever solves it."""
        session = Session(self.device, self.store.batch_size)
        path = self.store.sessions / f"{session.name}.json"
        self._recover()
        self.store.refresh()
        left, pause = list(self.batches), POLL_SECONDS
        with self.store.claiming.alive():
            while left:
                before = len(left)
                left = [batch for batch in left if not self._attend(batch, session, path)]
                pause = POLL_SECONDS if len(left) < before else min(1.5 * pause, LONGEST_POLL)
                if len(left) == before:  # the rest is in other hands: look again, they may die
                    time.sleep(pause)
                    self._recover()
                    self.store.refresh()

    def _recover(self) -> None:
        for text in self.store.recover():
            self.report.warn(text)

    def _attend(self, batch: Batch, session: Session, path: Path) -> bool:
        """Whether nothing is left to do for a batch."""
        if all(self.store.has(run.name) for run in batch.runs):
            return True
        with self.store.claim_batch(batch.key) as mine:
            if not mine:
                return False
            self.store.finish(batch.key)  # its last owner may have been killed while committing
            runs = [run for run in batch.runs if not self.store.has(run.name)]
            if not runs:
                return True
            with timed() as phases:
                records = self._solve(runs)
            started = time.perf_counter()
            if not self.store.commit(batch.key, records):
                return False  # we were away for longer than our lease: it is in other hands
            phases["store"] = time.perf_counter() - started
            for record in records:
                for what, seconds in record["seconds"].items():
                    phases[what] = phases.get(what, 0.0) + seconds
            session.add(len(records), phases)
            write_sealed(path, session.to_json())
        self.report.finished(records)
        return True

    def _solve(self, runs: list[RunConfig]) -> list[Record]:
        for utility in {run.utility: run for run in runs}.values():
            if source_of(utility.utility) != utility.utility_fingerprint:
                raise ChangedError(f"{utility.utility} has changed since: run the command again")
        try:
            with phase("open"):
                model, bank = self._open(runs[0])
        except (OSError, ChangedError):  # the store's disk or the user's files, not the run
            raise
        except Exception as error:
            if TOLD_TO_END.is_set():
                raise
            return [_record(run, self.device, error=_words(error)) for run in runs]
        return self._solve_on(model, bank, runs)

    def _solve_on(
        self, model: Model, bank: LatentBank | None, runs: list[RunConfig]
    ) -> list[Record]:
        """The runs' records. What fails is halved until the runs that do are alone."""
        requests = [run.request(model, bank, self.device, self.rank) for run in runs]
        try:
            found = elicit_batch(requests, self.report.within)
        except Exception as error:  # a user's function may raise anything
            if TOLD_TO_END.is_set():
                raise
            if len(runs) == 1:
                return [_record(runs[0], self.device, error=_words(error))]
            half = len(runs) // 2
            return [
                *self._solve_on(model, bank, runs[:half]),
                *self._solve_on(model, bank, runs[half:]),
            ]
        with phase("record"):
            return [_record(r, self.device, found=one) for r, one in zip(runs, found, strict=True)]

    def _open(self, run: RunConfig) -> tuple[Model, LatentBank | None]:
        if run.model not in self._models:
            opened = open_model(run.model, self.device)
            self._models[run.model] = (opened, behaviour(opened))
        model, known_by = self._models[run.model]
        if known_by != run.model_fingerprint:
            raise ChangedError(f"{run.model} has changed since: run the command again")
        return model, self._bank(run, model)

    def _bank(self, run: RunConfig, model: Model) -> LatentBank | None:
        """The bank of a run, drawn into the store if none is there; None: shipped, or no use for
        one."""
        plan = latents_to_draw(model, open_method(run.method).needs)
        if plan is None:
            return None
        if run.bank is not None:
            path = self.bank_files[run.bank]
            return None if path == shipped_path(model.fingerprint) else self._loaded(path)
        return self._drawn(run, model, plan)

    def _loaded(self, path: Path) -> LatentBank:
        """A bank's file, read once for all batches that follow each other on it."""
        if path not in self._banks:
            self._banks = {path: load_bank(path)}
        return self._banks[path]

    def _drawn(self, run: RunConfig, model: Model, plan: DrawPlan) -> LatentBank:
        """All workers that need it draw together. Sizes that were found out are kept beside the
        bank: they draw the same one again."""
        self.store.banks.mkdir(exist_ok=True)
        sized = is_sized(model, plan)
        kept = f"{run.model_fingerprint[:16]}-{_sizes_asked(plan, sized)}-{plan.seed}"
        path = self.store.banks / f"{kept}-{plan.unvisited}.safetensors"
        sizes = path.with_suffix(".json")
        with self.store.claim(path.name, wait=True):
            bank = self._kept(path, self._loaded)
            if bank is None and sized:
                found = self._kept(sizes, _sizes_in)
                if found is not None:
                    plan = replace(plan.of_sizes(found), free=())
                alone = self.store.claiming.terms is None
                within = self.report.within
                bank = draw(Metered(model), plan, path, progress=within, exclusive=alone)
            if bank is not None and sized and not sizes.exists():
                write_sealed(sizes, {size: getattr(plan_of(bank), size) for size in SIZES})
        if bank is None:
            whole = most_of(model, plan)
            size = shard_size(whole, SHARING)
            given = (self.store.claiming, size, self.worker, self.report.within)
            bank = draw_together(Metered(model), whole, path, *given)
        self._banks = {path: bank}
        return bank

    def _kept(self, path: Path, read: Callable[[Path], Held]) -> Held | None:
        """What a file of the store holds, if it is there; one that is damaged is set aside."""
        try:
            return read(path) if path.exists() else None
        except InputError:
            moved = self.store.keep_aside(path)
            self.report.warn(f"{path} is damaged: moved to {moved}, drawn again")
            return None


@undisturbed()
def solve_here(
    folder: Path,
    config: SweepConfig,
    device: str,
    report: Report | None = None,
    *,
    terms: Terms | None = None,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Solve, in this process and beside any others at work there, what a store lacks of a sweep.

    With `terms` by leases. A worker that is one of many goes its own way through the batches.
    """
    expansion, store = expand(config), RunStore(folder, terms)
    work = batches(expansion.runs, store.batch_size)
    if terms is not None and share == (0, 1):  # nobody knows how many there are
        share = (secrets.randbelow(MOST_WORKERS), MOST_WORKERS)
    begin, stride = path_of(len(work), *share)
    work = [work[(begin + at * stride) % len(work)] for at in range(len(work))]
    Runner(store, work, expansion.bank_files, device, report or Report(), share[0]).run()


def solve_one(
    store: RunStore,
    run: RunConfig,
    model: Model,
    files: dict[str, Path],
    device: str,
    report: Report,
) -> Record:
    """The record of a run by itself, on a model that is open; what fails is in it. Banks are drawn
    into the store, but the run is not kept there yet. It is ranked where that is cheap."""
    known = {run.model: (model, run.model_fingerprint)}
    return Runner(store, [], files, device, report, rank=None, _models=known)._solve([run])[0]


class ChangedError(InputError):
    """A file that was planned with is another by now."""


def _sizes_asked(plan: DrawPlan, sized: bool) -> str:
    """`5000x2000`, or `anyxany-120s` where sizes are found out in so many seconds."""
    free = plan.free if sized else ()
    sizes = "x".join("any" if size in free else str(getattr(plan, size)) for size in SIZES)
    return f"{sizes}-{plan.seconds:g}s" if sized else sizes


def _sizes_in(path: Path) -> dict[str, int]:
    facts = read_sealed(path)
    return {size: integer(facts.get(size), size) for size in SIZES}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _record(
    run: RunConfig, device: str, *, found: Elicitation | None = None, error: str | None = None
) -> Record:
    """What is kept of a run."""
    status = "failed" if found is None else "done"
    if found is not None and found.answer.stop_reason is StopReason.DIVERGED:
        status = "diverged"
    return {
        "configuration": asdict(run),
        "status": status,
        "error": error,
        "result": None if found is None else found.to_json(),
        "history": {} if found is None else columns_of(found),
        "seconds": {} if found is None else found.phases,
        "provenance": provenance(device),
    }
