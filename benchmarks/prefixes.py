"""What GCG on the urn transformer reads of what it is charged for, and what reading less saves.

    python benchmarks/prefixes.py [--length 50] [--seed 0] [--device cuda]

All goals of the paper for the urn, one seed, in one batch, as a sweep has them. Charged: every
candidate of every run, whole. Distinct: runs that try the same prompt share it. Read: what prompts
of a pass begin with in common is read once (`models.transformer.packed`). Then 125 neighbours of
five prompts, packed and each whole behind its mask: milliseconds of the processor, one thread, or
of 7,750 neighbours of 310 prompts on a GPU, by the clock; laws agree in the same run.
"""

from __future__ import annotations

import argparse
from time import perf_counter, process_time
from typing import Any

import torch
from timing import least_milliseconds
from torch import Tensor

from posteer import elicit_many
from posteer.core.device import pick_device
from posteer.methods.direct.coordinate import single_substitutions
from posteer.models import load
from posteer.models.transformer import model as reading
from posteer.models.transformer.packed import pack, packed_log_probs
from posteer.models.trees import continuation_tree, tree_size
from posteer.sweeps.presets import preset

HORIZON = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    device = pick_device(given.device)
    torch.set_num_threads(1)
    (goals,) = (grid.utilities for grid in preset("paper").grids if "urn" in grid.models)
    whole = given.length + tree_size(2, HORIZON) + 1
    asked = {"distinct": 0, "read": 0}

    def counting(network: Any, prompts: Tensor, horizon: int) -> Tensor:
        asked["distinct"] += len(prompts) * whole
        asked["read"] += len(pack(prompts, 2, horizon).tokens)
        return packed_log_probs(network, prompts, horizon)

    setattr(reading, "packed_log_probs", counting)  # noqa: B010
    found = elicit_many(
        "urn", goals, length=given.length, method="gcg", seeds=[given.seed], device=device
    )
    setattr(reading, "packed_log_probs", packed_log_probs)  # noqa: B010
    candidates = sum(step.candidates for run in found for step in run.history)
    charged = candidates * whole
    print(f"{len(goals)} runs, {candidates:,} candidates of {given.length} tokens")
    print(f"tokens charged {charged:,}")
    for what, n in asked.items():
        print(f"tokens {what} {n:,} ({n / charged:.0%})")

    network = load("urn", device).network
    generator = torch.Generator().manual_seed(given.seed)
    bases = torch.randint(2, (5 if device == "cpu" else 310, given.length), generator=generator)
    near = torch.cat([single_substitutions(base, 2)[::2] for base in bases]).to(device)
    tree = continuation_tree(2, HORIZON)
    ways = {
        "each whole": lambda: network.tree_log_probs(network.tokens(near), tree).cpu(),
        "packed": lambda: packed_log_probs(network, near, HORIZON).cpu(),
    }
    clock = process_time if device == "cpu" else perf_counter
    with torch.no_grad():
        one, other = (way() for way in ways.values())
        assert torch.allclose(one, other, atol=1e-5)
        times = {name: least_milliseconds(way, 5, clock) for name, way in ways.items()}
    for name, taken in times.items():
        print(f"{len(near)} neighbours {name}: {taken:.0f} ms")
    print(f"{times['each whole'] / times['packed']:.2f}x")


if __name__ == "__main__":
    main()
