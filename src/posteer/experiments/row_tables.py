"""Records of the published rows as tables: ours beside the paper's, or two files of ours."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import get_args

from posteer.experiments.paper.published import Figure, published
from posteer.steering.snap import CandidateScore

READINGS = get_args(CandidateScore)
DEFAULT_READING, PAPERS_READING = "own-context", "optimum-context"
_Key = tuple[str, str, int, str]
_Figures = dict[tuple[str, str, int, str, str], Figure]


def search_agreement(records: list[dict[str, str]]) -> list[str]:
    """Cells of a search that match the published ones: J as elsewhere, rank within 0.5 or three
    standard errors."""
    figures = published()
    found: dict[tuple[str, int], list[tuple[bool, bool | None]]] = defaultdict(list)
    for key, by_reading in _cells(records).items():
        rows, theirs = by_reading[""], figures.get((*key, "rank"))
        ranked = None
        if theirs is not None and rows[0]["rank"]:
            ranked = _near([float(r["rank"]) for r in rows], theirs, 0.5)
        found[key[0], key[2]].append((_matches(figures, key, rows), ranked))
    lines = ["| model | length | J matches | rank matches |", "|---|---|---|---|"]
    for (model, length), cells in found.items():
        ranks = [rank for _, rank in cells if rank is not None]
        beside = f"{sum(ranks)} of {len(ranks)}" if ranks else ""
        lines.append(
            f"| {model} | {length} | {sum(j for j, _ in cells)} of {len(cells)} | {beside} |"
        )
    return lines


def agreement_between(some: list[dict[str, str]], others: list[dict[str, str]]) -> list[str]:
    """In how many cells that two files share the mean J is the same, by the same rule."""
    first, second = _cells(some), _cells(others)
    hits: dict[tuple[str, int, str, str], list[bool]] = defaultdict(list)
    for key in first.keys() & second.keys():
        for reading in first[key].keys() & second[key].keys():
            own = [float(r["expected_utility"]) for r in first[key][reading]]
            theirs = [float(r["expected_utility"]) for r in second[key][reading]]
            other = Figure(fmean(theirs), _standard_error(theirs))
            hits[key[0], key[2], key[3], reading].append(_near(own, other, 0.05))
    return [
        f"{model} {length} {method} {reading}: {sum(same)} of {len(same)}"
        for (model, length, method, reading), same in sorted(hits.items())
    ]


def search_table(records: list[dict[str, str]]) -> list[str]:
    """Every cell of a search: J and, where all prompts can be ranked, rank; ours beside theirs."""
    figures = published()
    lines = [
        "| model | m | target | J published | J ours | rank published | rank ours | tokens | |",
        "|---" * 9 + "|",
    ]
    for key, by_reading in _cells(records).items():
        model, target, m, _ = key
        rows = by_reading[""]
        j = figures[*key, "J"]
        theirs = figures.get((*key, "rank"))
        rank = _mean_and_error(rows, "rank") if rows[0]["rank"] else ""
        tokens = fmean(float(r["forward_tokens"]) + float(r["backward_tokens"]) for r in rows)
        lines.append(
            f"| {model} | {m} | {target} | {j.value:.2f} ({j.standard_error:.2f}) "
            f"| {_mean_and_error(rows)} | {'' if theirs is None else f'{theirs.value:.1f}'} "
            f"| {rank} | {tokens:,.0f} | {'' if _matches(figures, key, rows) else 'differs'} |"
        )
    return lines


def read_records(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def agreement(records: list[dict[str, str]]) -> list[str]:
    """How many published cells each reading matches: J within 0.05 or three standard errors, and
    (after the slash) within three standard errors and the rounding of the tables."""
    cells = _cells(records)
    figures = published()
    lines = ["| method | length | ESS mean within 0.02 | " + " | ".join(READINGS) + " |"]
    lines.append("|---" * (3 + len(READINGS)) + "|")
    for method in dict.fromkeys(key[3] for key in cells):
        for length in sorted({key[2] for key in cells}):
            ess_hits, total = 0, 0
            loose, strict = dict.fromkeys(READINGS, 0), dict.fromkeys(READINGS, 0)
            for (model, target, m, name), by_reading in cells.items():
                if name != method or m != length:
                    continue
                total += 1
                ess = fmean(float(r["ess_fraction"]) for r in by_reading[READINGS[0]])
                mean = figures[model, target, m, name, "ess_over_l_mean"].value
                ess_hits += abs(ess - mean) <= 0.02
                for reading in READINGS:
                    key = (model, target, m, name)
                    loose[reading] += _matches(figures, key, by_reading[reading])
                    strict[reading] += _matches(figures, key, by_reading[reading], False)
            row = " | ".join(f"{loose[r]} / {strict[r]}" for r in READINGS)
            lines.append(f"| {method} | {length} | {ess_hits} of {total} | {row} |")
    return lines


def cell_table(records: list[dict[str, str]]) -> list[str]:
    """Every cell: ESS/L as mean [min, max], J as mean (standard error), ours beside theirs."""
    figures = published()
    lines = [
        "| model | m | target | method | ESS/L published | ESS/L ours | J published "
        "| J, paper's snapping | J, default | optimum | |",
        "|---" * 11 + "|",
    ]
    for key, by_reading in _cells(records).items():
        model, target, m, method = key
        theirs = [figures[*key, f"ess_over_l_{s}"].value for s in ("mean", "min", "max")]
        ess = [float(r["ess_fraction"]) for r in by_reading[DEFAULT_READING]]
        optimum = float(by_reading[DEFAULT_READING][0]["optimum"] or "nan")
        j = figures[*key, "J"]
        note = ""
        if not _matches(figures, key, by_reading[PAPERS_READING]):
            above = j.value > optimum + 0.005
            note = "published J is above our optimum" if above else "differs"
        lines.append(
            f"| {model} | {m} | {target} | {method} "
            f"| {theirs[0]:.2f} [{theirs[1]:.2f}, {theirs[2]:.2f}] "
            f"| {fmean(ess):.2f} [{min(ess):.2f}, {max(ess):.2f}] "
            f"| {j.value:.2f} ({j.standard_error:.2f}) "
            f"| {_mean_and_error(by_reading[PAPERS_READING])} "
            f"| {_mean_and_error(by_reading[DEFAULT_READING])} "
            f"| {'' if math.isnan(optimum) else f'{optimum:.2f}'} | {note} |"
        )
    return lines


def _cells(records: list[dict[str, str]]) -> dict[_Key, dict[str, list[dict[str, str]]]]:
    cells: dict[_Key, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        key = (record["model"], record["target"], int(record["length"]), record["method"])
        cells[key][record["reading"]].append(record)
    return cells


def _standard_error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _mean_and_error(rows: list[dict[str, str]], column: str = "expected_utility") -> str:
    values = [float(r[column]) for r in rows]
    return f"{fmean(values):.2f} ({_standard_error(values):.2f})"


def _matches(
    figures: _Figures, key: _Key, rows: list[dict[str, str]], generous: bool = True
) -> bool:
    """Whether our mean J is the published one, up to both standard errors and rounding."""
    values = [float(r["expected_utility"]) for r in rows]
    figure = figures[*key, "J"]
    if generous:
        return _near(values, figure, 0.05)
    return abs(fmean(values) - figure.value) <= _three_errors(values, figure) + 0.005


def _near(values: list[float], figure: Figure, tolerance: float) -> bool:
    return abs(fmean(values) - figure.value) <= max(tolerance, _three_errors(values, figure))


def _three_errors(values: list[float], figure: Figure) -> float:
    return 3 * math.hypot(figure.standard_error or 0.0, _standard_error(values))
