"""SIGKILL at changes of the folder: nothing that was finished goes, and the end is the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audit import work
from audit.children import FOR_TABLES, FOR_TRAINING, killed, warm
from audit.tally import Tally
from posteer.core.errors import InputError
from posteer.models.transformer.checkpoint import read_manifest


@dataclass(frozen=True)
class Victim:
    """Work that is killed, what its outcome is, what of it is finished, the changes in which a life
    is killed at the latest, and the modules that the work imports late."""

    name: str
    work: Callable[[Path], None]
    outcome: Callable[[Path], str]
    finished: Callable[[Path], dict[str, bytes]]
    within: int
    needs: tuple[str, ...] = ()


def _runs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "runs").glob("[!.]*.json")}


def _runs_and_bank(folder: Path) -> dict[str, bytes]:
    """The bank as well, once it is there, and its sizes."""
    kept = (folder / "banks").glob("[!.]*.*")
    banks = {path.name: path.read_bytes() for path in kept if path.is_file()}
    return {**_runs(folder), **banks}


def _chunks(folder: Path) -> dict[str, bytes]:
    bank = folder / work.BANK
    if bank.exists():
        return {work.BANK: bank.read_bytes()}
    parts = folder / f"{work.BANK}.parts"
    return {path.name: b"" for path in parts.glob("[!.]*.safetensors")}


def _models(folder: Path) -> dict[str, bytes]:
    """Whether there is a model, a whole one; and how far the checkpoints have come."""
    found = {}
    if (folder / "model").exists():
        read_manifest(folder / "model")
        found["model"] = b""
    steps = sorted((folder / "checkpoints").glob("step-*"))
    return {**found, **({"checkpoint": steps[-1].name.encode()} if steps else {})}


VICTIMS = (
    Victim("killed: sweep", work.sweep, work.digest_of_sweep, _runs, 30, FOR_TABLES),
    Victim(
        "killed: sweep that draws",
        work.sweep_that_draws,
        work.digest_of_sweep_that_draws,
        _runs_and_bank,
        20,
    ),
    Victim("killed: sample", work.draw, work.digest_of_draw, _chunks, 12),
    Victim("killed: train", work.train, work.digest_of_training, _models, 25, FOR_TRAINING),
)


def kill_often(victim: Victim, kills: int, scratch: Path, seed: int = 0) -> Tally:
    """Kill the work so often, start it again each time; when it ends, compare and begin anew."""
    tally, chance = Tally(victim.name), random.Random(seed)
    warm(*victim.needs)
    alone, folder = scratch / "alone", scratch / "killed"
    killed(victim.work, alone, 0)
    truth = victim.outcome(alone)
    before: dict[str, bytes] = {}
    while tally.tries < kills or folder.exists():
        last = tally.tries >= kills
        died = killed(victim.work, folder, 0 if last else chance.randint(1, victim.within))
        tally.tries += died
        try:
            now = victim.finished(folder)
        except (InputError, OSError) as error:
            tally.fault("lost", str(error))
            now = {}
        for name in _gone(before, now):
            tally.fault("lost", f"{name} after {tally.tries} kills")
        before = now
        if not died:
            if victim.outcome(folder) == truth:
                tally.harmless = tally.tries
            else:
                tally.fault("silent", f"another outcome after {tally.tries} kills")
            if list(folder.rglob("*.part")) and victim.work not in (
                work.sweep,
                work.sweep_that_draws,
            ):
                tally.fault("lost", "leftovers of the killed")
            shutil.rmtree(folder)
            before = {}
    return tally


def _gone(before: dict[str, bytes], now: dict[str, bytes]) -> list[str]:
    """What was finished and is not, or is another; a bank stands for its chunks, and a later
    checkpoint for an earlier one."""
    if work.BANK in now and work.BANK not in before:
        return []
    return [name for name, data in before.items() if name not in now or now[name] < data]
