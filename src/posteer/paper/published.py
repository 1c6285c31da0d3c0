"""The paper's figures as data: 1,989 rows of its result tables, shipped with the package."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

METHODS = ("gcg", "ppt-rb-analytic", "ppt-rb", "ppt-analytic", "ppt")
"""In the order of its tables; all but the first are variants of posterior prefix tuning."""
VARIANTS = METHODS[1:]
LENGTHS = (6, 50)
"""Of prompts."""
HORIZON = 4
RUNTIME_SECONDS = 8 * 3600
"""Of the full sweep on one H100, "approximately"."""
SYMMETRIC = ("0.1", "0.2", "0.3", "0.4", "0.6", "0.7", "0.8", "0.9", "1.0")
FREQUENCIES = [f"q-{q / 10}" for q in range(11)]
TARGETS: dict[str, list[str]] = {
    "beta-bernoulli": ["dyck", *FREQUENCIES, *(f"tau-{t}" for t in SYMMETRIC[:-1])],
    "urn": [
        "dyck",
        *FREQUENCIES,
        *(f"sym-{r}" for r in SYMMETRIC),
        *(f"dir-{s}" for s in range(10)),
    ],
}
"""The paper's 51 targets, by model, in the order of its ESS tables."""


@dataclass(frozen=True)
class Figure:
    """One published number; tables print standard errors for J and rank only."""

    value: float
    standard_error: float | None


def utility_of_target(target: str) -> str:
    """A table's row label as a utility's name."""
    if target == "dyck":
        return "dyck"
    if target.startswith("q-"):
        return f"frequency({target[2:]})"
    return f"reverse-xent({target})"


def target_of_utility(utility: str) -> str:
    """A utility's name as a table's row label; other utilities stand for themselves."""
    return _LABELS.get(utility, utility)


_LABELS = {utility_of_target(t): t for targets in TARGETS.values() for t in targets}


@cache
def published() -> dict[tuple[str, str, int, str, str], Figure]:
    """All figures by (model, target, length, method, statistic)."""
    text = files("posteer.paper").joinpath("published.csv").read_text()
    figures = {}
    for row in csv.DictReader(text.splitlines()):
        key = (
            row["bft"],
            row["target"] or row["utility"],
            int(row["m"]),
            row["method"],
            row["statistic"],
        )
        error = float(row["standard_error"]) if row["standard_error"] else None
        figures[key] = Figure(float(row["value"]), error)
    return figures
