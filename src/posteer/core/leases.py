"""Claims that expire, by creating and renaming alone: for shared folders without locks.

    KEY/TOKEN           a claim of whoever knows the token; the number inside grows while it lives
    KEY/TOKEN.sealed    its holder has decided: what it wrote for the target is the result

A claim is a folder of one file, renamed into its place: that fails where another is. To take over
is to rename the file to a token of one's own, to decide is to rename it to `sealed`; both want the
same name to be there, so one of them fails. So time decides who works, never what counts: a holder
that was paused for longer than its lease and wakes up finds that it cannot decide any more.

A claim is dead once nobody has seen its number grow for the time of its lease, by the clock of who
looks: clocks of machines are not compared.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from posteer.core.files import sync_folder, write_atomically

SEALED = ".sealed"
BEATS_A_LEASE = 4
POLL_SECONDS = 0.2
LITTER_SECONDS = 3600.0


@dataclass(frozen=True)
class Terms:
    """How long a claim outlives the last sign of its holder's life, and by which clock."""

    seconds: float = 60.0
    clock: Callable[[], float] = field(default=time.monotonic, compare=False)


@dataclass
class Leases:
    """Claims of this object on pieces of work by key; two objects exclude each other too."""

    folder: Path
    terms: Terms = Terms()
    _held: dict[str, str] = field(default_factory=dict)
    _watched: dict[str, tuple[tuple[str, bytes], float]] = field(default_factory=dict)
    _beats: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: str) -> bool:
        """Whether a piece of work is ours from now on: it was free, or its holder is dead."""
        with self._mutex:
            if key in self._held:
                return False
            token, name = secrets.token_hex(8), self._holder(key)
            if name is None:
                mine = self._place(key, token)
            else:
                mine = self._dead(key, name) and self._renamed(key, name, token)
            if mine:
                self._held[key] = token
                self._watched.pop(key, None)
            return mine

    def is_free(self, key: str) -> bool:
        """Whether nobody alive has it; a dead holder's claim is removed."""
        name = self._holder(key)
        if name is None:
            return True
        if name.endswith(SEALED) or not self.take(key):
            return False
        self.release(key)
        return True

    def holds(self, key: str) -> bool:
        """Whether it is ours still."""
        return key in self._held and self._path(key, self._held[key]).exists()

    def beat(self) -> None:
        """A sign of life for every claim; those that another took over are given up."""
        with self._mutex:
            self._beats += 1
            for key, token in list(self._held.items()):
                try:
                    with self._path(key, token).open("r+b") as file:
                        file.write(self._sign())
                except FileNotFoundError:
                    del self._held[key]

    def release(self, key: str) -> None:
        """Give a claim back; one that was lost is another's to give."""
        with self._mutex:
            token = self._held.pop(key, None)
        if token is not None:
            self._remove(key, token)

    def publish(self, key: str, target: Path, data: bytes) -> bool:
        """Make `data` the file that a claim was about, and give the claim back; False if another
        has taken it over, and then nothing is written."""
        with self._mutex:
            token = self._held.pop(key, None)
        if token is None:
            return False
        solved = self._solved(target, token)
        write_atomically(solved, data)
        if not self._renamed(key, token, token + SEALED):
            solved.unlink(missing_ok=True)
            return False
        self._conclude(key, token, target)
        return True

    def finish(self, key: str, target: Path) -> None:
        """Write what a holder had decided that did not live to do it."""
        name = self._holder(key)
        if name is not None and name.endswith(SEALED):
            self._conclude(key, name.removesuffix(SEALED), target)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Signs of life from a thread, for the time of the block."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self.terms.seconds / BEATS_A_LEASE):
                with suppress(OSError):  # a disk that is away for a moment is no reason to stop
                    self.beat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def tidy(self) -> None:
        """Remove what processes left that were killed while they placed a claim."""
        for path in list(self.folder.glob(".*")) if self.folder.is_dir() else []:
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > LITTER_SECONDS:
                    for inside in path.iterdir():
                        inside.unlink()
                    path.rmdir()

    def _sign(self) -> bytes:
        """What changes while a holder lives, and how long to wait where it does not."""
        return b"%020d %020.6f" % (self._beats, self.terms.seconds)

    def _home(self, key: str) -> Path:
        return self.folder / hashlib.sha256(key.encode()).hexdigest()[:32]

    def _path(self, key: str, name: str) -> Path:
        return self._home(key) / name

    @staticmethod
    def _solved(target: Path, token: str) -> Path:
        return target.with_name(f".{target.name}.{token}.solved")

    def _holder(self, key: str) -> str | None:
        """The one name in a claim; a folder that was left empty is nobody's."""
        try:
            return next(iter(sorted(os.listdir(self._home(key)))), None)
        except FileNotFoundError:
            return None

    def _place(self, key: str, token: str) -> bool:
        """Rename a claim into its place: over nothing, or over an empty folder, or not at all."""
        private = self.folder / f".{token}"
        private.mkdir(parents=True)
        (private / token).write_bytes(self._sign())
        try:
            private.rename(self._home(key))
        except OSError as error:
            (private / token).unlink()
            private.rmdir()
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def _dead(self, key: str, name: str) -> bool:
        """Whether a claim has shown no life for as long as a lease, since we first saw it so."""
        if name.endswith(SEALED):
            return False
        try:
            seen = (name, self._path(key, name).read_bytes())
        except FileNotFoundError:
            return False
        now = self.terms.clock()
        before, since = self._watched.get(key, (None, now))
        if seen != before:
            self._watched[key] = (seen, now)
            return False
        return now - since >= _lease_in(seen[1], self.terms.seconds)

    def _renamed(self, key: str, old: str, new: str) -> bool:
        try:
            self._path(key, old).rename(self._path(key, new))
        except FileNotFoundError:
            return False
        return True

    def _conclude(self, key: str, token: str, target: Path) -> None:
        with suppress(FileNotFoundError):  # another has done it
            self._solved(target, token).rename(target)
            sync_folder(target.parent)
        self._remove(key, token + SEALED)

    def _remove(self, key: str, name: str) -> None:
        with suppress(FileNotFoundError):
            self._path(key, name).unlink()
            with suppress(OSError):  # another has come meanwhile
                self._home(key).rmdir()


def _lease_in(sign: bytes, otherwise: float) -> float:
    try:
        return float(sign.split()[1])
    except (ValueError, IndexError):  # half written, or somebody's hand
        return otherwise
