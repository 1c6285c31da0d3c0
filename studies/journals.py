"""Records that a study adds to a file one by one, so that it goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """Records of a file, to which those that it has not are added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = {_key(one) for one in read_lines(path)} if path.exists() else set()

    def add(self, key: tuple[Any, ...], make: Callable[[], dict[str, Any]]) -> None:
        if key in self.keys:
            return
        record = rounded(make())
        assert _key(record) == key
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(_line(record), flush=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Records that are still being made, with no seal."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def rounded(value: Any) -> Any:
    """With six digits of every number."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    names = ("kind", "text", "length", "utility", "method", "budget")
    return tuple(record[name] for name in names if name in record)


def _line(record: dict[str, Any]) -> str:
    names = ("rank", "J", "tokens", "rank_of_banks_first_8")
    figures = [record[name] for name in names if not isinstance(record.get(name, []), list)]
    return "  ".join(str(one) for one in (*_key(record), *figures))
