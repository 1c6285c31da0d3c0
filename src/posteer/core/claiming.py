"""Who works on what, by locks or by leases; the two ways respect each other.

Locks are freed the moment a process dies, and exclude each other where the file system has POSIX
locks. Leases need no more than files that can be renamed, on any machine, and outlive a dead holder
by their time. Who has a lock then looks for a lease; who has a lease then looks for a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from posteer.core.files import write_atomically
from posteer.core.leases import POLL_SECONDS, Leases, Terms
from posteer.core.locks import Claims


@dataclass(frozen=True)
class Claiming:
    """Claims on pieces of work; with `terms` by leases. By `clock` others' leases expire."""

    locks: Path
    folder: Path
    terms: Terms | None = None
    clock: Callable[[], float] = time.monotonic

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self.locks, needed=self.terms is None)

    @cached_property
    def leases(self) -> Leases:
        return Leases(self.folder, self.terms or Terms(clock=self.clock))

    @contextmanager
    def claim(self, key: str, target: Path | None = None, wait: bool = False) -> Iterator[bool]:
        """Whether a piece of work is the caller's, for the time of the block.

        `target` is the file that it is about: what a dead holder had decided is written first.
        """
        if self.terms is None:
            with self._locked(key, target, wait) as mine:
                yield mine
            return
        mine = self._leased(key, target)
        while wait and not mine:
            time.sleep(POLL_SECONDS)
            mine = self._leased(key, target)
        try:
            yield mine
        finally:
            if mine:
                self.leases.release(key)

    @contextmanager
    def _locked(self, key: str, target: Path | None, wait: bool) -> Iterator[bool]:
        while True:
            with self._claims.claim(key, wait) as mine:
                if not mine or self._unleased(key, target):
                    yield mine
                    return
                if not wait:
                    yield False
                    return
            time.sleep(POLL_SECONDS)

    def _unleased(self, key: str, target: Path | None) -> bool:
        if not self.folder.is_dir():
            return True
        if target is not None:
            self.leases.finish(key, target)
        return self.leases.is_free(key)

    def _leased(self, key: str, target: Path | None) -> bool:
        if target is not None:
            self.leases.finish(key, target)
        if not self.leases.take(key):
            return False
        with self._claims.claim(key) as free:
            pass
        if not free:
            self.leases.release(key)
        return free

    def publish(self, key: str, target: Path, data: bytes) -> bool:
        """Write the file that a claim is about; False where the claim was lost, and nothing is."""
        if self.terms is not None:
            return self.leases.publish(key, target, data)
        write_atomically(target, data)
        return True

    def holds(self, key: str) -> bool:
        """Whether a claim that was ours is so still; a lock cannot be lost."""
        return self.terms is None or self.leases.holds(key)

    def alive(self) -> AbstractContextManager[None]:
        """Signs of life for the time of the block, where they are needed."""
        return nullcontext() if self.terms is None else self.leases.beating()
