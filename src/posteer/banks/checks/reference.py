"""What exact Bayes would have shown: latents of the prior, rolled out and counted the same way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.kernels import sample_chains
from posteer.families.markov.priors import Process
from posteer.tokens.contexts import count_transitions

PRIOR_DRAWS = 20_000
ROWS_AT_ONCE = 2**23


@dataclass(frozen=True, eq=False)
class Reference:
    """`prior`: latents themselves. `counts`: of exact rollouts, twice as many as the bank's, at the
    bank's lengths."""

    prior: Float[Tensor, "P C V"]
    counts: dict[int, Int[Tensor, "L C V"]]
    length: int

    @property
    def full(self) -> Int[Tensor, "L C V"]:
        return self.counts[self.length]


def reference(process: Process, bank: LatentBank, seed: int) -> Reference:
    """Exact latents, conditioned on what the bank is conditioned on, and their rollouts."""
    origin, space = bank.origin, bank.space
    context = torch.tensor(origin.context, dtype=torch.long)
    if len(context) > space.order:
        process = process.posterior(count_transitions(space, context))
    length = origin.rollout_length or 0
    counts: dict[int, list[Tensor]] = {at: [] for at in [*bank.snapshots, length]}
    stream, generator = numpy_stream(seed, "reference-bank"), torch_stream(seed, "reference-bank")
    # a rollout goes on from the last tokens observed; what is missing of a context is uniform
    known = context[max(0, len(context) - space.order) :]
    missing = space.order - len(known)
    left = 2 * len(bank)
    while left > 0:
        n = min(left, max(1, ROWS_AT_ONCE // (length * space.n_contexts)))
        left -= n
        kernels = process.sample_kernels(n, stream)
        drawn = torch.randint(space.vocab_size, (n, missing), generator=generator)
        start = torch.cat([known.expand(n, -1), drawn], 1)
        chain = sample_chains(space, kernels, space.encode(start), length - missing, generator)
        tokens = torch.cat([start, chain], 1)
        for at, parts in counts.items():
            parts.append(count_transitions(space, tokens[:, : len(known) + at]).int())
    return Reference(
        process.sample_kernels(PRIOR_DRAWS, stream),
        {at: torch.cat(parts) for at, parts in counts.items()},
        length,
    )
