"""The run store: one JSON file per run, named by the hash of its configuration.

    sweep.json          the configuration, the size of batches, the format, the version of posteer
    runs/HASH.json      one finished run each; it is done if this file is there and whole
    commits/KEY.json    a solved batch on its way into runs/
    claims              locked where a process is at work (`core.locks`)
    quarantine/         files that were not whole, kept to be looked at
    banks/              latents drawn for the sweep
    sessions/           what each command that worked on the store did, and how long

A batch is written as one file first and only then spread over `runs/`: whoever opens the store
next finishes an interrupted spreading. So a solved batch is there as a whole or not at all, and a
killed sweep goes on with the very batches an uninterrupted one would solve.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from posteer import __version__
from posteer.core.errors import InputError, require
from posteer.core.files import write_atomically, write_each, write_json
from posteer.core.locks import Claims
from posteer.sweeps.configuration import SweepConfig, config_from, differences
from posteer.sweeps.runs import name_of

FORMAT = "posteer-runs-1"
OWN = {"runs", "commits", "sessions", "claims", "banks", "quarantine"}
STALE_SECONDS = 3600.0
Record = dict[str, Any]


class DamagedError(Exception):
    """A run's file that is not what was written."""


def seal(record: Record) -> bytes:
    """A record as the bytes of its file, with a checksum over the rest."""
    return (_dump({**record, "checksum": _checksum(record)}) + "\n").encode()


def unseal(data: bytes, name: str) -> Record:
    """The record in a file, or `DamagedError` with what is wrong."""
    try:
        record = json.loads(data)
        checksum = record.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedError("cut short or not JSON") from error
    if checksum != _checksum(record):
        raise DamagedError("altered: its checksum does not match")
    if name_of(record["configuration"]) != name:
        raise DamagedError("it holds another run than its name says")
    found: Record = record
    return found


def _is_ours(name: str) -> bool:
    return name in OWN or name.endswith(".part")


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(record: Record) -> str:
    return hashlib.sha256(_dump(record).encode()).hexdigest()


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
        store.manifest()
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
    ) -> RunStore:
        """A store to run a sweep in: new, or one that holds this sweep, by this version.

        Batches are cut once and for all: a store keeps its size. `any_size` accepts it, whatever
        it is.
        """
        store = cls(folder)
        if folder.exists() and not store.described:
            require(
                folder.is_dir() and all(_is_ours(path.name) for path in folder.iterdir()),
                f"{folder}: there is something here that is no sweep: choose another --out",
            )
        for part in (store.runs, store.commits, store.sessions):
            part.mkdir(parents=True, exist_ok=True)
        with store.claim("sweep.json", wait=True):
            if store.described:
                config, batch_size = store._accept(config, batch_size, extend, any_size)
            facts = {
                "format": FORMAT,
                "version": __version__,
                "batch": batch_size,
                "configuration": config.to_json(),
            }
            if not store.described or facts != store.manifest():
                write_json(folder / "sweep.json", facts)
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
            f"{self.folder} holds another sweep ({'; '.join(changed)}): choose another --out, or "
            "--extend to add to it",
        )
        union = SweepConfig(name=here.name, grids=(*here.grids, *new))
        return union, batch_size if not any_size else manifest["batch"]

    def manifest(self) -> dict[str, Any]:
        path = self.folder / "sweep.json"
        require(path.is_file(), f"{self.folder}: no sweep was run here (there is no sweep.json)")
        try:
            facts: dict[str, Any] = json.loads(path.read_bytes())
            known = facts.get("format") == FORMAT
            whole = {"version", "batch", "configuration"} <= facts.keys()
        except (ValueError, AttributeError) as error:
            raise InputError(f"{path}: not a description of a sweep") from error
        require(
            known,
            f"{self.folder}: a store of format {facts.get('format')!r}, and this posteer "
            f"({__version__}) reads {FORMAT!r}: use the version that wrote it",
        )
        require(whole, f"{path}: not a description of a sweep")
        return facts

    def config(self) -> SweepConfig:
        return config_from(self.manifest()["configuration"], str(self.folder / "sweep.json"))

    def has(self, name: str) -> bool:
        return (self.runs / f"{name}.json").exists()

    def names(self) -> set[str]:
        """Runs whose files are there; whether they are whole shows on reading."""
        return {path.stem for path in self.runs.glob("[!.]*.json")}

    def read(self, name: str) -> Record:
        return unseal((self.runs / f"{name}.json").read_bytes(), name)

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
        return told

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
        for part in [*self.runs.glob(".*.part"), *self.commits.glob(".*.part")]:
            with suppress(FileNotFoundError):  # its writer is done with it
                if time.time() - part.stat().st_mtime > STALE_SECONDS:
                    part.unlink()
        return told

    def finish(self, key: str) -> None:
        """Spread a batch that a killed process had committed, if it is this one."""
        self._spread(self.commits / f"{key}.json")

    def _spread(self, journal: Path) -> bool:
        try:
            files: dict[str, str] = json.loads(journal.read_bytes())
            absent = {n: text.encode() for n, text in files.items() if not self.has(n[:-5])}
        except FileNotFoundError:
            return True  # another process has done it
        except (ValueError, AttributeError):
            return False  # a machine that lost power
        write_each(self.runs, absent)
        journal.unlink(missing_ok=True)
        return True

    def claim(self, key: str, wait: bool = False) -> AbstractContextManager[bool]:
        """Whether a piece of work is this process's. The system frees what a dead one claimed."""
        return self._claims.claim(key, wait)
