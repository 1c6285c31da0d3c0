"""Claims on pieces of work: one byte of one file stands for each, and who works on it locks it.

The locks are POSIX's: other machines see them where the file system does, and the system frees them
when a process dies. They do not tell claims of one process apart, and closing a file anywhere in a
process drops all its locks on it. So a process opens each file once, under whatever path, for as
long as it claims anything there, and remembers what.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from posteer.core.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows: there one process at a time is up to the user
    fcntl = None  # type: ignore[assignment]


@dataclass
class _File:
    """A file with claims of this process: its device and inode, and the thread behind each byte."""

    handle: int
    identity: tuple[int, int]
    owners: dict[int, int] = field(default_factory=dict)


_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_FILES: dict[tuple[int, int], _File] = {}
_CHANGED = threading.Condition()


@dataclass(frozen=True)
class Claims:
    """Pieces of work by key, in a file that is made when the first is claimed.

    A file system without locks is refused, or where they are not `needed` everything is everybody's
    there.
    """

    path: Path
    needed: bool = True

    @contextmanager
    def claim(self, key: str, wait: bool = False) -> Iterator[bool]:
        """Whether a piece of work is the caller's, for the time of the block.

        It is not while another process, or another claim of this one, has it; `wait` stays until it
        is free. Without POSIX locks everything is everybody's.
        """
        if fcntl is None:
            yield True  # type: ignore[unreachable]
            return
        at = int(hashlib.sha256(key.encode()).hexdigest()[:15], 16)
        file = _enter(self.path, at, wait)
        if file is None:
            yield False
            return
        mine = False
        try:
            mine = self._locked(file, at, wait)
            yield mine
        finally:
            if mine:
                with suppress(OSError):  # none was had
                    fcntl.lockf(file.handle, fcntl.LOCK_UN, 1, at)
            _leave(file, at)

    def _locked(self, file: _File, at: int, wait: bool) -> bool:
        """Whether the byte is this process's now, and no other's."""
        try:
            fcntl.lockf(file.handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, at)
        except (BlockingIOError, PermissionError):  # systems differ in what they call it
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if self.needed:
                raise InputError(
                    f"{self.path}: this file system has no locks: `executor` shared needs none"
                ) from error
        return True


def _enter(path: Path, at: int, wait: bool) -> _File | None:
    """The file, with the byte marked as this thread's; None if another claim here has it."""
    me = threading.get_ident()
    with _CHANGED:
        while True:
            file = _opened(path)
            if at not in file.owners:
                file.owners[at] = me
                return file
            if not wait:
                return None
            if file.owners[at] == me:
                raise RuntimeError(f"{path}: a claim that waits for itself")
            _CHANGED.wait()


def _leave(file: _File, at: int) -> None:
    with _CHANGED:
        del file.owners[at]
        if not file.owners:
            _FILES.pop(file.identity, None)
            os.close(file.handle)
        _CHANGED.notify_all()


def _opened(path: Path) -> _File:
    """Looked up before it is opened: to open it twice is to close it once too often."""
    with suppress(FileNotFoundError):
        seen = path.stat()
        known = _FILES.get((seen.st_dev, seen.st_ino))
        if known is not None:
            return known
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    facts = os.fstat(handle)
    file = _File(handle, (facts.st_dev, facts.st_ino))
    _FILES[file.identity] = file
    return file


def _forget() -> None:
    """A forked process has none of its parent's locks."""
    global _CHANGED
    _CHANGED = threading.Condition()
    _FILES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
