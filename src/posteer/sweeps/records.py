"""A finished run: its sealed file and its row. What a file says is checked before it is used."""

from __future__ import annotations

import hashlib
import math
import re
import sys
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from posteer.core.errors import InputError
from posteer.core.reading import read_json
from posteer.core.sealing import checksum, dump
from posteer.methods.answers import Answer
from posteer.results import Judged, columns, flat
from posteer.sweeps.runs import RunConfig, name_of

Record = dict[str, Any]
Row = dict[str, Any]
KINDS = {float: "float64", int: "int64", bool: "bool", str: "string"}
FIGURES = {name: KINDS[kind] for name, kind in {**columns(Judged), **columns(Answer)}.items()}
del FIGURES["prompt"]
"""Columns of what was found, and their types in a Parquet file."""
COSTS = ("forward_tokens", "backward_tokens", "bank_tokens")
STATUSES = ("done", "diverged", "failed")
SHOWN = ("expected_utility", "rank", "ess_fraction", "prompt")
"""What every result says."""
ORIGINS = ("posteer", "revision", "device")
_PARTS = {
    "configuration": dict,
    "status": str,
    "error": str | None,
    "result": dict | None,
    "history": dict,
    "seconds": dict,
    "provenance": dict,
}
_NAME = re.compile(r"[0-9a-f]{64}\.json")


class DamagedError(Exception):
    """A run's file that is not what was written."""


def is_run_file(name: str) -> bool:
    """Whether a run's file is called so."""
    return _NAME.fullmatch(name) is not None


_HINTS = {name: get_args(kind) or (kind,) for name, kind in get_type_hints(RunConfig).items()}
_ENTRIES = {entry.name for entry in fields(RunConfig)}
_CHECKSUM = re.compile(rb'\{"checksum":"([0-9a-f]{64})",')


def seal(record: Record) -> bytes:
    """A record as the bytes of its file, with a checksum over the rest."""
    return (dump({**record, "checksum": checksum(record)}) + "\n").encode()


def unseal(data: bytes, name: str) -> Record:
    """The record in a file, or `DamagedError` with what is wrong."""
    try:
        record = read_json(data, "cut short or no record")
    except InputError as error:
        raise DamagedError(str(error)) from error
    if not isinstance(record, dict) or "checksum" not in record:
        raise DamagedError("cut short or no record")
    told = record.pop("checksum")
    if not _as_written(data) and told != checksum(record):
        raise DamagedError("altered: its checksum does not match")
    _check(record)
    if name_of(record["configuration"]) != name:
        raise DamagedError("it holds another run than its name says")
    found: Record = record
    return found


def _as_written(data: bytes) -> bool:
    """Whether a file is to the byte what `seal` writes; most are, and need not be written again to
    be compared."""
    found = _CHECKSUM.match(data)
    if found is None:
        return False
    rest = b"{" + data[found.end() :].removesuffix(b"\n")
    return hashlib.sha256(rest).hexdigest().encode() == found[1]


def _check(record: Record) -> None:
    """A checksum anybody can make: what is used of a record is what we would have written."""
    for part, whole in _PARTS.items():
        if part not in record or not isinstance(record[part], whole):
            raise DamagedError(f"a record without its {part}")
    for name, kinds in _HINTS.items():
        if not _is_one(record["configuration"].get(name, ...), kinds):
            raise DamagedError(f"a configuration without its {name}")
    if record["configuration"].keys() != _ENTRIES:
        raise DamagedError("a configuration of something else")
    status, result = record["status"], record["result"]
    if status not in STATUSES or (result is None) != (status == "failed"):
        raise DamagedError(f"a run that is {status}")
    if status == "failed" and record["error"] is None:
        raise DamagedError("a run that failed without an error")
    inside: dict[str, tuple[type, ...]] = {"history": (str,), "seconds": (int, float)}
    for part, kinds in inside.items():
        if not all(_is_one(value, kinds) for value in record[part].values()):
            raise DamagedError(f"a record whose {part} is something else")
    if not all(_is_one(record["provenance"].get(key), (str, type(None))) for key in ORIGINS):
        raise DamagedError("a record whose provenance is something else")
    if result is not None:
        _check_result(record, result)


def _check_result(record: Record, result: dict[str, Any]) -> None:
    prompt = result.get("prompt")
    good = isinstance(prompt, list) and all(_is_one(token, (int,)) for token in prompt) and prompt
    if not good or not all(name in result for name in SHOWN):
        raise DamagedError("a result without its figures")
    try:
        row = row_of(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError("a result of something else") from error
    for name, kinds in _COLUMNS.items():
        if row[name] is not None and not _is_one(row[name], kinds):
            raise DamagedError(f"a result whose {name} is {row[name]!r}")
    if row["expected_utility"] is None:
        raise DamagedError("a result without its expected utility")


_TYPES: dict[str, tuple[type, ...]] = {
    **{"float64": (int, float), "int64": (int,), "bool": (bool,), "string": (str,)}
}
_COLUMNS = {
    name: _TYPES[kind] for name, kind in {**FIGURES, **dict.fromkeys(COSTS, "int64")}.items()
}


def _is_one(value: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether a value is of one of these kinds; a truth value is no number."""
    return type(value) in kinds and not (isinstance(value, float) and not math.isfinite(value))


def row_of(record: Record) -> Row:
    """A record without its history, flat; what a failed run does not have is None."""
    result = record["result"] or {}
    prompt, best, row = result.get("prompt"), result.get("best_prompt"), flat(result)
    kernel = result.get("prompt_kernel")
    return {
        "run": name_of(record["configuration"]),
        "status": record["status"],
        "error": record["error"],
        **{key: _once(value) for key, value in record["configuration"].items()},
        "prompt": None if prompt is None else _text(prompt),
        **{figure: row.get(figure) for figure in FIGURES},
        "best_prompt": None if best is None else _text(best),
        "prompt_kernel": None if kernel is None else dump(kernel),
        **{name: row.get(f"cost_{name}") for name in COSTS},
        "seconds": sum(record["seconds"].values()),
        **{key: _once(record["provenance"].get(key)) for key in ORIGINS},
    }


def _once(value: Any) -> Any:
    """A text that many rows share is held once."""
    return sys.intern(value) if type(value) is str else value


def _text(prompt: list[int]) -> str:
    return ("," if max(prompt) > 9 else "").join(map(str, prompt))
