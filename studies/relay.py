"""A training carried from one lent machine to the next, small enough to be kept among the records.

    python studies/relay.py pack RUN PARTS      # its newest checkpoint, with the records
    python studies/relay.py unpack PARTS RUN    # a training that goes on there

A checkpoint on one machine goes on exactly, and takes 82 MB for the urn. Carried it takes 27:
matrices in bfloat16, whose rounding moves them by what two to nine steps do (4e-5 of 0.02 for the
urn, its loss by nothing that can be measured), gains and biases as they are, and
Adam's moments in eight bits, the second as its root: with betas of 0.9 and 0.95 they are forgotten
within a hundred steps. What goes on is the same training, not to the last bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from running import Options, run
from torch import Tensor

from posteer.core.errors import require
from posteer.core.files import write_folder_atomically
from posteer.core.sealing import read_sealed
from posteer.models.transformer.checkpoint import (
    is_ours,
    read_manifest,
    read_tensors,
    split_tensors,
    with_manifest,
)
from posteer.training.folder import TrainingFolder
from posteer.training.plan import TrainingPlan

ADAM = ("exp_avg", "exp_avg_sq")
EIGHT = torch.float8_e5m2
"""Nine decades, four steps in each doubling."""


def in_eight_bits(tensor: Tensor) -> tuple[Tensor, float]:
    """A tensor to an eighth, and the scale it is to be multiplied by; zeros alone become zeros."""
    facts = torch.finfo(EIGHT)
    scale = max(float(tensor.abs().max()) / facts.max, torch.finfo(torch.float32).tiny)
    least = facts.smallest_normal
    steps = (tensor / scale).clamp(-facts.max, facts.max)
    small = (steps.abs() < least) & (steps != 0)
    return torch.where(small, least * steps.sign(), steps).to(EIGHT), scale


def pack(training: Path, parts: Path) -> dict[str, Any]:
    """The newest whole checkpoint of a training, with all that its folder needs to begin."""
    planned = training / "plan.json"
    require(planned.is_file(), f"{training}: there is no training here")
    plan = TrainingPlan.from_json(read_sealed(planned))
    found = TrainingFolder(training, plan).newest(print)
    require(found is not None, f"{training}: no checkpoint yet")
    assert found is not None
    step, records, tensors = found
    carried, scales = {}, {}
    for name, tensor in tensors.items():
        if name.startswith("weight."):
            carried[name] = tensor.to(torch.bfloat16) if tensor.ndim > 1 else tensor
        elif name.startswith("exp_avg"):
            moment = tensor.sqrt() if name.startswith("exp_avg_sq.") else tensor
            carried[name], scales[name] = in_eight_bits(moment)
        else:
            carried[name] = tensor
    facts = {"step": step, "records": records, "plan": plan.to_json(), "scales": scales}
    print(moved_by_rounding(tensors, carried, plan.rate(step)))
    write_folder_atomically(parts, with_manifest(split_tensors(carried, "state"), facts), is_ours)
    return facts


def moved_by_rounding(tensors: dict[str, Tensor], carried: dict[str, Tensor], rate: float) -> str:
    """How far weights move by being carried, beside the step that Adam would take."""
    weights = {name: one for name, one in tensors.items() if name.startswith("weight.")}
    rounding = [(carried[name].float() - one).flatten() for name, one in weights.items()]
    steps = []
    for name in weights:
        first, second = (tensors[name.replace("weight", key, 1)] for key in ADAM)
        steps.append((rate * first / (second.sqrt() + 1e-8)).flatten())
    moved, step, size = (
        float(torch.cat(parts).square().mean().sqrt())
        for parts in (rounding, steps, [one.flatten() for one in weights.values()])
    )
    return f"rounding moves weights of {size:.3f} by {moved:.1e}, a step by {step:.1e}"


def unpack(parts: Path, training: Path) -> dict[str, Any]:
    """A training folder whose only checkpoint is the one that was carried."""
    facts = read_manifest(parts)
    require("scales" in facts, f"{parts} was not packed by this study")
    folder = TrainingFolder(training, TrainingPlan.from_json(facts["plan"]))
    folder.accept()
    require(not folder.saved(), f"{training} has checkpoints already: give another folder")
    whole = {}
    for name, tensor in read_tensors(parts, facts, "state").items():
        whole[name] = tensor.float() * facts["scales"].get(name, 1.0)
        if name.startswith("exp_avg_sq."):
            whole[name] = whole[name].square()
    folder.save(facts["step"], whole, facts["records"])
    return facts


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("part", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    facts = (pack if given.part == "pack" else unpack)(given.source, given.out)
    print(f"{given.out}: step {facts['step']:,} of {facts['plan']['steps']:,}")


if __name__ == "__main__":
    run(main)
