"""Cells: all seeds of one model, target, length and method, and the figures made of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

from posteer.core import InputError, parse_spec, require
from posteer.paper.published import Figure, target_of_utility
from posteer.sweeps.results import Row

Key = tuple[str, str, int, str]
"""Model, target, prompt length, method."""
COLUMN = {"J": "expected_utility", "rank": "rank", "ess": "ess_fraction"}
PRINTED_DIGITS = {"J": 2, "rank": 1, "ess": 2}
"""Of the paper's tables."""
ROUNDING = {name: 10.0**-digits for name, digits in PRINTED_DIGITS.items()}
NEAR = {"J": 0.05, "rank": 0.5, "ess": 0.02}
"""A cell agrees if it is within this, or within three standard errors, of the published one."""


@dataclass(frozen=True)
class Cell:
    """One cell's runs, failed ones among them."""

    key: Key
    rows: list[Row]

    def values(self, statistic: str) -> list[float]:
        """By seed; runs that failed have none, runs that diverged do."""
        column = COLUMN[statistic]
        return [float(row[column]) for row in self.rows if row[column] is not None]

    @property
    def failed(self) -> int:
        return sum(row["status"] == "failed" for row in self.rows)

    @property
    def diverged(self) -> int:
        return sum(row["status"] == "diverged" for row in self.rows)

    def figure(self, statistic: str) -> Figure | None:
        values = self.values(statistic)
        if not values:
            return None
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return Figure(fmean(values), error)


class Cells:
    """A sweep's runs by cell. Only runs at one horizon and one variant of a method are comparable:
    a sweep with several is refused here."""

    def __init__(self, rows: Iterable[Row]) -> None:
        found: dict[Key, list[Row]] = defaultdict(list)
        variants: dict[str, set[tuple[object, ...]]] = defaultdict(set)
        for row in rows:
            method = parse_spec(row["method"]).name
            target = target_of_utility(row["utility"])
            found[row["model"], target, row["length"], method].append(row)
            variants[method].add((row["method"], row["horizon"], row["max_model_tokens"]))
        for method, several in variants.items():
            require(
                len(several) == 1,
                f"{method} was run in {len(several)} variants, such as "
                f"{' and '.join(str(one[0]) for one in sorted(several, key=str)[:2])}: tables "
                "hold one; give each a sweep of its own",
            )
        self.by_key = {key: Cell(key, members) for key, members in found.items()}
        for cell in self.by_key.values():
            _require_one_run_a_seed(cell)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.by_key.values())

    def get(self, key: Key) -> Cell | None:
        return self.by_key.get(key)

    def figure(self, key: Key, statistic: str) -> Figure | None:
        cell = self.get(key)
        return None if cell is None else cell.figure(statistic)

    @cached_property
    def models(self) -> list[str]:
        return list(dict.fromkeys(key[0] for key in self.by_key))

    @cached_property
    def lengths(self) -> list[int]:
        return sorted({key[2] for key in self.by_key})

    @cached_property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(key[3] for key in self.by_key))

    def targets(self, model: str) -> list[str]:
        return list(dict.fromkeys(key[1] for key in self.by_key if key[0] == model))


def _require_one_run_a_seed(cell: Cell) -> None:
    seen: dict[int, Row] = {}
    for row in cell.rows:
        other = seen.setdefault(row["seed"], row)
        if other is not row:
            prints = ("model_fingerprint", "utility_fingerprint", "bank")
            unlike = [name for name in prints if other.get(name) != row.get(name)]
            model, target, length, method = cell.key
            raise InputError(
                f"{model} {target} m={length} {method} seed {row['seed']} was run twice, with "
                f"another {' and '.join(unlike) or 'configuration'}: what changed between them "
                "needs a folder of its own"
            )


def spread(ours: Figure, theirs: Figure, statistic: str) -> float:
    """Standard error of the difference of two printed means: theirs is rounded besides. What has
    no error (ESS in the paper, a single run) counts as without: the spread is then too small."""
    rounding = ROUNDING[statistic] / math.sqrt(12)
    errors = (ours.standard_error or 0.0, theirs.standard_error or 0.0, rounding)
    return math.sqrt(sum(error**2 for error in errors))


def agrees(ours: Figure, theirs: Figure, statistic: str) -> bool:
    """Within a stated distance or three standard errors."""
    near = abs(ours.value - theirs.value) <= NEAR[statistic]
    return near or compatible(ours, theirs, statistic)


def compatible(ours: Figure, theirs: Figure, statistic: str) -> bool:
    """Within three standard errors, the rounding of the printed figure included."""
    return abs(ours.value - theirs.value) <= 3 * spread(ours, theirs, statistic)
