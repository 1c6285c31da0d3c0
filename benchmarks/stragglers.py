"""Where a sweep on many workers is bound: a simulation from measured times.

    python benchmarks/stragglers.py [--runs docs/records/paper.parquet] [--seconds 0.05]

Task times are those of the paper's sweep, run by run as it was recorded, in the batches in which a
store cuts them; what a claim and a commit cost is measured here, on a folder of this machine, or
given by `--seconds` for a slower one. Each worker does what `sweeps.runner` does: it goes through
the batches from its place on, tries to claim what is not done, solves, commits. The folder serves
one request at a time, as a metadata server would.

`bound` is the larger of all work shared equally and the longest batch. Before: all workers begin at
the first batch, 20 runs each. After: each begins at its own place and goes on in strides of its
own, and batches are cut so that there are enough of them (`sweeps.splitting`).
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posteer.core.leases import Leases
from posteer.sweeps.results import read_rows
from posteer.sweeps.splitting import batch_for, path_of

WORKERS = (10, 100, 1000)
SIZE = 20
MOST_TRIED = 5_000_000


def durations(rows: list[dict[str, Any]], size: int) -> list[float]:
    """Seconds of each batch, in the order in which they are solved."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in ("model", "method", "length", "horizon"))].append(row)
    cut = [
        (members[at]["run"], sum(row["seconds"] for row in members[at : at + size]))
        for members in groups.values()
        for at in range(0, len(members), size)
    ]
    return [seconds for _, seconds in sorted(cut)]


@dataclass
class Simulated:
    """How a sweep went."""

    seconds: float
    attempts: int
    waiting: float


def simulate(tasks: list[float], workers: int, request: float, spread: bool) -> Simulated:
    """Workers in the order of their events; a claim, a refusal and a commit are a request each."""
    n, free_at, attempts, waiting = len(tasks), 0.0, 0, 0.0
    taken, done_at = [False] * n, [float("inf")] * n
    events = [(0.0, worker) for worker in range(workers)]
    shares = [(worker, workers) if spread else (0, 1) for worker in range(workers)]
    paths = [path_of(n, *share) for share in shares]
    at, seen = [begin for begin, _ in paths], [0] * workers
    solved: list[Any] = [None] * workers
    end = 0.0
    while events:
        now, worker = heapq.heappop(events)
        if solved[worker] is not None:  # it commits
            free_at = max(now, free_at) + request
            done_at[solved[worker]] = end = free_at
            solved[worker] = None
            heapq.heappush(events, (free_at, worker))
            continue
        while seen[worker] < n and taken[at[worker]] and done_at[at[worker]] <= now:
            at[worker], seen[worker] = (at[worker] + paths[worker][1]) % n, seen[worker] + 1
        if seen[worker] >= n:
            continue
        began = max(now, free_at)
        free_at = began + request
        waiting += began - now
        attempts += 1
        here = at[worker]
        at[worker], seen[worker] = (here + paths[worker][1]) % n, seen[worker] + 1
        if taken[here]:
            heapq.heappush(events, (free_at, worker))
            continue
        taken[here], solved[worker] = True, here
        heapq.heappush(events, (free_at + tasks[here], worker))
    return Simulated(end, attempts, waiting)


def a_request() -> float:
    """Seconds of one claim and its publication here, shared over both."""
    with tempfile.TemporaryDirectory() as folder:
        leases = Leases(Path(folder) / "leases")
        began, times = time.perf_counter(), 200
        for at in range(times):
            leases.take(str(at))
            leases.publish(str(at), Path(folder) / str(at), b"x" * 50_000)
        return (time.perf_counter() - began) / times / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("docs/records/paper.parquet"))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--times", type=int, default=1, help="as often, for a larger sweep")
    given = parser.parse_args()
    rows = [
        {**row, "run": f"{row['run'][:8]}{time}", "horizon": time}
        for row in read_rows(given.runs)
        for time in range(given.times)
    ]
    request = a_request() if given.seconds is None else given.seconds
    total = sum(row["seconds"] for row in rows)
    print(f"{len(rows):,} runs, {total:,.0f} s of work; a request {1e3 * request:.1f} ms\n")
    print("| workers | | batches of | bound | takes | efficiency | claims tried a batch |")
    print("|---|---|---|---|---|---|---|")
    for workers in WORKERS:
        for name, size, spread in (
            ("before", SIZE, False),
            ("after", batch_for(len(rows), workers, SIZE), True),
        ):
            tasks = durations(rows, size)
            if not spread and workers * len(tasks) > MOST_TRIED:
                print(f"| {workers:,} | {name} | {size} | | too many claims to simulate | | |")
                continue
            found = simulate(tasks, workers, request, spread)
            bound = max(total / workers, max(tasks))
            share, tries = total / workers / found.seconds, found.attempts / len(tasks)
            print(
                f"| {workers:,} | {name} | {size} | {bound:.1f} s | {found.seconds:.1f} s | "
                f"{share:.0%} | {tries:.1f} |"
            )


if __name__ == "__main__":
    main()
