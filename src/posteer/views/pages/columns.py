"""Runs as columns: texts as places in lists of the distinct ones, figures to seven digits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from posteer.core.spec import parse_spec
from posteer.methods.cautions import MOST_PARETO_K
from posteer.paper.layouts import heading
from posteer.paper.paired import family_of
from posteer.paper.published import HORIZON, METHODS, TARGETS, published, target_of_utility
from posteer.sweeps.results import Row

TEXTS = (
    *("model", "utility", "method", "length", "horizon", "max_model_tokens", "seed", "status"),
    *("error", "prompt", "best_prompt", "stop_reason", "estimator_name", "choice_method"),
    *("warnings", "bank", "device", "revision"),
)
"""Columns with few distinct values."""
FIGURES = (
    *("expected_utility", "standard_error", "rank", "optimum", "bound", "surrogate"),
    *("surrogate_standard_error", "snapped_surrogate", "held_out_surrogate"),
    *("held_out_standard_error", "plain_surrogate", "plain_standard_error", "ess_fraction"),
    *("pareto_k", "steps", "forward_tokens", "backward_tokens", "bank_tokens", "seconds"),
)
COLUMNS = {"J": "J", "rank": "rank", "ess": "ess_over_l_mean"}
DIGITS = 7
SHORT = 16
"""Digits of a run's name that a link needs."""


def columns_of(rows: Sequence[Row]) -> dict[str, Any]:
    """All that a page knows of runs, and what is said of the values of some columns."""
    texts = {name: _coded([row.get(name) for row in rows], name) for name in TEXTS}
    utilities, methods = texts["utility"]["values"], texts["method"]["values"]
    names = [parse_spec(text).name for text in methods]
    return {
        "size": len(rows),
        "runs": [row["run"][:SHORT] for row in rows],
        "texts": texts,
        "figures": {name: _figures(row.get(name) for row in rows) for name in FIGURES},
        "untrusted": [i for i, row in enumerate(rows) if is_untrusted(row)],
        "kernels": {str(i): k for i, row in enumerate(rows) if (k := kernel_of(row)) is not None},
        "families": [family_of(target_of_utility(text)) for text in utilities],
        "labels": [target_of_utility(text) for text in utilities],
        "headings": [
            heading(name) if names.count(name) == 1 else text
            for name, text in zip(names, methods, strict=True)
        ],
    }


def is_untrusted(row: Row) -> bool:
    """Whether what a run believes is a mean over weights whose tail is too heavy for one."""
    k = row.get("pareto_k")
    weighed = row.get("estimator_name") is None or row.get("ess_fraction") is not None
    return k is not None and k > MOST_PARETO_K and weighed


def kernel_of(row: Row) -> list[list[float]] | None:
    """The prompt kernel of a run, if its row has one that is a table of probabilities."""
    try:
        table = json.loads(row.get("prompt_kernel") or "null")
        rows = [[round(float(p), 6) for p in law] for law in table]
    except (TypeError, ValueError):
        return None
    whole = {len(law) for law in rows} and all(0 <= p <= 1 for law in rows for p in law)
    return rows if whole and len({len(law) for law in rows}) == 1 and rows[0] else None


def published_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The paper's figures for the cells that these runs are in."""
    found = []
    for key in dict.fromkeys(
        (row["model"], row["utility"], row["length"], row["method"]) for row in rows
    ):
        model, utility, length, method = key
        at = (model, target_of_utility(utility), length, parse_spec(method).name)
        figures = {
            name: [one.value, one.standard_error]
            for name, column in COLUMNS.items()
            if (one := published().get((*at, column))) is not None
        }
        if figures:
            own = {"model": model, "utility": utility, "length": length, "method": method}
            found.append({**own, "horizon": HORIZON, "figures": figures})
    return found


def _coded(values: list[Any], name: str) -> dict[str, Any]:
    distinct = sorted({value for value in values if value is not None}, key=_order(name))
    place = {value: at for at, value in enumerate(distinct)}
    codes = [-1 if value is None else place[value] for value in values]
    same = len(set(codes)) <= 1
    return {"values": distinct, "codes": codes[0] if same and codes else codes}


def _order(name: str) -> Any:
    """The paper's order where it has one, then the natural one: 2 before 10."""
    known: list[str] = list(METHODS)
    if name == "utility":
        known = list(dict.fromkeys(target for targets in TARGETS.values() for target in targets))

    def key(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, str):
            return (0, value)
        own = target_of_utility(value) if name == "utility" else value.partition("(")[0]
        place = known.index(own) if name in ("utility", "method") and own in known else len(known)
        parts = re.split(r"(\d+(?:\.\d+)?)", value)
        natural = tuple((1, float(p), "") if p[:1].isdigit() else (0, 0.0, p) for p in parts)
        return (1, place, natural)

    return key


def _figures(values: Iterable[Any]) -> Any:
    """A list, or the one value that all have."""
    found = [_figure(value) for value in values]
    same = all(value == found[0] for value in found)
    return found[0] if same and found else found


def _figure(value: Any) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) and abs(short) < 2**53 else short
