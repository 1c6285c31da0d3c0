"""The work that an audit kills and damages: a sweep, a draw and a training, each a second long."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from posteer.banks import load_bank
from posteer.banks.sampling import sample
from posteer.core import Progress
from posteer.core.files import sha256
from posteer.models.transformer.checkpoint import read_manifest
from posteer.sweeps.configuration import SweepConfig, config_from
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.results import consolidate
from posteer.sweeps.runner import Report
from posteer.sweeps.store import RunStore
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS

PLAN = replace(PRESETS["tiny"], steps=8, length=8, batch=2, warmup=2)
CHUNK, DRAWN_LENGTH = 8, 10
BANK = "bank.safetensors"


@cache
def small_sweep() -> SweepConfig:
    """Twelve runs in six batches."""
    given = {
        "name": "audit",
        "models": ["exact:urn"],
        "utilities": ["dyck", "frequency(0.3)"],
        "methods": ["ppt-rb-analytic(samples=30,steps=4)", "coordinate"],
        "lengths": [3],
        "seeds": 3,
    }
    return config_from(given, "audit")


@cache
def drawing_sweep() -> SweepConfig:
    """One run on a user's function, on a bank of the least size."""
    given = {
        "name": "audit",
        "models": [f"{Path(__file__).with_name('coin.py')}:predict"],
        "utilities": ["frequency(0.3)"],
        "methods": ["classes(seconds=1e-9,rollout-length=8,estimator=importance)"],
        "lengths": [3],
        "seeds": 1,
    }
    return config_from(given, "audit")


def sweep(folder: Path) -> None:
    """Run the sweep, as its command does."""
    run_sweep(small_sweep(), folder, device="cpu", batch_size=2)
    consolidate(folder)


def sweep_that_draws(folder: Path, report: Report | None = None) -> None:
    """Run the one that keeps a bank in its store, and beside it the sizes that were found out."""
    run_sweep(drawing_sweep(), folder, device="cpu", batch_size=1, report=report)


def kept_by_sweep(folder: Path) -> tuple[Path, Path]:
    """The bank of that sweep, and its sizes."""
    (bank,) = (folder / "banks").glob("*.safetensors")
    return bank, bank.with_suffix(".json")


def draw(folder: Path, progress: Progress | None = None) -> None:
    """Draw the bank, in six parts."""
    folder.mkdir(exist_ok=True)
    sample(
        "exact:urn",
        rollouts=6 * CHUNK,
        length=DRAWN_LENGTH,
        chunk=CHUNK,
        seed=3,
        out=folder / BANK,
        device="cpu",
        progress=progress,
    )


def trainer(folder: Path) -> Trainer:
    """A trainer that keeps a checkpoint of every second step."""
    return Trainer(PLAN, folder, held_out=4, evaluate_every=4, checkpoint_every=2, log_every=1)


def train(folder: Path) -> None:
    """Train; half-way it is stopped and started again, so that a model is replaced."""
    run = trainer(folder)
    if run.step < 4:
        run.run(should_stop=lambda: run.step >= 4)
    trainer(folder).run()


def digest_of_sweep(folder: Path) -> str:
    """Of all results; times and places left out."""
    records, damaged = RunStore.open(folder).records()
    assert not damaged
    kept = [
        (r["configuration"], r["status"], r["history"], {**(r["result"] or {}), "seconds": 0})
        for r in records
    ]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def digest_of_sweep_that_draws(folder: Path) -> str:
    """Of all results, the bank and its sizes."""
    bank, sizes = kept_by_sweep(folder)
    return f"{digest_of_sweep(folder)} {digest_of_bank(bank)} {sha256(sizes)}"


def digest_of_draw(folder: Path) -> str:
    """Of the bank's tensors."""
    return digest_of_bank(folder / BANK)


def digest_of_bank(path: Path) -> str:
    """Of its tensors."""
    bank = load_bank(path)
    assert bank.counts is not None
    tensors = (bank.kernels, bank.counts)
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()


def digest_of_training(folder: Path) -> str:
    """Of the weights and the records."""
    read_manifest(folder / "model")
    kept = ("model/model.safetensors", "model/config.json", "records.jsonl")
    return "".join(sha256(folder / name) for name in kept)
