"""Many runs in one file: an index as one sealed line, then the bytes of each run's own file.

A sweep of many runs keeps each batch as such a file, `packs/KEY.pack`, whole from the moment it has
its name; once there are many of one size they are joined into one, which is whole before those it
is made of are removed. So there are hundreds of files, not a million, and at every moment each run
that was ever there is in one of them at least.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import open_plain, read_plain, write_atomically
from posteer.core.reading import read_json
from posteer.core.sealing import dump, opened, sealed
from posteer.sweeps.records import DamagedError, is_run_file, unseal
from posteer.sweeps.runs import name_of

SUFFIX = ".pack"
FAN = 256
"""Packs of one size that are joined into one."""
GROWTH = 16
"""Packs within so much of each other are of one size."""
LARGEST_INDEX = 2**28

Name = bytes
"""A run's name as the 32 bytes it stands for: a million of them are held."""


def packed(files: Mapping[str, bytes]) -> bytes:
    """Runs' files by name, as one."""
    names = sorted(files)
    index = sealed({"names": names, "sizes": [len(files[name]) for name in names]})
    return b"".join([dump(index).encode(), b"\n", *(files[name] for name in names)])


def pack_name(names: Iterable[str]) -> str:
    """Of a pack that is made of others: the same for the same runs."""
    return hashlib.sha256("".join(sorted(names)).encode()).hexdigest() + SUFFIX


@dataclass(frozen=True)
class Index:
    """Where each run of a pack begins, and how many bytes it has."""

    places: dict[str, tuple[int, int]]


def read_index(file: Any, where: str) -> Index:
    """The index of an open pack; one that is not whole is refused."""
    line = file.readline(LARGEST_INDEX)
    facts = opened(read_json(line, f"{where} is damaged"), where)
    names, sizes = facts.get("names"), facts.get("sizes")
    good = isinstance(names, list) and isinstance(sizes, list) and len(names) == len(sizes)
    require(good, f"{where} is damaged: it has no index")
    assert isinstance(names, list) and isinstance(sizes, list)
    places, at = {}, len(line)
    for name, size in zip(names, sizes, strict=True):
        whole = isinstance(name, str) and is_run_file(f"{name}.json") and type(size) is int
        require(whole and 0 <= size <= LARGEST_INDEX, f"{where} is damaged: it names no runs")
        places[name] = (at, size)
        at += size
    return Index(places)


@dataclass
class Packs:
    """The packs of a store; what they hold is read when it is asked for."""

    folder: Path
    held: dict[Name, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    _inside: dict[str, list[Name]] = field(default_factory=dict)
    _last: tuple[str, Index] | None = None

    def refresh(self) -> None:
        """See what came and went."""
        try:
            listed = os.listdir(self.folder)
        except FileNotFoundError:
            listed = []
        there = {name for name in listed if name.endswith(SUFFIX) and name[0] != "."}
        for name in sorted(there - self._inside.keys()):
            try:
                inside = [bytes.fromhex(run) for run in self._index(name).places]
            except InputError as error:
                self.damaged[name] = str(error)
                continue
            except FileNotFoundError:
                continue  # it has been joined to others meanwhile
            self._inside[name] = inside
            self.held.update(dict.fromkeys(inside, name))
        for name in self._inside.keys() - there:
            for run in self._inside.pop(name):
                if self.held.get(run) == name:
                    del self.held[run]
        self.damaged = {name: why for name, why in self.damaged.items() if name in there}

    def _index(self, pack: str) -> Index:
        if self._last is None or self._last[0] != pack:
            with open_plain(self.folder / pack) as file:
                self._last = (pack, read_index(file, str(self.folder / pack)))
        return self._last[1]

    def read(self, name: str) -> bytes:
        """The bytes of a run's file, or FileNotFoundError."""
        for _ in range(3):  # a pack may be joined to others while it is looked for
            pack = self.held.get(bytes.fromhex(name))
            if pack is not None:
                with suppress(FileNotFoundError), open_plain(self.folder / pack) as file:
                    at, size = self._index(pack).places[name]
                    file.seek(at)
                    data: bytes = file.read(size)
                    return data
            self.refresh()
        raise FileNotFoundError(name)

    def read_all(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Runs pack by pack, in order: each pack is read once."""
        left = {run for run in self.held if wanted(run.hex())}
        while left:
            before = len(left)
            for pack in sorted({self.held[run] for run in left}):
                try:
                    with open_plain(self.folder / pack) as file:
                        index = read_index(file, str(self.folder / pack))
                        for name, (_, size) in index.places.items():
                            data: bytes = file.read(size)
                            if (run := bytes.fromhex(name)) in left:
                                left.remove(run)
                                yield name, data
                except FileNotFoundError:
                    continue
            self.refresh()
            left &= self.held.keys()
            if len(left) == before:
                return

    def full(self) -> list[list[str]]:
        """Packs that it is time to join, by size."""
        sizes: dict[int, list[str]] = defaultdict(list)
        for pack, inside in self._inside.items():
            sizes[_class(len(inside))].append(pack)
        return [sorted(packs) for packs in sizes.values() if len(packs) >= FAN]

    def files_of(self, packs: Iterable[str]) -> dict[str, bytes]:
        """What some packs hold, by name."""
        files: dict[str, bytes] = {}
        for pack in packs:
            with suppress(FileNotFoundError), open_plain(self.folder / pack) as file:
                index = read_index(file, str(self.folder / pack))
                files |= {name: file.read(size) for name, (_, size) in index.places.items()}
        return files

    def remove(self, packs: Iterable[str]) -> None:
        """Packs that others stand for now."""
        for pack in packs:
            (self.folder / pack).unlink(missing_ok=True)
        self.refresh()

    def drop(self, names: Iterable[str]) -> None:
        """Write the packs that hold these runs again without them, under another name."""
        gone = set(names)
        packs = {self.held[run] for name in gone if (run := bytes.fromhex(name)) in self.held}
        for pack in sorted(packs):
            rest = {name: data for name, data in self.files_of([pack]).items() if name not in gone}
            if rest:
                write_atomically(self.folder / pack_name(rest), packed(rest))
        self.remove(packs)


def _class(runs: int) -> int:
    found = 0
    while runs >= GROWTH:
        runs, found = runs // GROWTH, found + 1
    return found


def salvaged(path: Path) -> dict[str, bytes]:
    """Whole runs in a pack whose index is damaged, by their own names."""
    found = {}
    for line in read_plain(path).splitlines(keepends=True)[1:]:
        with suppress(InputError, DamagedError, KeyError, TypeError):
            facts = read_json(line, "a run")
            name = name_of(facts["configuration"])
            unseal(line, name)
            found[name] = line
    return found
