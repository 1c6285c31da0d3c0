"""All runs of a sweep, from its folder or a Parquet file: rows, histories, data frames."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import path_of
from posteer.core.reading import read_json
from posteer.core.sealing import list_file
from posteer.sweeps import parquet
from posteer.sweeps.configuration import config_from, planned
from posteer.sweeps.histories import unpack
from posteer.sweeps.records import COSTS, FIGURES, STATUSES, Record, Row, row_of
from posteer.sweeps.runs import name_of
from posteer.sweeps.store import SESSION, RunStore

__all__ = ["FIGURES", "Histories", "Row", "Sweep", "row_of"]

INTEGERS = ("length", "horizon", "seed", "max_model_tokens", *COSTS)
LEAST = {"run", "status", "model", "utility", "method", "seed", "length", "horizon"}
"""Columns that every file of runs has, however old, and without gaps."""
READ = {*LEAST, "expected_utility", "rank", "ess_fraction", "steps", "max_model_tokens", *COSTS}
"""Columns that tables are made of."""
ORDER = ("model", "length", "horizon", "method", "utility", "seed", "run")
"""Columns by which rows are sorted: the same runs are the same rows wherever they come from."""
TEXTS = ("run", "status", "model", "utility", "method")


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep as rows; `total` is how many it has, None if that is not known.

    `strangers` are whole runs in its folder that are of another sweep or version, `unsealed` a file
    of an earlier version that nothing vouches for.
    """

    rows: list[Row]
    total: int | None
    strangers: list[str]
    unsealed: Path | None


def read_rows(path: Path) -> list[Row]:
    """All runs of a sweep: from its folder, or from a Parquet file that was made of one.

    Sorted by configuration, so that the same runs are the same rows wherever they come from.
    """
    return read_sweep(path).rows


def read_sweep(path: Path) -> Sweep:
    """The same, with how much of the sweep it is."""
    found = _from_file(path) if path.is_file() else _from_folder(path, row_of)
    require(len(found.rows) > 0, f"{path}: there are no finished runs here")
    found.rows.sort(key=lambda row: tuple(row[key] for key in ORDER))
    return found


def _from_folder(path: Path, keep: Callable[[Record], Row | None]) -> Sweep:
    """Of each run what `keep` returns of its record."""
    store = RunStore.open(path)
    there = store.contents(keep)
    require(
        not there.damaged,
        f"{path}: {len(there.damaged)} runs are damaged, first {next(iter(there.damaged), '')}: "
        "run the sweep's command again",
    )
    unsealed = None if "versions" in store.manifest() else path / "sweep.json"
    return Sweep(there.records, there.total, there.strangers, unsealed)


def _from_file(path: Path) -> Sweep:
    kinds = {**FIGURES, **dict.fromkeys(INTEGERS, "int64"), **dict.fromkeys(TEXTS, "string")}
    table = parquet.read(path, kinds, LEAST)
    for row in table.rows[:1]:
        require(row.keys() >= READ, f"{path}: a Parquet file of something else")
    for row in table.rows:
        shown = [row[name] for name in ("expected_utility", "ess_fraction")]
        good = row["status"] in STATUSES and all(v is None or math.isfinite(v) for v in shown)
        require(good, f"{path}: run {row['run'][:64]} is no run of ours")
    facts = _facts_in(table, path)
    config = facts["configuration"]
    total = None if config is None else planned(config_from(config, str(path))).total()
    return Sweep(table.rows, total, [], None if table.sealed else path)


def consolidate(folder: Path) -> Path:
    """Write `results.parquet`, one row per run, and `results.histories.parquet` beside it; of a
    large sweep histories are left where they are."""
    out, columns = folder / "results.parquet", list[parquet.Columns]()

    def keep(record: Record) -> None:
        row = row_of(record)
        if not columns:
            columns.append(parquet.Columns(_kinds(row)))
        columns[0].add(row)

    _from_folder(folder, keep)
    require(len(columns) > 0, f"{folder}: there are no finished runs here")
    columns[0].write(out, _metadata(read_facts(folder)), ORDER)
    list_file(out)
    if not RunStore.open(folder).is_large:
        write_histories(read_histories(folder), _histories_of(out))
    return out


Histories = dict[str, dict[str, list[float]]]
"""By run, what was recorded at each step."""


def _histories_of(path: Path) -> Path:
    return path.with_suffix(".histories.parquet")


def read_histories(path: Path) -> Histories:
    """From a sweep's folder, or from the file beside a Parquet file if there is one."""
    found: Histories = {}
    if path.is_dir():
        for record in RunStore.open(path).contents().records:
            run = name_of(record["configuration"])
            try:
                found[run] = {name: unpack(text) for name, text in record["history"].items()}
            except ValueError as error:
                raise InputError(f"{path}: the history of run {run} is damaged") from error
    elif os.path.lexists(beside := _histories_of(path)):
        for row in parquet.read(beside, {"run": "string"}, {"run"}).rows:
            run = row.pop("run")
            found[run] = {name: series for name, series in row.items() if series is not None}
    for run, history in found.items():
        require(_is_whole(history), f"{path}: the history of run {run[:64]} is cut short")
    return found


def _is_whole(history: dict[str, Any]) -> bool:
    """Series of one length, and with each those that are read beside it."""
    if not all(isinstance(series, list) for series in history.values()):
        return False
    whole = all(isinstance(v, float) for series in history.values() for v in series)
    together = {"ess": {"surrogate"}, "value": {"forward_tokens", "backward_tokens"}}
    beside = all(others <= history.keys() for name, others in together.items() if name in history)
    return whole and beside and len({len(series) for series in history.values()}) <= 1


def write_histories(histories: Histories, out: Path) -> None:
    """One row per run, one column of lists for each thing that was recorded."""
    names = dict.fromkeys(name for history in histories.values() for name in history)
    parquet.write(
        [{"run": run, **history} for run, history in histories.items()],
        {"run": "string"} | dict.fromkeys(names, "list"),
        out,
        use_byte_stream_split=[f"{name}.list.element" for name in names],
    )
    list_file(out)


def read_facts(path: Path) -> dict[str, Any]:
    """What a sweep was (`configuration`) and what each process did for it (`sessions`)."""
    if path.is_file():
        return _facts_in(parquet.read(path, {}, set()), path)
    store = RunStore.open(path)
    sessions, damaged = store.read_sessions()
    for error in damaged.values():
        raise InputError(f"{error}: run the sweep's command again")
    return {"configuration": store.manifest()["configuration"], "sessions": sessions}


def _facts_in(table: parquet.Table, path: Path) -> dict[str, Any]:
    text = table.metadata.get(b"posteer", b"{}")
    facts = {"configuration": None, "sessions": [], **_table(read_json(text, f"{path}: its facts"))}
    config, sessions = facts["configuration"], facts["sessions"]
    good = (config is None or isinstance(config, dict)) and isinstance(sessions, list)
    good = good and all(
        isinstance(_table(one).get(key), kind) for one in sessions for key, kind in SESSION.items()
    )
    require(good, f"{path}: its facts are of something else")
    return facts


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def write_parquet(rows: list[Row], out: Path, facts: dict[str, Any]) -> None:
    """Rows as one Parquet file with facts of their sweep: the same are the same bytes."""
    parquet.write(rows, _kinds(rows[0]), out, _metadata(facts))
    list_file(out)


def _kinds(columns: Iterable[str]) -> dict[str, str]:
    """The types of a row's columns."""
    known = {**dict.fromkeys(INTEGERS, "int64"), **FIGURES, "seconds": "float64"}
    return {name: known.get(name, "string") for name in columns}


def _metadata(facts: dict[str, Any]) -> dict[str, str]:
    return {"posteer": json.dumps(facts, sort_keys=True)}


def load_results(path: Path | str | Any, histories: bool = False) -> Any:
    """A sweep's runs as a pandas DataFrame, one row per run.

    With `histories` it has a column of lists, `step_...`, for each thing recorded at every step.

    >>> from tempfile import TemporaryDirectory
    >>> from posteer.sweeps.configuration import config_from
    >>> from posteer.sweeps.execution import run_sweep
    >>> tiny = {"models": "exact:urn", "utilities": "dyck", "methods": "beam", "seeds": [0]}
    >>> with TemporaryDirectory() as folder:
    ...     ended = run_sweep(config_from(tiny, "here"), Path(folder), device="cpu")
    ...     frame = load_results(folder)
    >>> frame[["method", "length", "status"]].to_dict("records")
    [{'method': 'beam', 'length': 6, 'status': 'done'}]
    """
    parquet.library()
    import pandas

    where = path_of(path, "results")
    frame = pandas.DataFrame(read_rows(where))
    if not histories:
        return frame
    kept = read_histories(where)
    require(len(kept) > 0, f"'{_histories_of(where)}': there is no such file")
    table = pandas.DataFrame(
        [{"run": run} | {f"step_{k}": v for k, v in series.items()} for run, series in kept.items()]
    )
    return frame.merge(table, on="run", how="left")
