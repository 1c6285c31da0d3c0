"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def row(*entries: object) -> str:
    """A line of a table."""
    return "| " + " | ".join(map(str, entries)) + " |"


def heading(names: str) -> list[str]:
    """The first two lines of a table, whose columns are named by `| a | b |`."""
    return [names, "|---" * (names.count("|") - 1) + "|"]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by what they have in common, in the order in which it is met."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
