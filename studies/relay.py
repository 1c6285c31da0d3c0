"""A training carried from one lent machine to the next, in files small enough to travel.

    python studies/relay.py pack RUN/seed-0 PARTS      # its newest checkpoint, with the records
    python studies/relay.py unpack PARTS RUN/seed-0    # a training that goes on there

Weights travel as they are, in float32. Adam's two moments travel in bfloat16, which takes a third
off: with betas of 0.9 and 0.95 they are forgotten within a hundred steps, so a training that went
through here is not the same to the last bit, and is the same training. Parts are of 12 MiB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from running import Options, run

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

MOMENTS = ("exp_avg.", "exp_avg_sq.")


def pack(training: Path, parts: Path) -> dict[str, Any]:
    """The newest whole checkpoint of a training, with all that its folder needs to begin."""
    planned = training / "plan.json"
    require(planned.is_file(), f"{training}: there is no training here")
    plan = TrainingPlan.from_json(read_sealed(planned))
    found = TrainingFolder(training, plan).newest(print)
    require(found is not None, f"{training}: no checkpoint yet")
    assert found is not None
    step, records, tensors = found
    light = {
        name: tensor.to(torch.bfloat16) if name.startswith(MOMENTS) else tensor
        for name, tensor in tensors.items()
    }
    facts = {"step": step, "records": records, "plan": plan.to_json()}
    write_folder_atomically(parts, with_manifest(split_tensors(light, "state"), facts), is_ours)
    return facts


def unpack(parts: Path, training: Path) -> dict[str, Any]:
    """A training folder whose only checkpoint is the one that was carried."""
    facts = read_manifest(parts)
    tensors = read_tensors(parts, facts, "state")
    folder = TrainingFolder(training, TrainingPlan.from_json(facts["plan"]))
    folder.accept()
    require(not folder.saved(), f"{training} has checkpoints already: give another folder")
    whole = {name: one.float() for name, one in tensors.items()}
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
