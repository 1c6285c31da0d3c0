"""Methods against each other on the same utility, length and seed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from posteer.core.randomness import numpy_stream
from posteer.paper.cells import Cells
from posteer.paper.published import METHODS

RESAMPLES = 2000
TIE = 1e-3


@dataclass(frozen=True)
class Paired:
    """Mean of J of one method minus J of another, and how often either won.

    The interval holds 95 %: utilities are drawn anew with replacement, and seeds within each. With
    one utility it speaks of its seeds alone.
    """

    model: str
    length: int
    family: str
    method: str
    other: str
    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int


def family_of(target: str) -> str:
    """The utility family of a target."""
    if target == "dyck":
        return "dyck"
    for prefix, family in (("q-", "frequency"), ("tau-", "reverse-xent"), ("sym-", "reverse-xent")):
        if target.startswith(prefix):
            return family
    return "reverse-xent" if target.startswith("dir-") else target.partition("(")[0]


def paired_comparisons(cells: Cells) -> list[Paired]:
    """Every pair of methods in every model, length and family."""
    values: dict[tuple[str, int, str], dict[str, dict[tuple[str, int], float]]]
    values = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        model, target, length, method = cell.key
        for row in cell.rows:
            if row["expected_utility"] is not None:
                group = values[model, length, family_of(target)][method]
                group[target, row["seed"]] = row["expected_utility"]
    found = []
    for (model, length, family), methods in sorted(values.items()):
        known = [m for m in METHODS if m in methods] + sorted(set(methods) - set(METHODS))
        for one, other in combinations(known, 2):
            shared = sorted(methods[one].keys() & methods[other].keys())
            if not shared:
                continue
            gaps: dict[str, list[float]] = defaultdict(list)
            for target, seed in shared:
                gap = methods[one][target, seed] - methods[other][target, seed]
                gaps[target].append(gap)
            every = np.array([gap for some in gaps.values() for gap in some])
            low, high = _interval(gaps, f"{model} {length} {family} {one} {other}")
            found.append(
                Paired(
                    *(model, length, family, one, other),
                    *(float(every.mean()), low, high),
                    *(int((every > TIE).sum()), int((abs(every) <= TIE).sum())),
                    int((every < -TIE).sum()),
                )
            )
    return found


def _interval(gaps: dict[str, list[float]], name: str) -> tuple[float, float]:
    stream = numpy_stream(0, f"paired {name}")
    groups = list(gaps.values())
    longest = max(map(len, groups))
    table = np.full((len(groups), longest), np.nan)
    for row, some in enumerate(groups):
        table[row, : len(some)] = some
    sizes = np.array([len(some) for some in groups])
    picked = stream.integers(len(groups), size=(RESAMPLES, len(groups)))
    within = stream.random((RESAMPLES, len(groups), longest)) * sizes[picked][..., None]
    drawn = table[picked[..., None], within.astype(int)]
    counted = np.arange(longest) < sizes[picked][..., None]
    means = np.where(counted, drawn, 0.0).sum((1, 2)) / counted.sum((1, 2))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
