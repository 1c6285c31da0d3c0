"""Files that vouch for themselves, or for each other: what was altered is refused by name.

A sealed document is JSON with two keys of ours, `sealed` and `checksum`, so that no single wrong
bit makes it look like one that was never sealed. Documents of earlier versions have neither and are
read as they are. A folder of other files has a `SHA256SUMS`, as sha256sum writes and checks it.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import read_plain, sha256, write_atomically
from posteer.core.reading import read_json

SUMS = "SHA256SUMS"
MARKS = {"sealed", "checksum"}
Facts = dict[str, Any]


def dump(value: object) -> str:
    """A value as the one text that checksums are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(facts: Facts) -> str:
    """Of all that a document says."""
    return hashlib.sha256(dump(facts).encode()).hexdigest()


def sealed(facts: Facts) -> Facts:
    """The document with its seal.

    >>> opened(sealed({"step": 3}), "manifest.json")
    {'step': 3}
    """
    marked = {**facts, "sealed": "sha256"}
    return {**marked, "checksum": checksum(marked)}


def opened(document: Any, what: str) -> Facts:
    """What a document says, without its seal; one that was altered is refused."""
    require(isinstance(document, dict), f"{what} is damaged: expected an object")
    facts = {key: value for key, value in document.items() if key != "checksum"}
    if MARKS & document.keys():
        whole = document.get("checksum") == checksum(facts) and "sealed" in facts
        require(whole, f"{what} is damaged: its checksum does not match")
    facts.pop("sealed", None)
    return facts


def write_sealed(path: Path, facts: Facts) -> None:
    """Replace `path` by a sealed document."""
    text = json.dumps(sealed(facts), indent=2, sort_keys=True, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def read_sealed(path: Path) -> Facts:
    """The document in a file, verified if it is sealed."""
    try:
        return opened(read_json(read_plain(path), f"{path} is damaged"), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def sealed_line(facts: Facts) -> str:
    """A sealed document as one line of a file of many."""
    return json.dumps(sealed(facts), sort_keys=True, allow_nan=False) + "\n"


def read_sealed_lines(path: Path) -> list[Facts]:
    """The documents in a file of one a line, each verified if it is sealed."""
    lines = read_plain(path).splitlines()
    return [
        opened(read_json(line, f"{path}, line {at} is damaged"), f"{path}, line {at}")
        for at, line in enumerate(lines, 1)
    ]


def check_listed(path: Path) -> None:
    """Compare a file with the `SHA256SUMS` beside it; where there is none, nothing is known."""
    beside = path.with_name(SUMS)
    if not beside.is_file():
        return
    listed = read_sums(beside)
    require(path.name in listed, f"{path} is not listed in {beside}")
    whole = sha256(path) == listed[path.name]
    require(whole, f"{path} is damaged: its SHA-256 is not that in {beside}")


def list_file(path: Path) -> None:
    """Have the `SHA256SUMS` beside a file, if there is one, say what the file is now."""
    beside = path.with_name(SUMS)
    if beside.is_file():
        write_sums(beside, {**read_sums(beside), path.name: sha256(path)})


def write_sums(beside: Path, listed: dict[str, str]) -> None:
    """Replace a `SHA256SUMS`."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(listed.items()))
    write_atomically(beside, lines.encode())


def read_sums(beside: Path) -> dict[str, str]:
    """The digests in a `SHA256SUMS` by file."""
    found = {}
    for line in read_plain(beside).decode(errors="replace").splitlines():
        parts = re.fullmatch(r"([0-9a-f]{64})  ([\w.-]+)", line)
        require(parts is not None, f"{beside} is damaged: {line[:80]!r} names no file")
        assert parts is not None
        found[parts[2]] = parts[1]
    return found
