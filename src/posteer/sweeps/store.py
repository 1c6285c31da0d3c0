"""The run store: one JSON file per run, named by the hash of its configuration.

    sweep.json          the configuration, the size of batches, the format, versions of posteer
    runs/HASH.json      one finished run each; it is done if this file is there and whole
    commits/KEY.json    a solved batch on its way into runs/
    claims              locked where a process is at work (`core.locks`)
    quarantine/         files that were not whole, kept to be looked at
    banks/              latents drawn for the sweep
    sessions/           what each command that worked on the store did, and how long

A batch is written as one file first and only then spread over `runs/`: whoever opens the store
next finishes an interrupted spreading. So a solved batch is there as a whole or not at all, and a
killed sweep goes on with the very batches an uninterrupted one would solve.

A store may come from anybody. Every file is sealed, so that damage shows; but a seal is no
signature: names of files are matched against those we write, and no code is run because a store
names it.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posteer import __version__
from posteer.core.errors import InputError, require
from posteer.core.files import LEFTOVER, read_plain, write_atomically, write_each
from posteer.core.locks import Claims
from posteer.core.reading import read_json
from posteer.core.sealing import read_sealed, write_sealed
from posteer.sweeps.configuration import (
    MOST_RUNS,
    Place,
    SweepConfig,
    config_from,
    differences,
    grids_of,
    place_of,
    planned,
)
from posteer.sweeps.records import DamagedError, Record, is_run_file, seal, unseal
from posteer.sweeps.runs import name_of

FORMAT = "posteer-runs-1"
SESSION = {"began": str, "ended": str, "runs": int, "wall_seconds": float, "phases": dict}
"""What a session says, at least."""
OWN = {"runs", "commits", "sessions", "claims", "banks", "quarantine"}
STALE_SECONDS = 3600.0


def _is_ours(name: str) -> bool:
    return name in OWN or name.endswith(".part")


class DamagedSweepError(InputError):
    """A sweep.json that is not what was written."""


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
    """A folder of runs that many processes may work on at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs, self.commits = folder / "runs", folder / "commits"
        self.quarantine, self.banks = folder / "quarantine", folder / "banks"
        self.sessions = folder / "sessions"
        self._claims = Claims(folder / "claims")

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """An existing store, for reading; one of another format is refused."""
        require(folder.is_dir(), f"{folder}: there is no such folder")
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
    ) -> RunStore:
        """A store to run a sweep in: new, or one that holds this sweep, by this version.

        Batches are cut once and for all: a store keeps its size. `any_size` accepts it, whatever
        it is. A damaged sweep.json is set aside and made anew of the command and the runs.
        """
        store = cls(folder)
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
            facts = _description(config, batch_size, __version__, versions)
            if not store.described or facts != store.manifest():
                write_sealed(folder / "sweep.json", facts)
        return store

    @property
    def described(self) -> bool:
        return (self.folder / "sweep.json").exists()

    @property
    def batch_size(self) -> int:
        return int(self.manifest()["batch"])

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
            facts = _description(whole, sizes[-1] if sizes else batch_size, version, versions)
            write_sealed(self.folder / "sweep.json", facts)
            warn(f"{error}: moved to {kept}, made anew of the command and {len(records)} runs")

    def manifest(self) -> dict[str, Any]:
        path = self.folder / "sweep.json"
        require(path.exists(), f"{self.folder}: no sweep was run here (there is no sweep.json)")
        try:
            facts = read_sealed(path)
        except InputError as error:
            raise DamagedSweepError(f"{error}") from error
        require(
            facts.get("format") == FORMAT,
            f"{self.folder}: a store of format {facts.get('format')!r}, and this posteer "
            f"({__version__}) reads {FORMAT!r}: use the version that wrote it",
        )
        batch, versions = facts.get("batch"), facts.get("versions", [])
        texts = [facts.get("version"), *(versions if isinstance(versions, list) else [None])]
        good = type(batch) is int and 1 <= batch <= MOST_RUNS
        good = good and all(isinstance(text, str) for text in texts)
        if not good or not isinstance(facts.get("configuration"), dict):
            raise DamagedSweepError(f"{path} is damaged: it describes no sweep")
        try:
            config_from(facts["configuration"], str(path))
        except InputError as error:
            raise DamagedSweepError(f"{path} is damaged: {error}") from error
        return facts

    def config(self) -> SweepConfig:
        return config_from(self.manifest()["configuration"], str(self.folder / "sweep.json"))

    def contents(self) -> Contents:
        """What there is of the sweep. A store of an earlier version does not say which versions of
        posteer it holds runs of: they are not looked at."""
        versions, places = self.manifest().get("versions"), planned(self.config())
        whole, damaged = self.records()
        records, strangers = [], []
        for one in whole:
            ours = versions is None or one["provenance"].get("posteer") in versions
            if ours and place_of(one["configuration"]) in places:
                records.append(one)
            else:
                strangers.append(name_of(one["configuration"]))
        return Contents(records, strangers, damaged, places)

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
        return (self.runs / f"{name}.json").exists()

    def names(self) -> set[str]:
        """Runs whose files are there; whether they are whole shows on reading."""
        return {path.stem for path in self.runs.glob("[!.]*.json")}

    def read(self, name: str) -> Record:
        try:
            return unseal(read_plain(self.runs / f"{name}.json"), name)
        except InputError as error:
            raise DamagedError("not a plain file") from error

    def records(self, names: Iterable[str] | None = None) -> tuple[list[Record], dict[str, str]]:
        """All whole records by name, and what is wrong with each file that is not."""
        found, damaged = [], {}
        for name in sorted(self.names() if names is None else names):
            try:
                found.append(self.read(name))
            except DamagedError as error:
                damaged[name] = str(error)
            except FileNotFoundError:
                continue  # another process is setting it aside
        return found, damaged

    def set_damaged_aside(self) -> list[str]:
        """Look at every file; what is not whole is set aside and named."""
        told = []
        for name in self.records()[1]:
            with self.claim(name, wait=True):
                try:
                    self.read(name)  # another process may have mended it since
                except FileNotFoundError:
                    continue
                except DamagedError as error:
                    kept = self.keep_aside(self.runs / f"{name}.json")
                    told.append(f"runs/{name}.json is damaged ({error}): moved to {kept}")
        for name, wrong in self.read_sessions()[1].items():
            told.append(f"{wrong}: moved to {self.keep_aside(self.sessions / name)}")
        return told

    def set_outdated_aside(self, runs: Iterable[Mapping[str, Any]]) -> list[str]:
        """Set aside runs that stand where one of these configurations does, with the same bank, and
        are none of them: of a model or a utility as it was before it changed. Tables would not know
        which to show."""
        own = {name_of(dict(one)): (place_of(one), one["bank"]) for one in runs}
        places, found = set(own.values()), Counter[str]()
        for record in self.records(self.names() - own.keys())[0]:
            configuration = record["configuration"]
            name = name_of(configuration)
            if (place_of(configuration), configuration["bank"]) not in places:
                continue
            with self.claim(name, wait=True):
                if self.has(name):
                    self.keep_aside(self.runs / f"{name}.json")
                    found[configuration["model"]] += 1
        return [
            f"{n} runs of {model} from before it, or a utility, changed are moved to "
            f"{self.quarantine}: they are run again"
            for model, n in found.items()
        ]

    def keep_aside(self, path: Path) -> Path:
        """Move a damaged file out of the way; it is never deleted."""
        self.quarantine.mkdir(exist_ok=True)
        kept = self.quarantine / f"{path.stem}.{time.time_ns()}{path.suffix}"
        path.rename(kept)
        return kept

    def forget(self, name: str) -> None:
        """Drop a run that is to be run again."""
        (self.runs / f"{name}.json").unlink(missing_ok=True)

    def commit(self, key: str, records: list[Record]) -> None:
        """Keep the runs of a batch, all of them at one moment."""
        files = {f"{name_of(r['configuration'])}.json": seal(r).decode() for r in records}
        journal = self.commits / f"{key}.json"
        write_atomically(journal, json.dumps(files).encode())
        self._spread(journal)

    def recover(self) -> list[str]:
        """Finish what killed processes had begun to commit, and clean up after them; what could
        not be read is set aside and named."""
        told = []
        for journal in sorted(self.commits.glob("[!.]*.json")):
            with self.claim(journal.stem) as mine:
                if mine and not self._spread(journal):
                    told.append(f"{journal} is damaged: set aside, its batch is solved again")
                    self.keep_aside(journal)
        for folder in (self.folder, self.runs, self.commits, self.sessions, self.banks):
            for part in folder.glob(".*.part"):
                with suppress(FileNotFoundError):  # its writer is done with it
                    old = time.time() - part.lstat().st_mtime > STALE_SECONDS
                    if old and LEFTOVER.fullmatch(part.name) and not part.is_dir():
                        part.unlink()
        return told

    def finish(self, key: str) -> None:
        """Spread a batch that a killed process had committed, if it is this one."""
        self._spread(self.commits / f"{key}.json")

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
        """Whether a piece of work is this process's. The system frees what a dead one claimed."""
        return self._claims.claim(key, wait)


def _description(
    config: SweepConfig, batch: int, version: str, versions: list[str] | None
) -> dict[str, Any]:
    """What sweep.json says; a store that an earlier version began does not say which `versions`."""
    facts = {"format": FORMAT, "version": version, "batch": batch}
    known = {} if versions is None else {"versions": versions}
    return {**facts, **known, "configuration": config.to_json()}
