"""What exact Bayes would have shown: latents of the prior, rolled out and counted the same way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.kernels import count_transitions, sample_chains
from posteer.latents.bank import LatentBank
from posteer.latents.unvisited import kernels_of_counts
from posteer.models.base import SequenceModel
from posteer.processes import Process
from posteer.randomness import numpy_stream, torch_stream
from posteer.shapes import Float, Int

PRIOR_DRAWS = 20_000
ROWS_AT_ONCE = 2**23


@dataclass(frozen=True, eq=False)
class Reference:
    """`prior`: latents themselves. `kernels`: read off exact rollouts as long as the bank's, whose
    `counts` are kept at the bank's lengths."""

    prior: Float[Tensor, "P C V"]
    kernels: Float[Tensor, "L C V"]
    counts: dict[int, Int[Tensor, "L C V"]]


def reference(model: SequenceModel, process: Process, bank: LatentBank, seed: int) -> Reference:
    """As many exact rollouts as the bank has, twice over."""
    origin, space = bank.origin, bank.space
    context = torch.tensor(origin.context, dtype=torch.long)
    if len(context) > space.order:
        process = process.posterior(count_transitions(space, context))
    length = origin.rollout_length or 0
    lengths = [*bank.snapshots, length]
    stream = numpy_stream(seed, "reference-bank")
    generator = torch_stream(seed, "reference-bank")
    counts: dict[int, list[Tensor]] = {at: [] for at in lengths}
    left = 2 * len(bank)
    while left > 0:
        n = min(left, max(1, ROWS_AT_ONCE // (length * space.n_contexts)))
        left -= n
        kernels = process.sample_kernels(n, stream)
        # an observed context is followed from its end; without one the first tokens are uniform
        if len(context) >= space.order:
            start = space.suffix(context).expand(n)
        else:
            start = torch.randint(space.n_contexts, (n,), generator=generator)
        known = space.decode(start)
        new = length if len(context) >= space.order else length - space.order
        tokens = torch.cat([known, sample_chains(space, kernels, start, new, generator)], 1)
        dropped = known.shape[1] if len(context) >= space.order else 0
        for at in lengths:
            counts[at].append(count_transitions(space, tokens[:, : at + dropped]).int())
    joined = {at: torch.cat(parts) for at, parts in counts.items()}
    return Reference(
        process.sample_kernels(PRIOR_DRAWS, stream),
        kernels_of_counts(model, joined[length], bank.unvisited, seed),
        joined,
    )
