"""Kill a sweep at random moments, run the same command again each time, and audit the store.

    python -m posteer.experiments.kills --out DIR --kills 50 -- --preset paper --batch 30

What follows `--` is given to the sweep. A finished run that changes or goes is lost or repeated;
the audit fails on the first. With `--against DIR`, the store of a sweep that was left alone, every
result must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from posteer.experiments.sweep.runs import expand
from posteer.experiments.sweep.store import RunStore

UNSTABLE = ("seconds",)
"""Keys of a result that measure the machine, not the run."""


@dataclass(frozen=True)
class Audit:
    """What 50 kills did: nothing, one hopes."""

    kills: int
    killed_at_work: int
    runs: int
    lost: list[str]
    changed: list[str]
    solved: int

    @property
    def clean(self) -> bool:
        """Nothing lost, nothing written twice, nothing solved twice."""
        return not self.lost and not self.changed and self.solved <= self.runs


def kill_often(
    arguments: list[str], out: Path, kills: int, seconds: float, seed: int, least: float = 0.0
) -> Audit:
    """Run the sweep to its end through `kills` deaths, each `least` to `seconds` after a start."""
    moments = random.Random(seed)
    command = [sys.executable, "-m", "posteer.experiments.sweep.execution", *arguments]
    command += ["--out", str(out)]
    seen: dict[str, tuple[int, bytes]] = {}
    at_work = 0
    for kill in range(kills + 1):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(timeout=moments.uniform(least, seconds) if kill < kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            at_work += 1
        lost, changed = _compare(seen, out)
        if lost or changed:
            return Audit(kill + 1, at_work, 0, lost, changed, 0)
        print(f"kill {kill + 1}: {len(seen)} runs in the store", file=sys.stderr, flush=True)
    store = RunStore.open(out)
    wanted = {run.name for run in expand(store.config()).runs}
    _, damaged = store.records()
    lost = sorted((wanted - store.names()) | damaged.keys())
    return Audit(kills, at_work, len(wanted), lost, [], _solved(out))


def _compare(seen: dict[str, tuple[int, bytes]], out: Path) -> tuple[list[str], list[str]]:
    """Runs that were there and are gone, and runs that were written again; then look anew."""
    there = {path.stem: path for path in (out / "runs").glob("[!.]*.json")}
    lost = sorted(seen.keys() - there.keys())
    changed = []
    for name, path in there.items():
        now = (path.stat().st_mtime_ns, path.read_bytes())
        if seen.setdefault(name, now) != now:
            changed.append(name)
    return lost, changed


def _solved(out: Path) -> int:
    sessions = [json.loads(path.read_bytes()) for path in (out / "sessions").glob("[!.]*.json")]
    return sum(session["runs"] for session in sessions)


def different_results(one: Path, other: Path) -> list[str]:
    """Runs whose results differ in any bit that is not a time."""
    found = []
    for name in sorted(RunStore.open(one).names() | RunStore.open(other).names()):
        results = []
        for folder in (one, other):
            record = RunStore.open(folder).read(name)
            kept = {k: v for k, v in (record["result"] or {}).items() if k not in UNSTABLE}
            results.append((record["status"], record["error"], kept, record["history"]))
        if results[0] != results[1]:
            found.append(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", type=Path)
    own, _, rest = " ".join(sys.argv[1:]).partition(" -- ")
    given = parser.parse_args(own.split())
    started = time.perf_counter()
    audit = kill_often(rest.split(), given.out, given.kills, given.seconds, given.seed, given.least)
    print(f"{audit} in {time.perf_counter() - started:.0f} s")
    if given.against is not None:
        print(f"results that differ: {different_results(given.out, given.against)}")
    sys.exit(0 if audit.clean else 1)


if __name__ == "__main__":
    main()
