"""Kill a sweep at random moments, run the same command again each time, and audit the store.

    python studies/kills.py --out DIR --kills 50 -- --preset paper --workers 4

What follows `--` is given to the sweep. Most kills come within `--seconds` of a start, every fifth
within `--patience`, so that long batches get through; every third waits for a batch to be on its
way into the store and strikes there, within `--patience` too. After `--limit` seconds there are no
more. A finished run that changes or goes is lost or repeated; the audit fails on the first. With
`--against DIR`, the store of a sweep that was left alone, every result and every table must be the
same to the last bit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from posteer.paper.cells import Cells
from posteer.paper.layouts import layouts_for
from posteer.paper.tables import csv_lines, latex, markdown
from posteer.sweeps.results import read_rows
from posteer.sweeps.runs import expand
from posteer.sweeps.store import RunStore

UNSTABLE = ("seconds",)
"""Keys of a result that measure the machine, not the run."""


@dataclass(frozen=True)
class Moment:
    """When to strike: once so many more runs are in the store than at the start or, `committing`,
    once a batch is on its way into it; and then `delay` seconds later."""

    runs: int = 0
    committing: bool = False
    delay: float = 0.0

    def reached(self, out: Path, before: int) -> bool:
        if self.committing:
            return any((out / "commits").glob("[!.]*.json"))
        return len(_stored(out)) >= before + self.runs


@dataclass(frozen=True)
class Audit:
    """What 50 kills did: nothing, one hopes. `killed_at_work` found the sweep running, and at its
    moment."""

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


@runtime_checkable
class Victim(Protocol):
    """A running sweep."""

    def running(self) -> bool: ...

    def kill(self) -> None:
        """SIGKILL to it and all its workers; returns once it is gone."""

    def wait(self) -> None: ...


class Command:
    """The sweep's command in a session of its own."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "posteer.sweeps.execution", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)

    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self) -> None:
        self.process.wait()


def kill_often(
    start: Callable[[Moment | None], Victim],
    out: Path,
    moments: Iterable[Moment],
    ceiling: float,
    limit: float = math.inf,
) -> Audit:
    """Run a sweep to its end through a death at each moment; the last start is left alone.

    A moment that has not come within `ceiling` seconds is not waited for any longer. `start` is
    told the moment, so that a victim may wait for it.
    """
    seen: dict[str, tuple[int, bytes]] = {}
    done = at_work = 0
    until = time.monotonic() + limit
    for moment in [*moments, None]:
        if moment is not None and time.monotonic() > until:
            continue
        before = len(_stored(out))
        victim = start(moment)
        if moment is None:
            victim.wait()
        else:
            came = wait_for(partial(moment.reached, out, before), victim.running, ceiling)
            wait_for(lambda: False, victim.running, moment.delay if came else 0.0)
            at_work += came and victim.running()
            victim.kill()
            done += 1
        lost, changed = _compare(seen, out)
        if lost or changed:
            return Audit(done, at_work, 0, lost, changed, 0)
        print(f"{done} kills: {len(seen)} runs in the store", file=sys.stderr, flush=True)
    store = RunStore.open(out)
    wanted = {run.name for run in expand(store.config()).runs}
    _, damaged = store.records()
    lost = sorted((wanted - store.names()) | damaged.keys())
    return Audit(done, at_work, len(wanted), lost, [], _solved(out))


def wait_for(
    event: Callable[[], bool], running: Callable[[], bool], ceiling: float, pause: float = 0.0005
) -> bool:
    """Whether the event came while something was running, and within a ceiling of seconds."""
    until = time.monotonic() + ceiling
    while not (came := event()) and running() and time.monotonic() < until:
        time.sleep(pause)
    return came


def timed_moments(kills: int, seconds: float, patience: float, seed: int) -> Iterator[Moment]:
    """For a sweep that nothing holds back: by the clock, but for every third."""
    chance = random.Random(seed)
    for kill in range(kills):
        delay = chance.uniform(0, patience if kill % 5 == 4 else seconds)
        yield Moment(committing=True) if kill % 3 == 2 else Moment(delay=delay)


def _stored(out: Path) -> list[Path]:
    return list((out / "runs").glob("[!.]*.json"))


def _compare(seen: dict[str, tuple[int, bytes]], out: Path) -> tuple[list[str], list[str]]:
    """Runs that were there and are gone, and runs that were written again; then look anew."""
    there = {path.stem: path for path in _stored(out)}
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


def different_tables(one: Path, other: Path) -> list[str]:
    """Tables that are not the same bytes."""
    pages = []
    for folder in (one, other):
        cells = Cells(read_rows(folder))
        made = {f"{x.label}.md": markdown(x, cells) for x in layouts_for(cells)}
        made |= {f"{x.label}.csv": csv_lines(x, cells) for x in layouts_for(cells)}
        made |= {f"{x.label}.tex": latex(x, cells) for x in layouts_for(cells)}
        pages.append(made)
    return sorted(
        n for n in pages[0].keys() | pages[1].keys() if pages[0].get(n) != pages[1].get(n)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--against", type=Path)
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    given, rest = parser.parse_args(words[:cut]), words[cut + 1 :]
    started = time.perf_counter()
    command = [*rest, "--out", str(given.out)]
    moments = timed_moments(given.kills, given.seconds, given.patience, given.seed)
    audit = kill_often(
        lambda _moment: Command(command), given.out, moments, given.patience, given.limit
    )
    print(f"{audit} in {time.perf_counter() - started:.0f} s")
    if given.against is not None:
        print(f"results that differ: {different_results(given.out, given.against)}")
        print(f"tables that differ: {different_tables(given.out, given.against)}")
    sys.exit(0 if audit.clean else 1)


if __name__ == "__main__":
    main()
