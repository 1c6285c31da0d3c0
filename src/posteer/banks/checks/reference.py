"""What exact Bayes would have shown: latents of the prior, rolled out and counted the same way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.family import kernels_of
from posteer.families.protocol import Prior

PRIOR_DRAWS = 20_000
ROWS_AT_ONCE = 2**23

LEAST_ROLLOUTS = 4096
"""Exact ones are cheap, and the noise of comparing should be the bank's."""


@dataclass(frozen=True, eq=False)
class Reference:
    """`prior`: latents themselves. `counts`: of exact rollouts, twice as many as the bank's or
    `LEAST_ROLLOUTS`, at the bank's lengths."""

    prior: Float[Tensor, "P C V"]
    counts: dict[int, Int[Tensor, "L C V"]]
    length: int

    @property
    def full(self) -> Int[Tensor, "L C V"]:
        return self.counts[self.length]


def reference(prior: Prior, bank: LatentBank, seed: int) -> Reference:
    """Exact latents, conditioned on what the bank is conditioned on, and their rollouts."""
    context, family = bank.origin.context, bank.markov.family
    posterior = prior.after(context)
    length = bank.origin.rollout_length or 0
    counts: dict[int, list[Tensor]] = {at: [] for at in [*bank.snapshots, length]}
    stream, generator = numpy_stream(seed, "reference-bank"), torch_stream(seed, "reference-bank")
    # a rollout goes on from the last tokens observed
    known = torch.tensor(context[-family.order :] if family.order else (), dtype=torch.long)
    left = max(2 * len(bank), LEAST_ROLLOUTS)
    while left > 0:
        n = min(left, max(1, ROWS_AT_ONCE // (length * family.space.n_contexts)))
        left -= n
        rolled = posterior.sample(n, stream).roll_out(length, generator, context)
        tokens = torch.cat([known.expand(n, -1), rolled], 1)
        for at, parts in counts.items():
            parts.append(family.count(tokens[:, : len(known) + at]).int())
    return Reference(
        kernels_of(posterior.sample(PRIOR_DRAWS, stream)),
        {at: torch.cat(parts) for at, parts in counts.items()},
        length,
    )
