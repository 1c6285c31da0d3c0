"""Files that somebody made: whatever they hold, commands end in one line or as if they were right,
run no code of theirs, and write nothing elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from audit import work
from audit.children import FOR_FIGURES, FOR_TABLES, FOR_TRAINING, command, warm
from audit.tally import Tally
from posteer.core.sealing import read_sealed, write_sealed
from posteer.families.atoms.files import SUFFIXES, save_atoms

DEEP = b"[" * 100_000
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "deep brackets": DEEP,
    "deep tables": b'{"a":' * 50_000,
    "a list": b"[1, 2]",
    "a text": b'"text"',
    "nan": b'{"step": NaN, "batch": NaN, "checksum": NaN, "files": NaN}',
    "infinity": b'{"step": 1e999, "batch": 1e999, "checksum": "0", "files": {}}',
    "digits": b"1" * 5000,
    "no text": b"\xff\xfe\x00",
    "half": b'{"sealed": "sha256", "files": {',
    "outside": b'{"files": {"../../../victim": "0"}, "x/../../../victim": "theirs"}',
}


def pipe(path: Path) -> None:
    """A pipe nobody writes into: to read it is to wait for ever."""
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    """A folder where a file belongs."""
    path.unlink()
    path.mkdir()


SHAPES: dict[str, Callable[[Path], None]] = {"a pipe": pipe, "a folder": folder}


def targets(made: Path) -> dict[str, tuple[Path, list[list[str]]]]:
    """Files by what they are, and the commands that read them."""
    sweep, bank, run = made / "sweep", made / "draw" / work.BANK, made / "train"
    (name,) = sorted((sweep / "runs").iterdir())[:1]
    session = sorted((sweep / "sessions").iterdir())[0]
    newest = sorted((run / "checkpoints").iterdir())[-1]
    status = ["sweep", "status", "--out", str(sweep)]
    tables = ["tables", str(sweep), "--out", str(made / "tables"), "--figures"]
    parquet = ["tables", str(sweep / "results.parquet"), "--out", str(made / "tables")]
    model = ["evaluate", "--model", str(run / "model"), "--prompt", "01"]
    elicit = ["elicit", "--model", "exact:urn", "--length", "3", "--method", "classes"]
    plan = "--steps 8 --length 8 --batch 2 --warmup 2"
    train = ["train", "--preset", "tiny", *plan.split(), "--out"]
    mixture = ["evaluate", "--prompt", "01", "--model"]
    retry = ["sweep", "retry", "--failed", "--out", str(sweep)]
    return {
        "run": (name, [status, tables, retry]),
        "sweep.json": (sweep / "sweep.json", [status, tables, retry]),
        "session": (session, [retry]),
        "journal": (sweep / "commits" / f"{'0' * 64}.json", [retry]),
        "results": (sweep / "results.parquet", [parquet]),
        "histories": (sweep / "results.histories.parquet", [[*parquet, "--figures"]]),
        "bank": (bank, [[*elicit, "--bank", str(bank)]]),
        "model manifest": (run / "model" / "manifest.json", [model]),
        "config": (run / "model" / "config.json", [model]),
        "checkpoint": (newest / "manifest.json", [[*train, str(run)]]),
        "plan": (run / "plan.json", [[*train, str(run)]]),
        **{
            f"atoms in {suffix}": (path, [[*mixture, f"exact:mixture({path})"]])
            for suffix, path in _atoms(made).items()
        },
    }


def _atoms(made: Path) -> dict[str, Path]:
    return {suffix: made / f"atoms{suffix}" for suffix in SUFFIXES}


def forge_all(scratch: Path, every: int = 1) -> Tally:
    """Put every content into the place of every file, or every n-th; run what reads it."""
    warm(*FOR_TABLES, *FOR_FIGURES, *FOR_TRAINING)
    tally, made = Tally("forged files"), scratch / "made"
    made.mkdir()
    work.sweep(made / "sweep")
    work.draw(made / "draw")
    work.train(made / "train")
    for path in _atoms(made).values():
        save_atoms(path, {"fair": [[0.5, 0.5]], "bent": [[0.9, 0.1]]})
    victim = scratch / "victim"
    victim.write_text("mine")
    cases = 0
    for what, (path, commands) in targets(made).items():
        for how in [*CONTENTS, *SHAPES]:
            cases += 1
            if cases % every:
                continue
            copy = scratch / "copy"
            shutil.copytree(made, copy)
            at = copy / path.relative_to(made)
            at.touch()
            if how in CONTENTS:
                at.write_bytes(CONTENTS[how])
            else:
                SHAPES[how](at)
            for words in commands:
                given = [word.replace(str(made), str(copy)) for word in words]
                _judge(tally, f"{how} as {what}: {' '.join(words[:2])}", given, at.name[:64])
            if victim.read_text() != "mine" or sorted(os.listdir(scratch)) != [
                "copy",
                "made",
                "victim",
            ]:
                tally.fault("lost", f"{how} as {what} wrote elsewhere")
            shutil.rmtree(copy)
    _runs_no_code(tally, made / "sweep", scratch)
    return tally


def _judge(tally: Tally, what: str, words: list[str], named: str) -> None:
    """Refused in one line, or done with a line that names the file."""
    said = command(words)
    tally.tries += 1
    if said.trace or said.status not in (0, 1, 2):
        tally.fault("tracebacks", f"{what}: {said.trace or said}")
    elif said.status == 2 and not said.one_line:
        tally.fault("silent", f"{what}: {said.err}")
    elif said.status == 2 or (named and named in said.err):
        tally.refused += 1
    elif named:
        tally.fault("silent", f"{what}: {said.err}")
    else:
        tally.harmless += 1


def _runs_no_code(tally: Tally, sweep: Path, scratch: Path) -> None:
    """A sweep that names a Python file: whoever reads the store does not run it."""
    ran, path = scratch / "ran", sweep / "sweep.json"
    (scratch / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nf = lambda y: 0.0\n")
    facts = read_sealed(path)
    for axis in ("models", "utilities"):
        forged = json.loads(json.dumps(facts))
        forged["configuration"]["grids"][0][axis] = [f"{scratch}/evil.py:f"]
        write_sealed(path, forged)
        for words in ("sweep status --out", "sweep retry --failed --out", "tables"):
            _judge(tally, f"code in {axis}", [*words.split(), str(sweep)], "")
            if ran.exists():
                tally.fault("lost", f"{words} ran a file that the store names")
                ran.unlink()
    write_sealed(path, facts)
