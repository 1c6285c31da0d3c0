"""A store of a million runs: written, resumed, tabulated; time, memory, files.

    python benchmarks/million.py --runs 1000000 --folder DIR [--loose] [--document docs/SCALING.md]

Records are those of one real batch, with configurations and seals of their own: what is measured is
the store. Each phase is a process of its own; its memory is the peak of its resident set. `write`
commits every batch but one as a worker does, `resume` is the whole command that solves the last,
`tabulate` the rows of all runs and the paper's table of them, `parquet` the file of them. `--loose`
keeps a file per run, as sweeps of up to ten thousand do, whatever their number. The last line is a
row of the page's table, which `--document` puts in the place of the one that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from posteer.sweeps import store as stores
from posteer.sweeps.configuration import SweepConfig, config_from
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.results import consolidate, read_sweep
from posteer.sweeps.runner import Report, Runner
from posteer.sweeps.runs import batches, expand
from posteer.sweeps.store import RunStore

BATCH = 20
PHASES = ("write", "resume", "tabulate", "parquet")
UTILITIES = [f"frequency({tenth / 10})" for tenth in range(1, 6)]
LENGTHS = [2, 3]


def sweep_of(runs: int) -> SweepConfig:
    seeds = runs // (len(UTILITIES) * len(LENGTHS))
    grid = {"models": "exact:beta-bernoulli", "methods": "coordinate", "seeds": seeds}
    return config_from({**grid, "utilities": UTILITIES, "lengths": LENGTHS}, "benchmark", "many")


def write(folder: Path, config: SweepConfig) -> dict[str, Any]:
    """Every batch but the last, as a worker commits it."""
    work = batches(expand(config).runs, BATCH)
    store = RunStore.create(folder, config, BATCH)
    real: list[Any] = []
    Runner(store, work[:1], {}, "cpu", Report(finished=real.extend)).run()
    model = real[0]
    slowest, began = 0.0, time.perf_counter()
    for batch in work[1:-1]:
        records = [{**model, "configuration": _configuration(run)} for run in batch.runs]
        started = time.perf_counter()
        with store.claim_batch(batch.key):
            store.finish(batch.key)
            store.commit(batch.key, records)
        slowest = max(slowest, time.perf_counter() - started)
    spent = time.perf_counter() - began
    return {"ms_a_batch": 1e3 * spent / max(len(work) - 2, 1), "slowest_batch_s": slowest}


def _configuration(run: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(run).items() if key != "name"}


def resume(folder: Path, config: SweepConfig) -> dict[str, Any]:
    """The command, once more: one batch is left."""
    solved: list[Any] = []
    ended = run_sweep(config, folder, device="cpu", report=Report(finished=solved.extend))
    assert ended.finished, ended.statuses
    return {"solved": len(solved)}


def tabulate(folder: Path, _config: SweepConfig) -> dict[str, Any]:
    """Rows of all runs, and their mean in every cell."""
    rows = read_sweep(folder).rows
    cells: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        cells.setdefault((row["utility"], row["length"]), []).append(row["expected_utility"])
    return {"rows": len(rows), "cells": len(cells)}


def parquet(folder: Path, _config: SweepConfig) -> dict[str, Any]:
    """The file that other tools read."""
    return {"megabytes": consolidate(folder).stat().st_size / 1e6}


def measured(phase: str, folder: Path, runs: int, loose: bool) -> dict[str, Any]:
    """One phase, in this process."""
    if loose:
        stores.MOST_LOOSE = 10**9
    began, before = time.perf_counter(), time.process_time()
    found = globals()[phase](folder, sweep_of(runs))
    spent, cpu = time.perf_counter() - began, time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"phase": phase, "seconds": spent, "cpu": cpu, "peak_mb": peak, **found}


def on_disk(folder: Path) -> dict[str, float]:
    files, size = 0, 0
    for where, _, names in os.walk(folder):
        files += len(names)
        size += sum(os.stat(os.path.join(where, name)).st_blocks * 512 for name in names)
    return {"files": files, "megabytes": size / 1e6}


def row_of(runs: int, loose: bool, found: dict[str, dict[str, Any]]) -> str:
    """Of the table in docs/SCALING.md."""
    spent = [f"{found[phase]['cpu']:.0f} s, {_size(found[phase]['peak_mb'])}" for phase in PHASES]
    disk = found["disk"]
    kept = "a file each" if loose or runs <= stores.MOST_LOOSE else "packs"
    cells = [f"{runs:,}", kept, *spent, f"{disk['files']:,}", _size(disk["megabytes"])]
    return f"| {' | '.join(cells)} |"


def _size(megabytes: float) -> str:
    return f"{megabytes:.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"


def put(row: str, page: Path) -> None:
    """In the place of the row that begins alike; else as the last."""
    before, table, after = re.split(
        r"(?<=<!-- million -->\n)|(?=<!-- /million -->)", page.read_text()
    )
    lines, begin = table.splitlines(), row.split("|")[1:3]
    at = [n for n, line in enumerate(lines) if line.split("|")[1:3] == begin] or [len(lines)]
    lines[at[0] : at[0] + 1] = [row]
    page.write_text(before + "\n".join(lines) + "\n" + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--loose", action="store_true")
    parser.add_argument("--phase", choices=PHASES)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--document", type=Path)
    given = parser.parse_args()
    if given.phase:
        found = measured(given.phase, given.folder / "runs", given.runs, given.loose)
        print(json.dumps(found))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(given.folder).free
    needed = given.runs * (8192 if given.loose else 4096)
    if room < 3 * needed:
        sys.exit(f"{given.folder}: {room:,} bytes are free, expected {3 * needed:,}")
    phases: dict[str, dict[str, Any]] = {}
    for phase in PHASES:
        words = [sys.executable, __file__, "--phase", phase, "--runs", str(given.runs)]
        words += ["--folder", str(given.folder), *(["--loose"] if given.loose else [])]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout.strip(), flush=True)
        phases[phase] = json.loads(done.stdout)
        if phase == "write":
            phases["disk"] = on_disk(given.folder)
            print(json.dumps({"on disk": phases["disk"]}), flush=True)
    if not given.keep:
        shutil.rmtree(given.folder / "runs")
    row = row_of(given.runs, given.loose, phases)
    print(row)
    if given.document is not None:
        put(row, given.document)


if __name__ == "__main__":
    main()
