"""JSON and TOML that others may have written: bounded in depth and digits, refused in one line."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from typing import Any

from posteer.core.errors import InputError, require

DEEPEST = 32
"""Lists and tables inside one another."""

LARGEST = 10**40
"""Whole numbers stay below it: enough for any seed, and Python writes it out at once."""


def read_json(text: str | bytes, what: str) -> Any:
    """A value from strict JSON; `what` it is the text of begins the refusal.

    >>> read_json('{"a": [1, 2.5]}', "facts")
    {'a': [1, 2.5]}
    """
    return _read(json.loads, text, what, "JSON")


def read_toml(text: str | bytes, what: str) -> dict[str, Any]:
    """A table from TOML, refused alike."""
    found: dict[str, Any] = _read(
        lambda given: tomllib.loads(given.decode() if isinstance(given, bytes) else given),
        text,
        what,
        "TOML",
    )
    return found


def _read(parse: Callable[[str | bytes], Any], text: str | bytes, what: str, kind: str) -> Any:
    try:
        value = parse(text)
    except RecursionError:
        raise InputError(f"{what}: brackets more than {DEEPEST} deep") from None
    except ValueError as error:  # bad syntax, bad encoding, thousands of digits
        raise InputError(f"{what}: not {kind}: {' '.join(str(error).split())}") from error
    _check(value, what)
    return value


def _check(value: Any, what: str) -> None:
    """Refuse what is too deep, too large or not a number; level by level, so that it cannot end in
    a recursion of its own."""
    level, deep = [value], 0
    while level:
        inside: list[Any] = []
        for one in level:
            if isinstance(one, dict | list):
                require(deep < DEEPEST, f"{what}: brackets more than {DEEPEST} deep")
                inside += one.values() if isinstance(one, dict) else one
            elif isinstance(one, float):
                require(math.isfinite(one), f"{what}: {one} is not a finite number")
            elif isinstance(one, int):
                require(abs(one) < LARGEST, f"{what}: a whole number of more than 40 digits")
        level, deep = inside, deep + 1
