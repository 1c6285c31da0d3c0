"""Simulation-based calibration: is what happened typical of what the model said would happen?

A latent is drawn from the known prior and emits a sequence. The model sees its beginning and
continues it many times. If the model is exact Bayes, the true future is one more draw of the same
law, so any statistic of it has a uniform rank among the model's: at any length, not in a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posteer.banks.checks.statistics import bonferroni, uniformity
from posteer.banks.checks.tracing import trace
from posteer.core.progress import Progress
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.markov.family import MarkovFamily, markov_space
from posteer.families.protocol import Prior
from posteer.models.protocol import Model

BINS = 8
"""Bins of ranks that should be equally full."""


@dataclass(frozen=True)
class RankCheck:
    """Ranks (0 .. `draws`) of the count of each transition, by (context, token)."""

    simulations: int
    draws: int
    observed: int
    future: int
    ranks: dict[str, list[int]]
    p_values: dict[str, float]
    p_value: float


def check_ranks(
    model: Model,
    prior: Prior,
    *,
    simulations: int,
    draws: int,
    observed: int,
    future: int,
    seed: int,
    progress: Progress | None = None,
) -> RankCheck:
    """`draws + 1` should be a multiple of `BINS`."""
    space = markov_space(model.family, "calibration")
    family = MarkovFamily(space)
    generator = torch_stream(seed, "rank-check")
    latents = prior.sample(simulations, numpy_stream(seed, "rank-check"))
    truth = latents.roll_out(observed + future, generator)
    counted = []
    at_once = max(1, model.batch_limit(observed + future) // draws)
    for start in range(0, simulations, at_once):
        if progress is not None:
            progress("calibration", start, simulations)
        some = truth[start : start + at_once, :observed]
        rolled = trace(model, some.repeat_interleave(draws, 0), future, generator).tokens
        joined = torch.cat(
            [some[:, observed - space.order :].repeat_interleave(draws, 0), rolled], 1
        )
        counted.append(family.count(joined).unflatten(0, (len(some), draws)))
    own = torch.cat(counted)
    true = family.count(truth[:, observed - space.order :])[:, None]
    ties = torch.rand(own.shape, dtype=torch.float64, generator=generator)
    mine = torch.rand(true.shape, dtype=torch.float64, generator=generator)
    below = (own < true) | ((own == true) & (ties < mine))
    ranks = below.sum(1)
    named, p_values = {}, {}
    for context in range(space.n_contexts):
        for token in range(1, space.vocab_size):
            name = f"{context}>{token}"
            named[name] = ranks[:, context, token].tolist()
            p_values[name] = uniformity(ranks[:, context, token], draws + 1, BINS)
    return RankCheck(
        simulations, draws, observed, future, named, p_values, bonferroni(list(p_values.values()))
    )
