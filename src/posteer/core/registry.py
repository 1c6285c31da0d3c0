"""Things by name: built in, added by a caller, or offered by an installed package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from posteer.core.errors import InputError, require
from posteer.core.spec import meant, shown

T = TypeVar("T")


class Registry(Generic[T]):
    """Names and what they stand for: a thing, or `module:attribute`, imported when asked for.

    A package offers things of its own under the entry-point group `posteer.<group>`; `add` does the
    same for a running process. Built-in names cannot be taken.

    >>> colours = Registry("colour", "colours", {"red": 1})
    >>> colours.add("green", 2)
    >>> colours.names(), colours["green"]
    (['red', 'green'], 2)
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, T | str]) -> None:
        self.kind, self.group = kind, f"posteer.{group}"
        self._things: dict[str, T | str] = dict(built_in)
        self._offered: dict[str, EntryPoint] | None = None

    def add(self, name: str, thing: T) -> None:
        """Register `thing`; a name that is taken is refused."""
        require(name not in self, f"there is a {self.kind} '{name}' already")
        self._things[name] = thing

    def remove(self, name: str) -> None:
        """Forget a thing that was added."""
        del self._things[name]

    def names(self) -> list[str]:
        """Every name, built-in ones first."""
        return list({**self._things, **self._from_packages()})

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._from_packages()

    def __getitem__(self, name: str) -> T:
        """What a name stands for; an unknown one is refused with those there are."""
        if name not in self:
            raise InputError(
                f"unknown {self.kind} '{shown(name)}': {meant(name, self.names())}expected one of "
                f"{', '.join(self.names())}"
            )
        thing = self._things.get(name)
        if thing is None:
            thing = self._from_packages()[name].load()
        elif isinstance(thing, str):
            thing = EntryPoint(name, thing, self.group).load()
        self._things[name] = thing
        return cast(T, thing)

    def _from_packages(self) -> dict[str, EntryPoint]:
        """What installed packages offer under names of their own; looked for once."""
        if self._offered is None:
            found = entry_points(group=self.group)
            self._offered = {one.name: one for one in found if one.name not in self._things}
        return self._offered
