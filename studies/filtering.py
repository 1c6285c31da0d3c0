"""How close trained transformers are to exact Bayes.

    python studies/filtering.py variation [--sequences 64] [--length 1999]
    python studies/filtering.py risk [--sequences 64] [--write]

`variation`: total variation between a shipped model's next-token law and the exact predictive
after so many tokens of fixed sequences of its own process, mean and largest over sequences.
`risk`: excess risk on held-out sequences, in float32; `--write` puts it into the manifests.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.sealing import write_sealed
from posteer.core.shapes import Float
from posteer.families.registry import open_process
from posteer.models import ExactModel, Model, load, shipped_models
from posteer.models.transformer.checkpoint import MANIFEST, read_manifest
from posteer.training.data import HeldOut
from posteer.training.plan import TrainingPlan

PREFIXES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1999)


def total_variation(
    model: Model, process: str, n: int, length: int, seed: int = 0
) -> Float[Tensor, "B T1"]:
    """Distance to exact Bayes after 0, 1, ..., length tokens of fixed sequences."""
    exact = ExactModel(open_process(process))
    stream, generator = numpy_stream(seed, "filtering"), torch_stream(seed, "filtering")
    tokens = exact.prior.sample(n, stream).roll_out(length, generator)
    laws = torch.cat([model.log_predictive(part).cpu() for part in tokens.split(8)])
    return 0.5 * (laws.double().exp() - exact.log_predictive(tokens).exp()).abs().sum(-1)


def print_variation(n: int, length: int) -> None:
    prefixes = [prefix for prefix in PREFIXES if prefix <= length]
    print("\n".join(heading("| model | | " + " | ".join(map(str, prefixes)) + " |")))
    for name, folder in shipped_models().items():
        model, process = load(name), str(read_manifest(folder)["process"])
        if model.max_length is not None and model.max_length < length:
            continue  # it reads fewer: ask with a shorter --length
        distance = total_variation(model, process, n, length)
        for label, row in (("mean", distance.mean(0)), ("largest", distance.amax(0))):
            cells = " | ".join(f"{float(row[prefix]):.4f}" for prefix in prefixes)
            print(f"| {name} | {label} | {cells} |")


def measure_risk(name: str, folder: Path, n: int) -> dict[str, Any]:
    """Excess risk of a shipped model on `n` of its plan's held-out sequences."""
    manifest = read_manifest(folder)
    plan = TrainingPlan.from_json(manifest["plan"])
    prior = open_process(plan.process)
    held_out = HeldOut(prior, n, plan.length, plan.seed, torch.device("cpu"))
    risk = asdict(held_out.excess(load(name).network, part=4))
    return {"step": manifest["steps_done"], "sequences": n, **risk}


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("what", choices=("variation", "risk"))
    parser.add_argument("--sequences", type=positive, default=64)
    parser.add_argument("--length", type=positive, default=1999)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.what == "variation":
        print_variation(given.sequences, given.length)
        return
    for name, folder in shipped_models().items():
        risk = measure_risk(name, folder, given.sequences)
        print(json.dumps({"model": name, **risk}))
        if given.write:
            write_sealed(folder / MANIFEST, {**read_manifest(folder), "excess_risk": risk})


if __name__ == "__main__":
    run(main)
