"""Sequence models and how they are named on the command line."""

from __future__ import annotations

from pathlib import Path

from posteer.core.errors import InputError
from posteer.families.markov.priors import open_process
from posteer.models import function
from posteer.models.conditioned import after_context, condition, context_of, unconditioned
from posteer.models.exact import ExactModel
from posteer.models.function import FunctionModel, complete
from posteer.models.meter import Metered, QueryCount
from posteer.models.protocol import ModelState, SequenceModel
from posteer.models.transformer.checkpoint import load_model, read_manifest
from posteer.models.transformer.model import TransformerModel

__all__ = [
    "ExactModel",
    "FunctionModel",
    "Metered",
    "ModelState",
    "QueryCount",
    "SequenceModel",
    "TransformerModel",
    "after_context",
    "complete",
    "condition",
    "context_of",
    "load",
    "model_facts",
    "open_model",
    "read_manifest",
    "shipped_models",
    "unconditioned",
]

ZOO = Path(__file__).parent / "zoo"


def shipped_models() -> dict[str, Path]:
    """The trained models inside the package, by name."""
    return {path.parent.name: path.parent for path in sorted(ZOO.glob("*/manifest.json"))}


def load(name: str, device: str = "cpu") -> TransformerModel:
    """A shipped model by name, or one from a folder."""
    shipped = shipped_models()
    if name in shipped:
        return load_model(shipped[name], name).to(device)
    folder = Path(name)
    if folder.is_dir():
        trained = folder / "model"
        return load_model(trained if trained.is_dir() else folder, name).to(device)
    raise InputError(
        f"unknown model '{name}': expected {', '.join(shipped)}, a model folder, exact:urn, "
        "exact:beta-bernoulli or exact:markov(vocab=3,order=2,concentration=0.5)"
    )


def open_model(text: str, device: str = "cpu") -> SequenceModel:
    """A shipped model, a model folder, `exact:` and a process, or `./file.py:name`."""
    kind, colon, process = text.partition(":")
    if kind == "exact" and colon:
        return ExactModel(open_process(process), name=text)
    if ".py:" in text:
        model: SequenceModel = function.from_file(text)
        return model
    return load(text, device)


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
