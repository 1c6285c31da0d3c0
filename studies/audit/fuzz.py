"""Command lines and calls that no one should write: answered or refused in one line, nothing else.

What is drawn, and what counts as a fault, is in `tests/hostile.py` and the files beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from places import ROOT

from audit.tally import Tally

LINES, CALLS = "hostile command lines", "hostile calls"
SHARE = 1000
"""Lines of one process, so that its memory says something."""
MOST_BYTES = 4 * 2**30
"""Of memory, for a share."""


def fuzz(n_lines: int, n_calls: int) -> list[Tally]:
    """So many lines and calls, share by share, each with a seed of its own."""
    lines, calls = Tally(LINES), Tally(CALLS)
    shares = -(-max(n_lines, n_calls) // SHARE)
    for seed in range(shares):
        for total, part in zip(
            (lines, calls),
            fuzz_once(_share(n_lines, shares, seed), _share(n_calls, shares, seed), seed),
            strict=True,
        ):
            total.add(part)
    return [lines, calls]


def _share(n: int, shares: int, at: int) -> int:
    return n * (at + 1) // shares - n * at // shares


def fuzz_once(n_lines: int, n_calls: int, seed: int) -> list[Tally]:
    """So many lines and calls, in one process of their own."""
    words = ["--lines", str(n_lines), "--calls", str(n_calls), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "hostile.py"), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    tallies = [counted(LINES, found["lines"]), counted(CALLS, found["calls"])]
    if found["peak_bytes"] > MOST_BYTES:
        tallies[0].fault("tracebacks", f"seed {seed} took {found['peak_bytes']:,} bytes")
    return tallies


def counted(what: str, found: dict[str, Any]) -> Tally:
    """The tally of a share, from what `hostile.py` prints of it."""
    tally = Tally(what, found["tries"], refused=found["refused"], harmless=found["harmless"])
    for one in found["faults"]:
        tally.fault(one["figure"], f"{one['words']}: {one['fault']}")
    return tally
