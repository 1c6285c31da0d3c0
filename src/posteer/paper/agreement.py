"""How far our cells are the published ones: counts, cells outside with reasons that were tested,
and whether methods come in the same order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from posteer.evaluation import landscapes
from posteer.goals.utilities import open_utility
from posteer.models import open_model
from posteer.paper.cells import Cells, Key, agrees, compatible, spread
from posteer.paper.published import (
    HORIZON,
    LENGTHS,
    METHODS,
    TARGETS,
    Figure,
    published,
    utility_of_target,
)

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


@dataclass(frozen=True)
class Outside:
    """A cell whose J is not the published one, and what was found to explain it."""

    pair: Pair
    in_errors: float
    reason: str
    tested: bool


def outside(
    cells: Cells, other_snapping: Cells | None, other_models: Mapping[str, Cells]
) -> list[Outside]:
    """Cells of J that do not agree. Reasons are tried in turn, each a test on records:

    a sweep with the other snapping rule agrees; the published mean is above the best prompt there
    is on our model (so theirs is another); on another trained model the same method agrees, and is
    at least twice as near, or such models lie on both sides of it. What none explains is said to
    be unexplained.
    """
    found = []
    for pair in pairs(cells, "J"):
        if not agrees(pair.ours, pair.theirs, "J"):
            reason = _reason(pair, cells, other_snapping, other_models)
            gap = pair.difference / spread(pair.ours, pair.theirs, "J")
            found.append(Outside(pair, gap, reason or "unexplained", reason is not None))
    return found


def _reason(
    pair: Pair, cells: Cells, other_snapping: Cells | None, other_models: Mapping[str, Cells]
) -> str | None:
    other = None if other_snapping is None else other_snapping.figure(pair.key, "J")
    if other is not None and agrees(other, pair.theirs, "J"):
        return f"snapping: scored by its own last context J is {other.value:.2f}"
    best, of = _optimum(pair.key, cells)
    if best is not None and pair.theirs.value - 0.005 > best:
        return f"unattainable on our model: the best prompt of {of} has {best:.2f}"
    there = [some.figure(pair.key, "J") for some in other_models.values()]
    others = [figure for figure in there if figure is not None]
    shown = ", ".join(f"{f.value:.2f} ({f.standard_error or math.nan:.2f})" for f in others)
    for figure in others:
        nearer = abs(figure.value - pair.theirs.value) <= abs(pair.difference) / 2
        if nearer and agrees(figure, pair.theirs, "J"):
            return f"the model: on others trained alike J is {shown}"
    values = [figure.value for figure in (*others, pair.ours)]
    if others and min(values) <= pair.theirs.value <= max(values):
        return f"the model: others trained alike reach {shown}, which is on both sides"
    return None


def _optimum(key: Key, cells: Cells) -> tuple[float | None, str]:
    """The best there is: on the model where its prompts were ranked, else on exact Bayes."""
    cell = cells.get(key)
    ranked = (
        [] if cell is None else [row["optimum"] for row in cell.rows if row["optimum"] is not None]
    )
    if ranked:
        return float(ranked[0]), "all 64"
    return exact_optimum(key[0], key[2]).get(key[1]), "exact Bayes"


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
