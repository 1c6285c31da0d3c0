"""Parquet files with a seal: the SHA-256 of all their bytes, kept in the footer.

The digest is taken with zeros in its own place. A file of an earlier version has none; it may be
listed in a `SHA256SUMS` beside it instead, and is compared with that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import read_plain, write_atomically
from posteer.core.sealing import SUMS, check_listed

KEY = "posteer.sha256"
_SEAL = re.compile(KEY.encode().replace(b".", rb"\.") + rb"\x18\x40([0-9a-f]{64})")
_BLANK = b"0" * 64
ROWS_AT_ONCE, ROWS_IN_A_GROUP = 10_000, 100_000
"""That are held as dictionaries, and that are one group of a file."""
KINDS = {"int64": "is_integer", "float64": "is_floating", "bool": "is_boolean"}


@dataclass(frozen=True)
class Table:
    """Rows, the facts kept with them, and whether anything vouches for the file."""

    rows: list[dict[str, Any]]
    metadata: dict[bytes, bytes]
    sealed: bool


class Columns:
    """Rows that come one at a time, kept as columns: a small part of what dictionaries take."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        library()
        import pyarrow

        lists = {"list": pyarrow.list_(pyarrow.float32())}
        self.schema = pyarrow.schema([(name, lists.get(k, k)) for name, k in kinds.items()])
        self._coded = _of_texts(self.schema, pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
        self._some: list[dict[str, Any]] = []
        self._parts: list[Any] = []

    def add(self, row: dict[str, Any]) -> None:
        self._some.append(row)
        if len(self._some) >= ROWS_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        import pyarrow

        plain = pyarrow.Table.from_pylist(self._some, schema=self.schema)
        self._parts.append(plain.cast(self._coded))
        self._some = []

    def write(
        self,
        out: Path,
        metadata: dict[str, str] | None = None,
        order: Sequence[str] = (),
        **how: Any,
    ) -> None:
        """One sealed file, sorted by the columns in `order`: the same rows are the same bytes."""
        parquet = library()
        import pyarrow

        self._settle()
        table = pyarrow.concat_tables(self._parts).unify_dictionaries().combine_chunks()
        self._parts = []
        place = _places(table, order, self.schema)
        sink, schema = pyarrow.BufferOutputStream(), self.schema.with_metadata(metadata)
        with parquet.ParquetWriter(sink, schema, compression="zstd", **how) as writer:
            for first in range(0, max(len(table), 1), ROWS_IN_A_GROUP):
                some = table.take(place[first : first + ROWS_IN_A_GROUP])
                writer.write_table(some.cast(schema))
            writer.add_key_value_metadata({KEY: _BLANK.decode()})
        data = bytearray(sink.getvalue())
        found = _seal_in(data)
        assert found is not None
        first, last = found.span(1)
        del found  # it holds the bytes
        data[first:last] = hashlib.sha256(data).hexdigest().encode()
        write_atomically(out, bytes(data))


def _of_texts(schema: Any, kind: Any) -> Any:
    """A schema whose texts are of another type."""
    from pyarrow import types

    for at, one in enumerate(schema):
        if types.is_string(one.type):
            schema = schema.set(at, one.with_type(kind))
    return schema


def _places(table: Any, order: Sequence[str], schema: Any) -> Any:
    """Where the rows of a sorted table are in this one."""
    import pyarrow
    from pyarrow import compute

    if not order:
        return pyarrow.array(range(len(table)), pyarrow.int64())
    keys = table.select(order).cast(pyarrow.schema([schema.field(name) for name in order]))
    return compute.sort_indices(keys, sort_keys=[(name, "ascending") for name in order])


def write(
    rows: Iterable[dict[str, Any]],
    kinds: Mapping[str, str],
    out: Path,
    metadata: dict[str, str] | None = None,
    **how: Any,
) -> None:
    """Rows as one sealed file, in their order."""
    columns = Columns(kinds)
    for row in rows:
        columns.add(row)
    columns.write(out, metadata, **how)


def read(path: Path, kinds: Mapping[str, str], least: set[str]) -> Table:
    """The rows of a file, verified; `least` are columns it must have, and no gaps in them."""
    parquet = library()
    import pyarrow

    data = read_plain(path)
    check_listed(path)
    found = _seal_in(data)
    if found is not None:
        blank = data[: found.start(1)] + _BLANK + data[found.end(1) :]
        whole = hashlib.sha256(blank).hexdigest().encode() == found[1]
        require(whole, f"{path} is damaged: its SHA-256 is not the one it was written with")
    try:
        table = parquet.read_table(pyarrow.BufferReader(data))
        rows: list[dict[str, Any]] = table.to_pylist()
    except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a Parquet file") from error
    other = f"{path}: a Parquet file of something else"
    require(least <= set(table.column_names), other)
    for name in table.column_names:
        require(_holds(table.schema.field(name).type, kinds.get(name)), f"{other}: {name}")
        require(name not in least or table[name].null_count == 0, f"{other}: {name}")
    vouched = found is not None or path.with_name(SUMS).is_file()
    return Table(rows, dict(table.schema.metadata or {}), vouched)


def count(path: Path) -> int:
    """How many rows a file says it has, before they are read."""
    parquet = library()
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a Parquet file") from error


def _holds(kind: Any, wanted: str | None) -> bool:
    """Whether a column is of the kind that we write; one of nothing but gaps is of any."""
    from pyarrow import types

    if wanted is None or types.is_null(kind):
        return True
    if wanted == "list":
        return bool(types.is_list(kind) and types.is_floating(kind.value_type))
    if wanted == "string":
        return bool(types.is_string(kind) or types.is_large_string(kind))
    return bool(getattr(types, KINDS[wanted])(kind))


def _seal_in(data: bytes | bytearray) -> re.Match[bytes] | None:
    """The last in the file: before the footer the same bytes may be anything."""
    found = None
    for found in _SEAL.finditer(data):  # noqa: B007
        pass
    return found


def library() -> Any:
    """pyarrow's Parquet, where it is installed."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            "Parquet files and data frames need pandas and pyarrow: pip install 'posteer[results]'"
        ) from error
    return parquet
