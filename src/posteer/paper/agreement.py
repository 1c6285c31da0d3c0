"""How far our cells are the published ones: counts, cells outside with reasons that were tested,
and whether methods come in the same order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import combinations

from posteer.evaluation import landscapes
from posteer.goals.utilities import open_utility
from posteer.models import open_model
from posteer.paper.cells import ROUNDING, Cells, Key, agrees, compatible, spread
from posteer.paper.published import (
    HORIZON,
    LENGTHS,
    METHODS,
    TARGETS,
    Figure,
    published,
    utility_of_target,
)

Matches = Callable[[Figure, Figure, str], bool]
COLUMNS = {"J": "J", "rank": "rank", "ess": "ess_over_l_mean"}


@dataclass(frozen=True)
class Pair:
    """A cell with its published figure."""

    key: Key
    ours: Figure
    theirs: Figure

    @property
    def difference(self) -> float:
        return self.ours.value - self.theirs.value


def pairs(cells: Cells, statistic: str) -> list[Pair]:
    """Every cell that both we and the paper have, in the paper's order."""
    found = []
    for model, targets in TARGETS.items():
        for target in targets:
            for length in LENGTHS:
                for method in METHODS:
                    key = (model, target, length, method)
                    ours = cells.figure(key, statistic)
                    theirs = published().get((*key, COLUMNS[statistic]))
                    if ours is not None and theirs is not None:
                        found.append(Pair(key, ours, theirs))
    return found


def counts(cells: Cells, statistic: str) -> dict[tuple[str, int, str], tuple[int, int, int]]:
    """By model, length and method: how many cells agree, how many of them within three standard
    errors, of how many."""
    found: dict[tuple[str, int, str], list[tuple[bool, bool]]] = defaultdict(list)
    for pair in pairs(cells, statistic):
        model, _, length, method = pair.key
        near = agrees(pair.ours, pair.theirs, statistic)
        found[model, length, method].append((near, compatible(pair.ours, pair.theirs, statistic)))
    return {
        key: (sum(a for a, _ in hits), sum(b for _, b in hits), len(hits))
        for key, hits in found.items()
    }


class Why(StrEnum):
    """What was shown of a cell outside, the strongest first."""

    NO_PROMPT = "no prompt could, on exact Bayes neither"
    NO_PROMPT_HERE = "no prompt of our model could"
    JUDGED = "the best prompt on both"
    MODELS = "moves between models"
    SNAPPING = "snapping"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Outside:
    """A cell whose J is more than three standard errors from the published one: how many, what was
    found, and the figures that say so. `best` and `bayes` are the best J of any prompt, on our
    model where all were ranked and on exact Bayes."""

    pair: Pair
    in_errors: float
    why: Why
    best: float | None = None
    bayes: float | None = None
    elsewhere: tuple[Figure, ...] = ()
    nearest: str = ""
    """Of other trained models the one whose figure is nearest to the published."""


def outside(
    cells: Cells, other_snapping: Cells | None, other_models: Mapping[str, Cells]
) -> list[Outside]:
    """Cells of J that are outside three standard errors. Reasons are tried in turn, each on
    records:

    the same runs under the other snapping rule match; the published mean is above the best prompt
    there is (on our model, where prompts were ranked, and on exact Bayes), so no choice of prompt
    could match; every run of both found the best prompt, so the models differ; on another trained
    model the same method matches and is at least twice as near, or such models lie on both sides of
    the published mean.
    """
    return [
        _explained(pair, cells, other_snapping, other_models)
        for pair in pairs(cells, "J")
        if not compatible(pair.ours, pair.theirs, "J")
    ]


def _explained(
    pair: Pair, cells: Cells, other_snapping: Cells | None, other_models: Mapping[str, Cells]
) -> Outside:
    gap = pair.difference / spread(pair.ours, pair.theirs, "J")
    other = None if other_snapping is None else other_snapping.figure(pair.key, "J")
    if other is not None and _reaches(other, pair, agrees):
        return Outside(pair, gap, Why.SNAPPING, elsewhere=(other,))
    best = _ranked_optimum(pair.key, cells)
    bayes = exact_optimum(pair.key[0], pair.key[2]).get(pair.key[1])
    least = pair.theirs.value - ROUNDING["J"] / 2
    above = [optimum is not None and least > optimum for optimum in (best, bayes)]
    if above[0] or (best is None and above[1]):
        why = Why.NO_PROMPT if above[1] else Why.NO_PROMPT_HERE
        return Outside(pair, gap, why, best, bayes)
    ranks = (cells.figure(pair.key, "rank"), published().get((*pair.key, "rank")))
    if all(rank is not None and rank.value == 1.0 for rank in ranks):
        return Outside(pair, gap, Why.JUDGED, best, bayes)
    there = {name: some.figure(pair.key, "J") for name, some in other_models.items()}
    apart = {
        name: abs(figure.value - pair.theirs.value)
        for name, figure in there.items()
        if figure is not None
    }
    nearest = min(apart, key=lambda name: apart[name], default="")
    others = tuple(figure for figure in there.values() if figure is not None)
    values = [figure.value for figure in (*others, pair.ours)]
    around = bool(others) and min(values) <= pair.theirs.value <= max(values)
    reached = around or any(_reaches(figure, pair, compatible) for figure in others)
    why = Why.MODELS if reached else Why.UNEXPLAINED
    return Outside(pair, gap, why, best, bayes, others, nearest)


def _reaches(figure: Figure, pair: Pair, matches: Matches) -> bool:
    """It is at least twice as near, and matches."""
    nearer = abs(figure.value - pair.theirs.value) <= abs(pair.difference) / 2
    return nearer and matches(figure, pair.theirs, "J")


def _ranked_optimum(key: Key, cells: Cells) -> float | None:
    """The best J of all prompts on the model, where they were ranked."""
    cell = cells.get(key)
    rows = [] if cell is None else cell.rows
    return next((float(row["optimum"]) for row in rows if row["optimum"] is not None), None)


@cache
def exact_optimum(model: str, length: int) -> dict[str, float]:
    """The best J of any prompt on exact Bayes, by target."""
    exact = open_model(f"exact:{model}")
    goals = [open_utility(utility_of_target(t), exact) for t in TARGETS[model]]
    found = landscapes(exact, goals, length, HORIZON)
    return {t: f.optimum for t, f in zip(TARGETS[model], found, strict=True) if f is not None}


@dataclass(frozen=True)
class Ordering:
    """Pairs of methods in one cell that the paper tells apart, and what ours say of them."""

    same: int
    tied: int
    reversed: int

    @property
    def total(self) -> int:
        return self.same + self.tied + self.reversed


def orderings(cells: Cells, length: int, model: str) -> Ordering:
    """Pairs that are published more than three standard errors apart: is the same one better?

    Ours count as tied where they are within three standard errors.
    """
    same = tied = opposite = 0
    by_cell: dict[str, dict[str, Pair]] = defaultdict(dict)
    for pair in pairs(cells, "J"):
        if pair.key[0] == model and pair.key[2] == length:
            by_cell[pair.key[1]][pair.key[3]] = pair
    for methods in by_cell.values():
        for one, other in combinations(methods.values(), 2):
            theirs = _apart(one.theirs, other.theirs, 2 * 0.01 / math.sqrt(12))
            ours = _apart(one.ours, other.ours, 0.0)
            if theirs == 0:
                continue
            same += ours == theirs
            tied += ours == 0
            opposite += ours == -theirs
    return Ordering(same, tied, opposite)


def _apart(one: Figure, other: Figure, rounding: float) -> int:
    gap = one.value - other.value
    errors = math.hypot(one.standard_error or 0.0, other.standard_error or 0.0, rounding)
    return 0 if abs(gap) <= max(3 * errors, 1e-3) else (1 if gap > 0 else -1)
