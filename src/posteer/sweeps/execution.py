"""A sweep from its configuration to a finished store: in this process, or in several.

    python -m posteer.sweeps.execution --preset paper --out runs/paper --device cuda

is `posteer sweep` without its screen, for machines that have torch and numpy alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posteer.core.device import pick_device
from posteer.core.errors import InputError, require
from posteer.sweeps.configuration import SweepConfig, read_config
from posteer.sweeps.presets import preset
from posteer.sweeps.runner import BATCH_SIZES, Report, Runner
from posteer.sweeps.runs import Expansion, batches, expand, name_of
from posteer.sweeps.store import Record, RunStore

WATCH_SECONDS = 0.5


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


def run_sweep(
    config: SweepConfig,
    out: Path,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    workers: int = 1,
    extend: bool = False,
    retry_failed: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Run what the store in `out` does not hold yet, and say how the whole sweep stands.

    `retry_failed` runs again what failed. A store keeps the size of its batches.
    """
    require(workers >= 1, f"{workers} workers: expected at least 1")
    require(batch_size is None or batch_size >= 1, f"batches of {batch_size}: expected at least 1")
    device, report = pick_device(device), report or Report()
    expansion = expand(config)
    size = batch_size or BATCH_SIZES[device.partition(":")[0]]
    store = RunStore.create(out, config, size, extend=extend, any_size=batch_size is None)
    for text in [*store.recover(), *store.set_damaged_aside()]:
        report.warn(text)
    if retry_failed:
        _forget_failed(store, expansion, report)
    if workers == 1:
        work = batches(expansion.runs, store.batch_size)
        Runner(store, work, expansion.bank_files, device, report).run()
    else:
        _in_processes(store, config, expansion, device, workers, report)
    return outcome(store, expansion)


def outcome(store: RunStore, expansion: Expansion) -> Outcome:
    """How a sweep stands, from its store alone."""
    records, _ = store.records({run.name for run in expansion.runs} & store.names())
    statuses = Counter(record["status"] for record in records)
    errors: dict[str, list[str]] = {}
    for record in records:
        if record["status"] == "failed":
            errors.setdefault(record["error"], []).append(_label(record))
    return Outcome(len(expansion.runs), dict(statuses), errors)


def _forget_failed(store: RunStore, expansion: Expansion, report: Report) -> None:
    """Runs of this sweep that failed are to be run again."""
    names = {run.name for run in expansion.runs} & store.names()
    for record in store.records(names)[0]:
        if record["status"] == "failed":
            report.warn(f"again: {_label(record)} ({record['error']})")
            store.forget(name_of(record["configuration"]))


def _label(record: Record) -> str:
    run = record["configuration"]
    return f"{run['model']} {run['utility']} m={run['length']} {run['method']} seed {run['seed']}"


def _in_processes(
    store: RunStore,
    config: SweepConfig,
    expansion: Expansion,
    device: str,
    workers: int,
    report: Report,
) -> None:
    """Workers are runners on the same store; this process watches it fill."""
    context = multiprocessing.get_context("spawn")
    complaints = context.SimpleQueue()
    threads = max(1, (os.cpu_count() or 1) // workers)
    given = (store.folder, config, device, threads, os.getpid(), complaints)
    processes = [context.Process(target=_work, args=given, daemon=True) for _ in range(workers)]
    wanted = {run.name for run in expansion.runs}
    seen = store.names()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers inherit it: Ctrl-C is ours
    for process in processes:
        process.start()
    signal.signal(signal.SIGINT, before)
    try:
        while any(process.is_alive() for process in processes):
            time.sleep(WATCH_SECONDS)
            seen = _tell_news(store, wanted, seen, report)
            if not complaints.empty():
                raise InputError(complaints.get())
        _tell_news(store, wanted, seen, report)
        if not complaints.empty():
            raise InputError(complaints.get())
        require(
            wanted <= store.names(),
            "the workers were killed from outside (out of memory?): the same command goes on, "
            "with fewer --workers",
        )
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _tell_news(store: RunStore, wanted: set[str], seen: set[str], report: Report) -> set[str]:
    there = store.names()
    records, _ = store.records((there - seen) & wanted)
    if records:
        report.finished(records)
    return there


def _work(
    folder: Path,
    config: SweepConfig,
    device: str,
    threads: int,
    parent: int,
    complaints: Any,
) -> None:
    """A worker process. It ends with its parent, and tells it what went wrong."""
    torch.set_num_threads(threads)

    def still_wanted(*_progress: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    try:
        expansion = expand(config)
        report = Report(finished=still_wanted, within=still_wanted, warn=_to_stderr)
        store = RunStore(folder)
        work = batches(expansion.runs, store.batch_size)
        Runner(store, work, expansion.bank_files, device, report).run()
    except (InputError, OSError) as error:
        complaints.put(str(error))


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args(arguments)
    done = 0

    def count(records: list[Record]) -> None:
        nonlocal done
        done += len(records)
        print(f"{time.strftime('%H:%M:%S')} {done} runs", file=sys.stderr, flush=True)

    try:
        config = read_config(given.config) if given.config else preset(given.preset or "paper")
        ended = run_sweep(
            config,
            given.out,
            device=given.device,
            batch_size=given.batch,
            workers=given.workers,
            report=Report(finished=count, warn=_to_stderr),
        )
    except (InputError, OSError) as error:
        sys.exit(f"posteer: {error}")
    print(ended.to_json())


if __name__ == "__main__":
    main()
