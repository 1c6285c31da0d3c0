"""Do some cells, taken together, differ from the published ones by more than chance?

The hypothesis: the authors' ten runs are ten more of ours, so that one seed moves all its cells at
once, and what is printed is their mean, rounded. A run's law is that of our ten seeds, drawn with
replacement; for GCG at m=6, where all starts were tried, it is known and nothing of ours is left to
chance. Two statistics: the mean of all differences, which sees what leans one way, and their mean
square, which sees what does not. The p-value is twice the smaller of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posteer.core.randomness import numpy_stream
from posteer.paper.cells import COLUMN, ROUNDING, Cells, Key
from posteer.paper.published import published

Read = tuple[Key, str]
"""A cell and a statistic of it, as the published tables name it."""
Numbers = NDArray[np.float64]

DRAWS = 9_999
RUNS = 10
"""Behind each published mean."""
GRID = 2**13
SAME = 1e-6
"""Values of starts that differ by no more are the same."""


@dataclass(frozen=True)
class Starts:
    """What GCG reaches from each of all starts at m=6, by model, target and statistic."""

    reached: Mapping[tuple[str, str, str], Sequence[float]]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Starts:
        """From the record that `studies/greedy.py starts` keeps."""
        found: dict[tuple[str, str, str], Sequence[float]] = {}
        for model, known in record.items():
            for target, facts in known["targets"].items():
                for statistic, column in (("J", "expected_utility"), ("rank", "rank")):
                    reached = [float(facts[column][end]) for end in facts["ends"]]
                    found[model, target, statistic] = reached
        return cls(found)

    def column(self, read: Read) -> Sequence[float] | None:
        """Of a cell, if it is one of GCG at m=6."""
        (model, target, length, method), statistic = read
        if (length, method) != (6, "gcg"):
            return None
        return self.reached.get((model, target, statistic))


@dataclass(frozen=True)
class Joint:
    """The test of some cells: how many, the mean difference (published minus ours) in standard
    errors of a cell, the p-value, and whether the law of ours is enumerated."""

    cells: int
    mean: float
    p: float
    enumerated: bool


def joint_test(cells: Cells, reads: Sequence[Read], starts: Starts | None, name: str) -> Joint:
    """Of cells that are all there; the random stream is named by the question."""
    known = [None if starts is None else starts.column(read) for read in reads]
    stream = numpy_stream(0, f"joint {name}")
    mean = np.zeros(DRAWS)
    square = np.zeros(DRAWS)
    seen: list[Numbers] = []
    listed = [at for at, column in enumerate(known) if column is not None]
    seeded = [at for at, column in enumerate(known) if column is None]
    for chosen, enumerated in ((listed, True), (seeded, False)):
        if not chosen:
            continue
        if enumerated:
            law = np.array([known[at] for at in chosen], dtype=float).T
        else:
            law = _by_seed(cells, [reads[at] for at in chosen])
        rounding = np.array([_rounding(reads[at][1]) for at in chosen])
        theirs = np.array([published()[*reads[at][0], reads[at][1]].value for at in chosen])
        drawn, z = _standardised(law, theirs, rounding, enumerated, stream)
        mean += drawn.sum(1)
        square += (drawn**2).sum(1)
        seen.append(z)
    z = np.concatenate(seen)
    by_mean = _tail(np.abs(mean), abs(float(z.sum())))
    if not seeded:
        by_mean = exact_tail(
            np.array([known[at] for at in listed], dtype=float).T,
            np.array([published()[*reads[at][0], reads[at][1]].value for at in listed]),
            np.array([_rounding(reads[at][1]) for at in listed]),
        )
    by_square = _tail(square, float((z**2).sum()))
    return Joint(len(reads), float(z.mean()), min(1.0, 2 * min(by_mean, by_square)), not seeded)


def _standardised(
    law: Numbers,
    theirs: Numbers,
    rounding: Numbers,
    enumerated: bool,
    stream: np.random.Generator,
) -> tuple[Numbers, Numbers]:
    """Differences in standard errors under the hypothesis, drawn, and those that are seen."""
    rows = len(law)
    known = enumerated or rows == 1  # of a single run there is no spread
    centre, spread = law.mean(0), law.std(0, ddof=0 if known else 1)
    means = 1 if enumerated else 2  # ours is a mean of runs as well
    scale = np.sqrt(means * spread**2 / RUNS + rounding**2 / 12)
    widen = 1.0 if known else math.sqrt(rows / (rows - 1))  # seeds drawn spread too little
    drawn = law[stream.integers(rows, size=(DRAWS, RUNS))].mean(1)
    ours = centre if enumerated else law[stream.integers(rows, size=(DRAWS, rows))].mean(1)
    drawn = (drawn - ours) * widen
    drawn += rounding * (stream.random(drawn.shape) - 0.5)
    return drawn / scale, (theirs - centre) / scale


def exact_tail(law: Numbers, theirs: Numbers, rounding: Numbers) -> float:
    """The chance that the mean of ten starts is as far off as the published one, on either side.

    By convolution: starts by their mean over cells, in standard deviations, on a grid. Printed
    figures are taken half a digit nearer.
    """
    fixed = law.std(0) < SAME
    off_fixed = np.abs(theirs - law.mean(0))[fixed] > rounding[fixed] / 2 + SAME
    if off_fixed.any() or fixed.all():  # what every start gives is the published figure, or never
        return float(not off_fixed.any())
    law, theirs, rounding = law[:, ~fixed], theirs[~fixed], rounding[~fixed]
    spread = law.std(0)
    by_start = ((law - law.mean(0)) / spread).mean(1)
    gap = float(((theirs - law.mean(0)) / spread).mean())
    slack = float((rounding / spread).mean()) / 2
    low, high = float(by_start.min()), float(by_start.max())
    step = (high - low) / GRID or 1.0
    one = np.bincount(np.rint((by_start - low) / step).astype(int)) / len(by_start)
    size = RUNS * (len(one) - 1) + 1
    whole = np.fft.irfft(np.fft.rfft(one, 2 * size) ** RUNS, 2 * size)[:size].clip(0)
    means = low + step * np.arange(len(whole)) / RUNS
    off = max(abs(gap) - slack, 0.0)
    above, below = whole[means >= off - step].sum(), whole[means <= -off + step].sum()
    return float(min(1.0, 2 * (above if gap > 0 else below)))


def _tail(drawn: Numbers, seen: float) -> float:
    return float((1 + (drawn >= seen).sum()) / (1 + len(drawn)))


def _by_seed(cells: Cells, reads: Sequence[Read]) -> Numbers:
    """Values by seed and cell, of the seeds that all cells have; where runs failed so that there
    are none, of as many as each has."""
    columns: list[dict[int, float]] = []
    for key, statistic in reads:
        name = COLUMN["ess" if statistic.startswith("ess") else statistic]
        rows = cells.by_key[key].rows
        columns.append({row["seed"]: float(row[name]) for row in rows if row[name] is not None})
    shared = set.intersection(*(set(column) for column in columns))
    if shared:
        return np.array([[column[seed] for column in columns] for seed in sorted(shared)])
    least = min(map(len, columns))
    return np.array([list(column.values())[:least] for column in columns]).T


def _rounding(statistic: str) -> float:
    return ROUNDING["ess" if statistic.startswith("ess") else statistic]


def sign_test(below: int, above: int) -> float:
    """Two-sided: the chance that fair coins split so unevenly, or more so."""
    total, fewer = below + above, min(below, above)
    tail = sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total
    return float(min(1.0, 2 * tail))


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number, in the order given."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = largest
    return adjusted
