"""Trained models: those inside the package by name, others from their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posteer.core.device import pick_device, undisturbed
from posteer.core.errors import InputError, require
from posteer.core.spec import meant, shown
from posteer.families.registry import PRIORS
from posteer.models.transformer.checkpoint import load_model, read_manifest
from posteer.models.transformer.model import TransformerModel

ZOO = Path(__file__).parent / "zoo"


def shipped_models() -> dict[str, Path]:
    """The trained models inside the package, by name.

    >>> print(*sorted(shipped_models()))
    beta-bernoulli chains-1024 chains-16 ginc mess3-mixture second-order ternary urn urn-16k
    """
    return {path.parent.name: path.parent for path in sorted(ZOO.glob("*/manifest.json"))}


@undisturbed()
def load(name: str | Any, device: Any = "auto") -> TransformerModel:
    """A shipped model by name, or one from a folder.

    >>> load("beta-bernoulli").vocab_size
    2
    """
    require(isinstance(name, str), f"model {shown(name)}: expected a name or a folder")
    shipped, device = shipped_models(), pick_device(device)
    if name in shipped:
        return load_model(shipped[name], name).to(device)
    folder = Path(name)
    if name and "\0" not in name and folder.is_dir():
        trained = folder / "model"
        return load_model(trained if trained.is_dir() else folder, name).to(device)
    code = name.endswith(".py") and "\0" not in name and folder.is_file()
    require(
        not code, f"'{shown(name)}' is a file: expected what it calls the model, {shown(name)}:NAME"
    )
    raise InputError(
        f"unknown model '{shown(name)}': {meant(name, _said(shipped))}expected "
        f"{', '.join(shipped)}, a model folder, exact:urn, exact:beta-bernoulli, "
        "exact:markov(vocab=3,order=2,concentration=0.5), ./file.py:name, hf:FOLDER or smollm2"
    )


def _said(shipped: dict[str, Path]) -> list[str]:
    """What may have been meant: a name of ours, alone or as exact Bayes."""
    return [*shipped, *(f"exact:{name}" for name in PRIORS.names())]


def model_facts(folder: Path) -> dict[str, object]:
    """What a model folder says of itself, after checking that it is whole."""
    manifest = read_manifest(folder)
    plan = manifest.get("plan", {})
    shape = plan.get("architecture", {})
    hashes = manifest["files"]
    weights = sorted(name for name in hashes if name.startswith("model"))
    return {
        "name": folder.name,
        "process": manifest.get("process"),
        "vocab_size": shape.get("vocab_size"),
        "order": shape.get("order"),
        "parameters": manifest.get("parameters"),
        "steps": manifest.get("steps_done"),
        "planned_steps": plan.get("steps"),
        "excess_risk": manifest.get("excess_risk"),
        "sha256": hashes[weights[0]] if weights else None,
    }
