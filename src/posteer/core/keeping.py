"""Dataclasses as JSON and back, by the types of their fields: what does not fit them is refused.

Tensors become `{"tensor": type, "values": lists}`, infinities and nan `{"figure": text}`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from posteer.core.errors import InputError, require

TENSORS = {"int64": torch.int64, "float64": torch.float64, "float32": torch.float32}
LEAVES = (bool, int, float, str, type(None))


def told(value: Any, without: Collection[type] = ()) -> Any:
    """A value as JSON holds it; objects of the types in `without` are left out as None.

    >>> told((1, math.inf))
    [1, {'figure': 'inf'}]
    """
    if isinstance(value, tuple(without)):
        return None
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        require(kind in TENSORS, f"a tensor of {kind} is not kept")
        return {"tensor": kind, "values": told(value.tolist())}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {one.name: told(getattr(value, one.name), without) for one in fields(value)}
    if isinstance(value, dict):
        return {str(key): told(entry, without) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [told(entry, without) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"figure": str(value)}
    require(isinstance(value, LEAVES), f"a {type(value).__name__} is not kept")
    return value


def made(kind: Any, data: Any, where: str = "it") -> Any:
    """What `told` told of a value of this kind; `where` names what is wrong."""
    if isinstance(data, dict) and data.keys() == {"figure"}:
        figures = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
        require(data["figure"] in figures, f"{where}: no figure")
        return figures[data["figure"]]
    if isinstance(data, dict) and data.keys() == {"tensor", "values"}:
        return _tensor(data, where)
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _any_of(inside, data, where)
    if kind is Any:
        return data
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = {one.value: one for one in kind}
        require(isinstance(data, str) and data in known, f"{where}: unknown {str(data)[:40]!r}")
        return known[data]
    if origin in (list, tuple):
        require(isinstance(data, list), f"{where}: expected a list")
        items = [made(inside[0], one, f"{where}[{at}]") for at, one in enumerate(data)]
        return items if origin is list else tuple(items)
    if origin is dict:
        require(isinstance(data, dict), f"{where}: expected a table")
        return {key: made(inside[1], one, f"{where}.{key}") for key, one in data.items()}
    require(type(data) is kind, f"{where}: expected {getattr(kind, '__name__', kind)}")
    return data


def _any_of(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    """As the first kind that it fits."""
    if data is None and type(None) in kinds:
        return None
    wrong = InputError(f"{where}: nothing that is written there")
    for kind in kinds:
        if kind is not type(None):
            try:
                return made(kind, data, where)
            except InputError as error:
                wrong = error
    raise wrong


def _record(kind: type, data: Any, where: str) -> Any:
    known = get_type_hints(kind)
    own = [one.name for one in fields(kind)]
    whole = isinstance(data, dict) and data.keys() == set(own)
    require(whole, f"{where}: expected {', '.join(own)}")
    return kind(**{name: made(known[name], data[name], f"{where}.{name}") for name in own})


def _tensor(data: dict[str, Any], where: str) -> Tensor:
    require(data["tensor"] in TENSORS, f"{where}: no tensor")
    try:
        return torch.tensor(_plain(data["values"]), dtype=TENSORS[data["tensor"]])
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{where}: no tensor") from error


def _plain(values: Any) -> Any:
    if isinstance(values, list):
        return [_plain(one) for one in values]
    return made(Any, values)
