"""Files that are either whole or absent: write beside, sync, rename."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from posteer.core.errors import require
from posteer.core.spec import shown


def path_of(given: Any, what: str) -> Path:
    """A path as text or as an object; what no file can be called is refused."""
    named = isinstance(given, str | Path) and bool(str(given)) and "\0" not in str(given)
    require(named, f"{what} {shown(given)}: expected the name of a file")
    return Path(given)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a crash or a full disk leaves what was there."""
    write_each(path.parent, {path.name: data})


def write_each(folder: Path, files: dict[str, bytes]) -> None:
    """Several files of one folder, each whole or absent, with one sync of the folder at the end."""
    own = f"{os.getpid()}-{secrets.token_hex(4)}"  # two machines may share a folder and a number
    parts = {name: folder / f".{name}.{own}.part" for name in files}
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
        raise
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by a value as sorted JSON."""
    write_atomically(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_folder_atomically(folder: Path, files: dict[str, bytes]) -> None:
    """A new folder with these files, or nothing; an old one of the name is replaced last."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name, data in files.items():
            write_atomically(temporary / name, data)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
