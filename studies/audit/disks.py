"""Full and read-only disks under every command: one line that names a file, and what was there
stays as it was."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from audit.children import FOR_FIGURES, FOR_TABLES, Said, command, warm
from audit.tally import Tally

TOML = """name = "audit"
models = ["exact:urn"]
utilities = ["dyck"]
methods = ["coordinate"]
lengths = [3]
seeds = 2
"""
LIMITS = (0, 600)
"""Bytes a file may have where the disk is full: none, and fewer than most files need."""


@dataclass(frozen=True)
class Command:
    """A command line; `{}` is its folder. `writes` or not, and what has to be there before."""

    words: str
    writes: bool = True
    before: str = ""


SWEEP = "sweep --config {}/mine.toml --out {}/runs --batch 1 --json"
TRAIN = "train --preset tiny --steps 3 --batch 2 --length 8 --out {}/run --json"
DRAW = "sample --model exact:urn --rollouts 200 --length 20"
COMPARE = "compare --model exact:urn --length 3 --methods coordinate --seeds 1"
COMMANDS = (
    Command("elicit --model exact:urn --length 3 --json", writes=False),
    Command("evaluate --model exact:urn --prompt 010 --json", writes=False),
    Command("models --json", writes=False),
    Command("methods --json", writes=False),
    Command("utilities --json", writes=False),
    Command(f"{COMPARE} --figure {{}}/a.svg"),
    Command(f"{DRAW} --out {{}}/b.safetensors --json"),
    Command(f"{DRAW} --check --effort 0.01 --figure {{}}/c.png"),
    Command(TRAIN),
    Command(TRAIN, before=TRAIN),
    Command(SWEEP),
    Command(SWEEP.replace("mine", "more") + " --extend", before=SWEEP),
    Command("sweep plan --config {}/mine.toml --json", writes=False),
    Command("sweep status --out {}/runs --json", writes=False, before=SWEEP),
    Command("sweep retry --failed --out {}/runs --json", before=SWEEP),
    Command("tables {}/runs --figures --out {}/tables --json", before=SWEEP),
    Command("tables {}/runs/results.parquet --json", before=SWEEP),
)


def _words(text: str, folder: Path) -> list[str]:
    return [word.replace("{}", str(folder)) for word in text.split()]


def _prepared(one: Command, folder: Path) -> dict[Path, bytes]:
    """What is there before; read again afterwards."""
    folder.mkdir()
    (folder / "mine.toml").write_text(TOML)
    (folder / "more.toml").write_text(TOML.replace("seeds = 2", "seeds = 3"))
    if one.before:
        said = command(_words(one.before, folder))
        assert said.status == 0, said
    return _content(folder)


def _content(folder: Path) -> dict[Path, bytes]:
    own = ("lock", "claims")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in own)
    return {path: path.read_bytes() for path in files}


def full(one: Command, scratch: Path) -> Tally:
    """Run a command where files can hold no more than so many bytes; then with room again."""
    warm(*FOR_TABLES, *FOR_FIGURES)
    tally = Tally("full disk")
    for limit in LIMITS:
        folder = scratch / f"full-{limit}"
        before = _prepared(one, folder)
        said = command(_words(one.words, folder), limit=limit)
        _judge(tally, one, said, folder, before, may_succeed=not one.writes or limit > 0)
        again = command(_words(one.words, folder))
        if again.status != 0:
            tally.fault("lost", f"{one.words}: does not go on: {again.err}{again.trace}")
        shutil.rmtree(folder)
    return tally


def read_only(one: Command, scratch: Path) -> Tally:
    """Run a command in a folder that may not be written to."""
    tally, folder = Tally("read-only disk"), scratch / "read-only"
    before = _prepared(one, folder)
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        said = command(_words(one.words, folder), obey=True)
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    _judge(tally, one, said, folder, before, may_succeed=not one.writes)
    shutil.rmtree(folder)
    return tally


def _judge(
    tally: Tally,
    one: Command,
    said: Said,
    folder: Path,
    before: dict[Path, bytes],
    may_succeed: bool,
) -> None:
    tally.tries += 1
    after = _content(folder)
    for path, data in before.items():
        kept = after.get(path)
        added = kept is not None and path.name in ("sweep.json", "records.jsonl")
        if kept != data and not added and path.parent.name != "model":
            tally.fault("lost", f"{one.words}: {path.relative_to(folder)}")
    for path in after:
        if path.name.endswith(".part"):
            tally.fault("lost", f"{one.words}: {path.relative_to(folder)} is left")
    if said.trace or said.status not in (0, 2):
        tally.fault("tracebacks", f"{one.words}: {said}")
    elif said.status == 2:
        named = said.one_line and os.fspath(folder) in said.err
        tally.refused += named
        if not named:
            tally.fault("silent", f"{one.words}: no file is named: {said.err}")
    elif not may_succeed:
        tally.fault("silent", f"{one.words}: as if it had been written")
    else:
        tally.harmless += 1
