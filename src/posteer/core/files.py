"""Files that are either whole or absent: write beside, sync, rename. Only plain files are read, and
only what is known to be ours is removed."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.spec import shown

LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+-[0-9a-f]{8}\.part")
"""What a killed process leaves of `name`: the file or folder it was writing."""
SOLVED = re.compile(r"\..+\.[0-9a-f]{16}\.solved")
"""What one leaves that was killed, or had lost its claim, before it could publish (`leases`)."""
_EXCHANGE = 2


def path_of(given: Any, what: str) -> Path:
    """A path as text or as an object; what no file can be called is refused."""
    named = isinstance(given, str | Path) and bool(str(given)) and "\0" not in str(given)
    require(named, f"{what} {shown(given)}: expected the name of a file")
    return Path(given)


def sha256(path: Path) -> str:
    """Hex digest of a plain file."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_plain(path: Path) -> Any:
    """A file to read; a pipe or a device, which could be read for ever, is refused."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a plain file")
    return os.fdopen(handle, "rb")


def read_plain(path: Path) -> bytes:
    """The bytes of a plain file."""
    with open_plain(path) as file:
        data: bytes = file.read()
    return data


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a crash or a full disk leaves what was there."""
    write_each(path.parent, {path.name: data})


def write_each(folder: Path, files: dict[str, bytes]) -> None:
    """Several files of one folder, each whole or absent, with one sync of the folder at the end."""
    parts = {name: _beside(folder / name) for name in files}
    name = ""
    try:
        for name, data in files.items():
            with parts[name].open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            parts[name].replace(folder / name)
        sync_folder(folder)
    except OSError as error:
        error.filename = str(folder / name)  # a full disk does not say what it was full for
        error.filename2 = None
        raise
    finally:
        for part in parts.values():
            with suppress(OSError):  # what went wrong before is what is told
                part.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Two machines may share a folder and the number of a process."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_folder_atomically(
    folder: Path, files: dict[str, bytes], ours: Callable[[str], bool]
) -> None:
    """A new folder with these files, or nothing; an old one of the name is replaced at once.

    One that holds anything but files whose names are `ours` is refused, and left as it is.
    """
    require_ours(folder, ours)
    temporary = _beside(folder)
    try:
        temporary.mkdir(parents=True)
        write_each(temporary, files)
        if folder.exists():
            _exchange(temporary, folder)
        else:
            temporary.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        error.filename = str(error.filename or folder).replace(str(temporary), str(folder))
        error.filename2 = None
        raise
    finally:
        with suppress(OSError):
            remove_folder(temporary, ours)


def require_ours(folder: Path, ours: Callable[[str], bool]) -> None:
    """Refuse a folder that holds what we did not write."""
    if not os.path.lexists(folder):
        return
    plain = folder.is_dir() and not folder.is_symlink()
    require(plain, f"{folder}: there is something here that we did not write: move it away")
    for path in sorted(folder.iterdir()):
        known = (ours(path.name) or _is_leftover(path.name, ours)) and not path.is_dir()
        require(known, f"{path}: there is something here that we did not write: move it away")


def remove_folder(folder: Path, ours: Callable[[str], bool]) -> bool:
    """Remove a folder of ours; whatever else is in it stays, and then so does the folder."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    for path in list(folder.iterdir()):
        if (ours(path.name) or _is_leftover(path.name, ours)) and not path.is_dir():
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def remove_stale(folder: Path, seconds: float) -> None:
    """Remove what killed processes were writing into a folder that others write into now: files
    that are so old."""
    for part in [*folder.glob(".*.part"), *folder.glob(".*.solved")]:
        with suppress(FileNotFoundError):  # its writer is done with it
            old = time.time() - part.lstat().st_mtime > seconds
            ours = LEFTOVER.fullmatch(part.name) or SOLVED.fullmatch(part.name)
            if old and ours and not part.is_dir():
                part.unlink()


def clean_leftovers(
    folder: Path, ours: Callable[[str], bool], within: Callable[[str], bool] = lambda _: False
) -> None:
    """Remove what killed processes were writing into a folder that nobody writes into now.

    `ours` are the files and folders written there, `within` the files of those folders. If a
    system without an exchange of folders was killed between two renames, the old one comes back.
    """
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if not _is_leftover(path.name, ours):
            continue
        if path.is_dir() and not path.is_symlink():
            remove_folder(path, within)
        else:
            path.unlink(missing_ok=True)
    for path in list(folder.glob(".*.old")) if folder.is_dir() else []:
        name = path.name[1:-4]
        if not ours(name):
            continue
        if (folder / name).exists():
            remove_folder(path, within)
        else:
            path.rename(folder / name)


def _is_leftover(name: str, ours: Callable[[str], bool]) -> bool:
    found = LEFTOVER.fullmatch(name)
    return found is not None and ours(found["name"])


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change names: at no moment is there none under the name of the old one."""
    if not _exchanged(os.fsencode(new), os.fsencode(old)):
        aside = old.with_name(f".{old.name}.old")
        old.rename(aside)
        new.rename(old)
        aside.rename(new)


def _exchanged(new: bytes, old: bytes) -> bool:
    """Whether the system could do it as one step."""
    if os.name != "posix":
        return False
    system: Any = ctypes.CDLL(None, use_errno=True)
    if hasattr(system, "renamex_np"):  # macOS
        return bool(system.renamex_np(new, old, _EXCHANGE) == 0)
    if hasattr(system, "renameat2"):  # Linux
        here = -100  # AT_FDCWD
        return bool(system.renameat2(here, new, here, old, _EXCHANGE) == 0)
    return False
