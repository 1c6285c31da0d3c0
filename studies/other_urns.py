"""Urns of fewer steps and of other seeds, beside the one that is shipped as the paper's."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from tables import heading

from posteer.paper.cells import Cells, compatible
from posteer.paper.published import LENGTHS, TARGETS, Figure, published
from posteer.sweeps.results import Row, read_rows


def runs_on_the_shorter(folder: Path) -> list[Row]:
    """Those of the paper's sweep on `urn-16k`, which are from when it was called `urn`."""
    return [{**row, "model": "urn-16k"} for row in _rows(folder / "urn-16k.parquet")]


def other_urns(folder: Path) -> dict[str, Cells]:
    """Runs on urns of fewer steps and other seeds, by what `--model` takes, each as if it were the
    urn."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in (*runs_on_the_shorter(folder), *_rows(folder / "gcg-urns.parquet")):
        found[row["model"]].append({**row, "model": "urn"})
    return {name: Cells(rows) for name, rows in found.items()}


def _rows(path: Path) -> list[Row]:
    return read_rows(path) if path.exists() else []


def _near(one: Figure, other: Figure, _: str) -> bool:
    """Within three standard errors, of figures that were not rounded."""
    errors = math.hypot(one.standard_error or 0.0, other.standard_error or 0.0)
    return abs(one.value - other.value) <= 3 * errors


def from_urn_to_urn(urns: dict[str, Cells]) -> list[str]:
    """How far GCG moves between models trained alike."""
    reached: dict[int, dict[str, list[Figure | None]]] = {}
    for length in LENGTHS:
        keys = [("urn", target, length, "gcg") for target in TARGETS["urn"]]
        reached[length] = {"published": [published().get((*key, "J")) for key in keys]}
        for name, some in urns.items():
            reached[length][name] = [some.figure(key, "J") for key in keys]

    def within(one: str, other: str, length: int) -> int:
        both = zip(reached[length][one], reached[length][other], strict=True)
        near = compatible if "published" in (one, other) else _near
        return sum(near(a, b, "J") for a, b in both if a is not None and b is not None)

    def entry(one: str, other: str) -> str:
        counts = (str(within(one, other, length)) for length in LENGTHS)
        return "" if one == other else ", ".join(counts)

    names, long = ("published", *urns), max(LENGTHS)
    theirs = [within("published", name, long) for name in urns]
    ours = [within(one, other, long) for one, other in combinations(urns, 2)] or [0]
    return [
        "And how far is one urn from the next? Of the 31 cells of GCG those within three errors of "
        "each other, at m=6 and at m=50. `urn-16k` and the two of `studies/models` were trained "
        "for 16,000 steps or a little less, from seeds 0 (as `urn` was), 1 and 2; runs here begin "
        "from the same ten prompts, the paper's from others. At m=50 the published runs share "
        f"{min(theirs)} to {max(theirs)} cells with an urn here, and urns here {min(ours)} to "
        f"{max(ours)} with each other.",
        "",
        *heading(f"| | {' | '.join(names)} |"),
        *(f"| {one} | {' | '.join(entry(one, other) for other in names)} |" for one in names[1:]),
        "",
    ]
