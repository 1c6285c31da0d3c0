"""Records as rows: one flat row per run, for tables, Parquet and data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import path_of, write_atomically
from posteer.methods.answers import Answer
from posteer.results import Judged, columns, flat
from posteer.sweeps.histories import unpack
from posteer.sweeps.runs import name_of
from posteer.sweeps.store import Record, RunStore

Row = dict[str, Any]
KINDS = {float: "float64", int: "int64", bool: "bool", str: "string"}
FIGURES = {name: KINDS[kind] for name, kind in {**columns(Judged), **columns(Answer)}.items()}
del FIGURES["prompt"]
"""Columns of what was found, and their types in a Parquet file."""
COSTS = ("forward_tokens", "backward_tokens", "bank_tokens")
LEAST = {"run", "status", "model", "utility", "method", "seed", "expected_utility", "steps"}
"""Columns that every file of runs has, however old."""


def row_of(record: Record) -> Row:
    """A record without its history, flat; what a failed run does not have is None."""
    result = record["result"] or {}
    prompt, best, row = result.get("prompt"), result.get("best_prompt"), flat(result)
    return {
        "run": name_of(record["configuration"]),
        "status": record["status"],
        "error": record["error"],
        **record["configuration"],
        "prompt": None if prompt is None else _text(prompt),
        **{figure: row.get(figure) for figure in FIGURES},
        "best_prompt": None if best is None else _text(best),
        **{name: row.get(f"cost_{name}") for name in COSTS},
        "seconds": sum(record["seconds"].values()),
        **{key: record["provenance"].get(key) for key in ("posteer", "revision", "device")},
    }


def _text(prompt: list[int]) -> str:
    return ("," if max(prompt) > 9 else "").join(map(str, prompt))


def read_rows(path: Path) -> list[Row]:
    """All runs of a sweep: from its folder, or from a Parquet file that was made of one.

    Sorted by configuration, so that the same runs are the same rows wherever they come from.
    """
    if path.is_file():
        rows = _read_parquet(path)
    else:
        store = RunStore.open(path)
        records, damaged = store.records()
        require(
            not damaged,
            f"{path}: {len(damaged)} runs are damaged, first {next(iter(damaged), '')}: run the "
            "sweep's command again",
        )
        rows = [row_of(record) for record in records]
    require(len(rows) > 0, f"{path}: there are no finished runs here")
    keys = ("model", "length", "horizon", "method", "utility", "seed", "run")
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))


def consolidate(folder: Path) -> Path:
    """Write `results.parquet`, one row per run, and `results.histories.parquet` beside it."""
    out = folder / "results.parquet"
    write_parquet(read_rows(folder), out, read_facts(folder))
    write_histories(read_histories(folder), _histories_of(out))
    return out


Histories = dict[str, dict[str, list[float]]]
"""By run, what was recorded at each step."""


def _histories_of(path: Path) -> Path:
    return path.with_suffix(".histories.parquet")


def read_histories(path: Path) -> Histories:
    """From a sweep's folder, or from the file beside a Parquet file if there is one."""
    if path.is_dir():
        records, _ = RunStore.open(path).records()
        return {
            name_of(r["configuration"]): {k: unpack(v) for k, v in r["history"].items()}
            for r in records
        }
    beside = _histories_of(path)
    if not beside.is_file():
        return {}
    found: Histories = {}
    for row in _parquet().read_table(beside).to_pylist():
        run = row.pop("run")
        found[run] = {name: series for name, series in row.items() if series is not None}
    return found


def write_histories(histories: Histories, out: Path) -> None:
    """One row per run, one column of lists for each thing that was recorded."""
    names = dict.fromkeys(name for history in histories.values() for name in history)
    _write(
        [{"run": run, **history} for run, history in histories.items()],
        {"run": "string"} | dict.fromkeys(names, "list"),
        out,
        use_byte_stream_split=[f"{name}.list.element" for name in names],
    )


def read_facts(path: Path) -> dict[str, Any]:
    """What a sweep was (`configuration`) and what each process did for it (`sessions`)."""
    if path.is_file():
        kept = _parquet().read_schema(path).metadata or {}
        return {"configuration": None, "sessions": [], **json.loads(kept.get(b"posteer", b"{}"))}
    store = RunStore.open(path)
    sessions = []
    for one in sorted(store.sessions.glob("[!.]*.json")):
        with suppress(ValueError):  # a time that was lost is no reason to stop
            sessions.append(json.loads(one.read_bytes()))
    return {"configuration": store.manifest()["configuration"], "sessions": sessions}


def write_parquet(rows: list[Row], out: Path, facts: dict[str, Any]) -> None:
    """Rows as one Parquet file with facts of their sweep: the same are the same bytes."""
    known = dict.fromkeys(("length", "horizon", "seed", "max_model_tokens", *COSTS), "int64")
    known |= {**FIGURES, "seconds": "float64"}
    kinds = {name: known.get(name, "string") for name in rows[0]}
    _write(rows, kinds, out, {"posteer": json.dumps(facts, sort_keys=True)})


def _write(
    rows: list[Row],
    kinds: Mapping[str, str],
    out: Path,
    metadata: dict[str, str] | None = None,
    **how: Any,
) -> None:
    parquet = _parquet()
    import pyarrow

    lists = {"list": pyarrow.list_(pyarrow.float32())}
    columns = [(name, lists.get(kind, kind)) for name, kind in kinds.items()]
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns, metadata=metadata))
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd", **how)
    write_atomically(out, sink.getvalue().to_pybytes())


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
    _parquet()
    import pandas

    where = path_of(path, "results")
    frame = pandas.DataFrame(read_rows(where))
    if not histories:
        return frame
    kept = read_histories(where)
    require(len(kept) > 0, f"{_histories_of(where)}: there is no such file")
    table = pandas.DataFrame(
        [{"run": run} | {f"step_{k}": v for k, v in series.items()} for run, series in kept.items()]
    )
    return frame.merge(table, on="run", how="left")


def _read_parquet(path: Path) -> list[Row]:
    try:
        rows: list[Row] = _parquet().read_table(path).to_pylist()
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not a Parquet file") from error
    require(not rows or rows[0].keys() >= LEAST, f"{path}: a Parquet file of something else")
    return rows


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            "Parquet files and data frames need pandas and pyarrow: pip install 'posteer[results]'"
        ) from error
    return parquet
