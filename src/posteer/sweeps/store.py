"""The run store: one JSON file per run, named by the hash of its configuration.

    sweep.json          the configuration, the size of batches, the format, versions of posteer
    runs/HASH.json      one finished run each; it is done if this file is there and whole
    packs/*.pack        or many of them in one file, where the sweep is large (`sweeps.packs`)
    commits/KEY.json    a solved batch on its way into runs/
    claims, leases/     where a process is at work (`core.claiming`)
    quarantine/         files that were not whole, kept to be looked at
    banks/              latents drawn for the sweep
    sessions/           what each command that worked on the store did, and how long

A batch is written as one file first and only then spread over `runs/`: whoever opens the store
next finishes an interrupted spreading. So a solved batch is there as a whole or not at all, and a
killed sweep goes on with the very batches an uninterrupted one would solve. In a large sweep that
file is the batch's place, and there is nothing to spread.

A store may come from anybody. Every file is sealed, so that damage shows; but a seal is no
signature: names of files are matched against those we write, and no code is run because a store
names it.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from posteer import __version__
from posteer.core.claiming import Claiming
from posteer.core.errors import InputError, require
from posteer.core.files import read_plain, remove_stale, write_each
from posteer.core.leases import Terms
from posteer.core.reading import read_json
from posteer.core.sealing import read_sealed, write_sealed
from posteer.sweeps.configuration import (
    Place,
    SweepConfig,
    config_from,
    differences,
    grids_of,
    place_of,
    planned,
)
from posteer.sweeps.manifest import DamagedSweepError, description, read_manifest
from posteer.sweeps.packs import Packs, pack_name, packed
from posteer.sweeps.records import DamagedError, Record, is_run_file, seal, unseal
from posteer.sweeps.runs import name_of

SESSION = {"began": str, "ended": str, "runs": int, "wall_seconds": float, "phases": dict}
"""What a session says, at least."""
OWN = {"runs", "packs", "commits", "sessions", "claims", "leases", "banks", "quarantine", "jobs"}
STALE_SECONDS = 3600.0
MOST_LOOSE = 10_000
"""Runs of a sweep that are kept as a file each."""

PACKING = "packs"
"""What is claimed to join packs, or to change what is in them."""

Scanned = tuple[str, Record | DamagedError]


def _is_ours(name: str) -> bool:
    return name in OWN or name.endswith(".part")


@dataclass(frozen=True)
class Contents:
    """What a store holds: whole runs of its sweep and versions, other whole runs, what is wrong
    with the rest by name; and how many runs the sweep has at each place."""

    records: list[Record]
    strangers: list[str]
    damaged: dict[str, str]
    planned: Counter[Place]

    @property
    def total(self) -> int:
        return self.planned.total()

    def latest(self) -> list[Record]:
        """As many as the sweep has, the last finished of each place: a model or a function that
        was changed meanwhile leaves runs behind."""
        at: dict[Place, list[Record]] = defaultdict(list)
        for record in sorted(self.records, key=lambda r: str(r["provenance"].get("finished"))):
            at[place_of(record["configuration"])].append(record)
        return [one for place, found in at.items() for one in found[-self.planned[place] :]]


class RunStore:
    """A folder of runs that many processes may work on at once: by locks, or with `terms` by
    leases."""

    def __init__(self, folder: Path, terms: Terms | None = None) -> None:
        self.folder = folder
        self.runs, self.commits = folder / "runs", folder / "commits"
        self.quarantine, self.banks = folder / "quarantine", folder / "banks"
        self.sessions = folder / "sessions"
        self.claiming = Claiming(folder / "claims", folder / "leases", terms)
        self.packs = Packs(folder / "packs")

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """An existing store, for reading; one of another format is refused."""
        require(folder.is_dir(), f"'{folder}': there is no such folder")
        store = cls(folder)
        try:
            store.manifest()
        except DamagedSweepError as error:
            raise InputError(f"{error}: the sweep's command, run again, makes it anew") from error
        return store

    @classmethod
    def create(
        cls,
        folder: Path,
        config: SweepConfig,
        batch_size: int,
        *,
        extend: bool = False,
        any_size: bool = True,
        warn: Callable[[str], None] = lambda _text: None,
        terms: Terms | None = None,
    ) -> RunStore:
        """A store to run a sweep in: new, or one that holds this sweep, by this version.

        Batches are cut once and for all: a store keeps its size. `any_size` accepts it, whatever
        it is. A damaged sweep.json is set aside and made anew of the command and the runs.
        """
        store = cls(folder, terms)
        if folder.exists() and not store.described:
            ours = folder.is_dir() and all(_is_ours(path.name) for path in folder.iterdir())
            require(
                ours or store.described,  # by another process, since
                f"{folder}: there is something here that is no sweep: choose another `out`",
            )
        for part in (store.runs, store.commits, store.sessions):
            part.mkdir(parents=True, exist_ok=True)
        with store.claim("sweep.json", wait=True):
            versions: list[str] | None = [__version__]
            if store.described:
                store._mend(config, batch_size, warn)
                before = store.manifest().get("versions")
                config, batch_size = store._accept(config, batch_size, extend, any_size)
                versions = before and sorted({*before, __version__})
            facts = description(config, batch_size, __version__, versions)
            if not store.described or facts != store.manifest():
                write_sealed(folder / "sweep.json", facts)
        return store

    @property
    def described(self) -> bool:
        return (self.folder / "sweep.json").exists()

    @property
    def batch_size(self) -> int:
        return int(self.manifest()["batch"])

    @cached_property
    def is_large(self) -> bool:
        """Whether batches are kept as packs."""
        return sum(grid.size for grid in self.config().grids) > MOST_LOOSE

    def _accept(
        self, config: SweepConfig, batch_size: int, extend: bool, any_size: bool
    ) -> tuple[SweepConfig, int]:
        """The sweep and batch size of a store that a command may work on; others are refused."""
        manifest, here = self.manifest(), self.config()
        new = [grid for grid in config.grids if grid not in here.grids]
        changed = differences(config, here) if new else []
        if manifest["version"] != __version__:
            changed.append(f"posteer {__version__}: the runs are from {manifest['version']}")
        if not any_size and manifest["batch"] != batch_size:
            changed.append(f"batches of {batch_size}: those here are of {manifest['batch']}")
        require(
            extend or not changed,
            f"{self.folder} holds another sweep ({'; '.join(changed)}): choose another `out`, or "
            "`extend` to add to it",
        )
        union = SweepConfig(name=here.name, grids=(*here.grids, *new))
        return union, batch_size if not any_size else manifest["batch"]

    def _mend(self, config: SweepConfig, batch_size: int, warn: Callable[[str], None]) -> None:
        """Make a damaged sweep.json anew: the command's grids, and those of runs it has not."""
        try:
            self.manifest()
        except DamagedSweepError as error:
            records, _ = self.records()
            known = planned(config)
            more = [r["configuration"] for r in records]
            more = [one for one in more if place_of(one) not in known]
            whole = SweepConfig(name=config.name, grids=(*config.grids, *grids_of(more)))
            versions = sorted({str(r["provenance"].get("posteer")) for r in records})
            version = versions[-1] if versions else __version__
            sizes = [one["batch"] for one in self.read_sessions()[0] if "batch" in one]
            kept = self.keep_aside(self.folder / "sweep.json")
            facts = description(whole, sizes[-1] if sizes else batch_size, version, versions)
            write_sealed(self.folder / "sweep.json", facts)
            warn(f"{error}: moved to {kept}, made anew of the command and {len(records)} runs")

    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.folder)

    def config(self) -> SweepConfig:
        return config_from(self.manifest()["configuration"], str(self.folder / "sweep.json"))

    def contents(self, keep: Callable[[Record], Record | None] = lambda record: record) -> Contents:
        """What there is of the sweep, of each record what `keep` returns, if anything. A store of
        an earlier version does not say of which versions its runs are: they are not looked at."""
        versions, places = self.manifest().get("versions"), planned(self.config())
        records, strangers, damaged = [], [], {}
        for name, one in self.scan():
            if isinstance(one, DamagedError):
                damaged[name] = str(one)
                continue
            ours = versions is None or one["provenance"].get("posteer") in versions
            if ours and place_of(one["configuration"]) in places:
                records += [] if (kept := keep(one)) is None else [kept]
            else:
                strangers.append(name)
        return Contents(records, strangers, damaged | self.packs.damaged, places)

    def read_sessions(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """What each process did, in order, and what is wrong with files that cannot say."""
        found, damaged = [], {}
        for path in sorted(self.sessions.glob("[!.]*.json")):
            try:
                facts = read_sealed(path)
                whole = all(isinstance(facts.get(k), kind) for k, kind in SESSION.items())
                require(whole, f"{path} is damaged: it is no session")
                found.append(facts)
            except InputError as error:
                damaged[path.name] = str(error)
        return found, damaged

    def has(self, name: str) -> bool:
        """Whether a run is there, as far as this process has looked (`refresh`)."""
        return bytes.fromhex(name) in self.packs.held or (self.runs / f"{name}.json").exists()

    def refresh(self) -> None:
        """See which packs others have written."""
        self.packs.refresh()

    def names(self) -> set[str]:
        """Runs whose files are there; whether they are whole shows on reading."""
        return self._loose() | {run.hex() for run in self.packs.held}

    def _loose(self) -> set[str]:
        """Runs that have a file each; then those in packs are looked at too."""
        loose = {path.stem for path in self.runs.glob("[!.]*.json")}
        self.refresh()  # after them: what is packed meanwhile is in one or both
        return loose

    def read(self, name: str) -> Record:
        try:
            return unseal(read_plain(self.runs / f"{name}.json"), name)
        except FileNotFoundError:
            return unseal(self.packs.read(name), name)
        except InputError as error:
            raise DamagedError("not a plain file") from error

    def scan(self, names: Iterable[str] | None = None) -> Iterator[Scanned]:
        """Records by name, or what is wrong with their files; one at a time, those in packs after
        the others."""
        wanted = (lambda _name: True) if names is None else set(names).__contains__
        for name in sorted(self._loose()):
            if not wanted(name) or bytes.fromhex(name) in self.packs.held:
                continue
            try:
                yield name, self.read(name)
            except DamagedError as error:
                yield name, error
            except FileNotFoundError:
                continue  # another process is setting it aside
        for name, data in self.packs.read_all(wanted):
            try:
                yield name, unseal(data, name)
            except DamagedError as error:
                yield name, error

    def records(self, names: Iterable[str] | None = None) -> tuple[list[Record], dict[str, str]]:
        """All whole records by name, and what is wrong with each file that is not."""
        found, damaged = {}, {}
        for name, one in self.scan(names):
            if isinstance(one, DamagedError):
                damaged[name] = str(one)
            else:
                found[name] = one
        return [found[name] for name in sorted(found)], damaged

    def keep_aside(self, path: Path) -> Path:
        """Move a damaged file out of the way; it is never deleted."""
        self.quarantine.mkdir(exist_ok=True)
        return path.rename(self.quarantine / f"{path.stem}.{time.time_ns()}{path.suffix}")

    def put(self, record: Record) -> None:
        """Keep a run in place of what was kept of it: one of the two is there at any moment."""
        name = name_of(record["configuration"])
        write_each(self.runs, {f"{name}.json": seal(record)})
        self.forget([name], loose=False)

    def forget(self, names: Iterable[str], loose: bool = True) -> None:
        """Drop runs that are to be run again; those in packs alone where it is not `loose`."""
        gone = list(names)
        for name in gone if loose else ():
            (self.runs / f"{name}.json").unlink(missing_ok=True)
        self.refresh()
        if any(bytes.fromhex(name) in self.packs.held for name in gone):
            with self.claim(PACKING, wait=True):
                self.refresh()
                self.packs.drop(gone)

    def commit(self, key: str, records: list[Record]) -> bool:
        """Keep the runs of a batch, all of them at one moment; False if it is another's by now,
        and then nothing is kept."""
        files = {name_of(r["configuration"]): seal(r) for r in records}
        target = self._target(key)
        if not self.is_large:
            whole = {f"{name}.json": data.decode() for name, data in files.items()}
            if not self.claiming.publish(key, target, json.dumps(whole).encode()):
                return False
            self._spread(target)
            return True
        self.packs.folder.mkdir(exist_ok=True)
        if not self.claiming.publish(key, target, packed(files)):
            return False
        self._join_packs()
        return True

    def _target(self, key: str) -> Path:
        """The file that a batch is published as."""
        return self.packs.folder / f"{key}.pack" if self.is_large else self.commits / f"{key}.json"

    def _join_packs(self) -> None:
        """Join packs of one size if there are many; whoever comes upon it does it."""
        self.refresh()
        if not self.packs.full():
            return
        with self.claim(PACKING) as mine:
            self.refresh()
            for packs in self.packs.full() if mine else []:
                files = self.packs.files_of(packs)
                joined = self.packs.folder / pack_name(files)
                if not self.claiming.publish(PACKING, joined, packed(files)):
                    return
                self.packs.remove(pack for pack in packs if pack != joined.name)
                if self.claiming.terms is not None:
                    return  # the claim was given back with it

    def recover(self) -> list[str]:
        """Finish what killed processes had begun to commit, and clean up after them; what could
        not be read is set aside and named."""
        told = []
        for journal in sorted(self.commits.glob("[!.]*.json")):
            with self.claim_batch(journal.stem) as mine:
                if mine and not self._spread(journal):
                    told.append(f"{journal} is damaged: set aside, its batch is solved again")
                    self.keep_aside(journal)
        own = (self.runs, self.packs.folder, self.commits, self.sessions, self.banks)
        for folder in (self.folder, *own):
            remove_stale(folder, STALE_SECONDS)
        self.claiming.leases.tidy()
        return told

    def finish(self, key: str) -> None:
        """Spread a batch that a killed process had committed, if it is this; see what is there."""
        if not self.is_large:
            self._spread(self.commits / f"{key}.json")
        self.refresh()

    def _spread(self, journal: Path) -> bool:
        try:
            files = read_json(read_plain(journal), str(journal))
            require(isinstance(files, dict), f"{journal}: no batch")
            for name, text in files.items():
                require(is_run_file(name) and isinstance(text, str), f"{journal}: no batch")
                unseal(text.encode(), name[:-5])
        except FileNotFoundError:
            return True  # another process has done it
        except (InputError, DamagedError):
            return False  # a machine that lost power, or somebody's hand
        absent = {n: text.encode() for n, text in files.items() if not self.has(n[:-5])}
        write_each(self.runs, absent)
        journal.unlink(missing_ok=True)
        return True

    def claim(self, key: str, wait: bool = False) -> AbstractContextManager[bool]:
        """Whether a piece of work is this process's; a dead one's is free at once, or where there
        are leases after their time."""
        return self.claiming.claim(key, wait=wait)

    def claim_batch(self, key: str) -> AbstractContextManager[bool]:
        """The same of a batch: one that a dead process had solved is brought in first."""
        return self.claiming.claim(key, self._target(key))
