"""A sweep as one page: all its runs, the published figures, curves and latents, under 5 MB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posteer import __version__
from posteer.core.errors import InputError, require
from posteer.core.files import write_atomically
from posteer.sweeps import parquet
from posteer.sweeps.configuration import config_from
from posteer.sweeps.results import Histories, Row, read_facts, read_histories, read_sweep
from posteer.sweeps.store import RunStore
from posteer.views.pages.bundle import one_file, safe_json
from posteer.views.pages.columns import columns_of, published_of
from posteer.views.pages.curves import curves_of
from posteer.views.pages.facts import paper_facts, session_facts
from posteer.views.pages.latents import latents_of
from posteer.views.paper.report import standing_lines

FORMAT = "posteer-report-1"
MOST_BYTES = 5_000_000
"""Of the whole file."""
MOST_RUNS = 40_000
"""More have no room, whatever they hold: a run takes some 120 bytes."""
PER_OCTAVE = (6, 3, 1)
"""Steps of curves between a step and its double: as many as there is room for."""
AXES = ("model", "utility", "method", "length")


def write_report(
    path: Path, out: Path, only: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """The page of a sweep's folder or of a Parquet file of its runs; facts of what was written.

    `only` keeps runs whose model, utility, method or length is among those named.
    """
    chosen = {name: set(values) for name, values in (only or {}).items() if values}
    if not chosen:
        _require_few(_at_least(path), path)
    sweep = read_sweep(path)
    rows = [row for row in sweep.rows if all(str(row[k]) in v for k, v in chosen.items())]
    require(len(rows) > 0, f"{path}: no run is of {_named(chosen)}")
    _require_few(len(rows), path)
    facts = read_facts(path)
    name = str((facts["configuration"] or {}).get("name") or path.stem)
    data = {
        "format": FORMAT,
        "version": __version__,
        "name": name,
        "total": sweep.total,
        "notes": [*standing_lines(sweep), *([f"Only {_named(chosen)}."] if chosen else [])],
        "sessions": session_facts(facts["sessions"]),
        "paper": paper_facts(rows),
        "published": published_of(rows),
        "banks": _banks(facts["configuration"]),
        "latents": latents_of(rows, path if path.is_dir() else None),
        **columns_of(rows),
    }
    page, curves = _fitted(f"{name}: posteer report", data, rows, _histories(path, data))
    write_atomically(out, page)
    return {"file": str(out), "runs": len(rows), "bytes": len(page), "curves": curves}


def _at_least(path: Path) -> int:
    """How many runs there are, without reading them."""
    if path.is_file():
        return parquet.count(path)
    return len(RunStore(path).names())


def _require_few(runs: int, path: Path) -> None:
    require(
        runs <= MOST_RUNS,
        f"{path}: {runs:,} runs, and a page has room for {MOST_RUNS:,}: name some by --model, "
        "--utility, --method or --length",
    )


def _banks(configuration: Mapping[str, Any] | None) -> dict[str, str]:
    """Files of latents that a sweep was given, by model, as its configuration names them."""
    grids = [] if configuration is None else config_from(configuration, "the sweep").grids
    return {model: path for grid in grids for model, path in grid.banks.items()}


def _named(chosen: Mapping[str, set[str]]) -> str:
    return "; ".join(f"{name} {', '.join(sorted(values))}" for name, values in chosen.items())


def _histories(path: Path, data: dict[str, Any]) -> Histories:
    try:
        return read_histories(path)
    except InputError as error:
        data["notes"].append(f"No curves: {error}")
        return {}


def _fitted(
    title: str, data: dict[str, Any], rows: Sequence[Row], histories: Histories
) -> tuple[bytes, int]:
    """The page with as many steps of its curves as there is room for, and how many runs have one.

    Runs that have a curve but no room for it are said to be so.
    """
    runs = [row["run"] for row in rows]
    room = MOST_BYTES - len(one_file(title, "report.js", "pages.css", data).encode()) - 100
    require(
        room > 0,
        f"{len(rows):,} runs make a page of {MOST_BYTES - room:,} bytes, and {MOST_BYTES:,} are "
        "allowed: name some by --model, --utility, --method or --length",
    )
    for density in PER_OCTAVE:
        curves = curves_of(histories, runs, density)
        if len(safe_json(curves)) <= room:
            data["curves"] = curves
            break
    else:
        data["notes"].append("Curves of ascents and searches have no room on this page.")
    page = one_file(title, "report.js", "pages.css", data).encode()
    return page, len(data.get("curves", {}).get("runs", {}))
