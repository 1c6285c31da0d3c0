"""A sweep from its configuration to a finished store, by whichever executor.

    python -m posteer.sweeps.execution --preset paper --out runs/paper --device cuda

is `posteer sweep` without its screen, for machines that have torch and numpy alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from posteer.core.device import undisturbed
from posteer.core.errors import InputError, in_options
from posteer.core.spec import within
from posteer.sweeps.configuration import SweepConfig, read_config
from posteer.sweeps.executors import prepared
from posteer.sweeps.forecast import require_possible
from posteer.sweeps.jobs.sweep import SweepJob
from posteer.sweeps.mending import set_damaged_aside, set_outdated_aside
from posteer.sweeps.presets import preset
from posteer.sweeps.records import SHOWN, DamagedError, Record
from posteer.sweeps.runner import MOST_WORKERS, Report, size_of_batches
from posteer.sweeps.runs import Expansion, expand, name_of
from posteer.sweeps.splitting import batch_for
from posteer.sweeps.store import Contents, RunStore


@dataclass(frozen=True)
class Outcome:
    """How a sweep stands: runs by status, and which of them failed and why."""

    total: int
    statuses: dict[str, int]
    errors: dict[str, list[str]]

    @property
    def finished(self) -> bool:
        return sum(self.statuses.values()) == self.total

    def to_json(self) -> dict[str, Any]:
        counts = {name: self.statuses.get(name, 0) for name in ("done", "diverged", "failed")}
        left = self.total - sum(self.statuses.values())
        return {"runs": self.total, **counts, "left": left, "errors": self.errors}


@undisturbed()
def run_sweep(
    config: SweepConfig,
    out: Path,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    workers: int = 1,
    executor: str = "local",
    extend: bool = False,
    retry_failed: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Run what the store in `out` does not hold yet, and say how the whole sweep stands.

    `executor` decides where (`sweeps.executors`). `retry_failed` runs again what failed. A store
    keeps the size of its batches.
    """
    within(workers, "workers", 1, MOST_WORKERS)
    execute, report = prepared(executor), report or Report()
    device = execute.place(device)
    size = size_of_batches(batch_size, device)
    expansion = expand(config)
    if batch_size is None:
        size = batch_for(len(expansion.runs), workers, size)
    held = RunStore(out).names()
    require_possible(run for run in expansion.runs if run.name not in held)
    store = RunStore.create(
        out,
        config,
        size,
        extend=extend,
        any_size=batch_size is None,
        warn=report.warn,
        terms=execute.terms,
    )
    with store.claiming.alive(), store.claim("looking") as first:
        for text in store.recover():
            report.warn(text)
        if first:  # all who come to a large store at once would read all of it
            for text in [*set_damaged_aside(store), *set_outdated_aside(store, expansion.runs)]:
                report.warn(text)
        if retry_failed:
            failed = [one for one in records_of(store, expansion) if one["status"] == "failed"]
            for record in failed:
                report.warn(f"again: {_label(record)} ({record['error']})")
            store.forget(name_of(record["configuration"]) for record in failed)
    execute(SweepJob(out, config), device, workers, report)
    return outcome(store, expansion)


def outcome(store: RunStore, expansion: Expansion) -> Outcome:
    """How a sweep stands whose runs are known."""
    return _counted(records_of(store, expansion), len(expansion.runs))


def in_short(record: Record) -> Record:
    """What outcomes are counted and screens are filled of: a million records are held so."""
    found = record["result"]
    shown = None if found is None else {name: found[name] for name in SHOWN if name != "prompt"}
    kept = {key: record[key] for key in ("configuration", "status", "error", "provenance")}
    return {**kept, "result": shown}


def standing(there: Contents) -> Outcome:
    """How a sweep stands, from its store alone: nothing that it names is opened or run."""
    return _counted(there.latest(), there.total)


def _counted(records: Iterable[Record], total: int) -> Outcome:
    statuses, errors = Counter[str](), dict[str, list[str]]()
    for record in records:
        statuses[record["status"]] += 1
        if record["status"] == "failed":
            errors.setdefault(record["error"], []).append(_label(record))
    return Outcome(total, dict(statuses), errors)


def records_of(store: RunStore, expansion: Expansion) -> Iterator[Record]:
    """What is there of a sweep, in short, one at a time."""
    scanned = store.scan(run.name for run in expansion.runs)
    return (in_short(one) for _, one in scanned if not isinstance(one, DamagedError))


def _label(record: Record) -> str:
    run = record["configuration"]
    return f"{run['model']} {run['utility']} m={run['length']} {run['method']} seed {run['seed']}"


class _Options(argparse.ArgumentParser):
    """Options whose refusal is one line."""

    def error(self, message: str) -> NoReturn:
        _refuse(message)


def _refuse(message: str) -> NoReturn:
    print(f"posteer: {' '.join(in_options(message).split())}", file=sys.stderr)
    sys.exit(2)


def main(arguments: list[str] | None = None) -> None:
    """The command line of this module."""
    parser = _Options(description=__doc__)
    parser.add_argument("--preset")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--executor", default="local")
    given = parser.parse_args(arguments)
    say, done = partial(print, file=sys.stderr, flush=True), 0

    def count(records: list[Record]) -> None:
        nonlocal done
        done += len(records)
        say(f"{time.strftime('%H:%M:%S')} {done} runs")

    try:
        config = read_config(given.config) if given.config else preset(given.preset or "paper")
        ended = run_sweep(
            config,
            given.out,
            device=given.device,
            batch_size=given.batch,
            workers=given.workers,
            executor=given.executor,
            report=Report(finished=count, warn=say),
        )
    except (InputError, OSError) as error:
        _refuse(str(error))
    print(ended.to_json())


if __name__ == "__main__":
    main()
