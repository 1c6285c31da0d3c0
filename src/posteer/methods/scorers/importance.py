"""Plain and Pareto-smoothed importance sampling from the bank.

`J ~ sum_l w_l mu_l`, `w_l ∝ prod_cv kernel_l[c, v]^T[c, v]`: exact as the bank grows, whatever the
prior, and useless once few of its latents could have emitted the prompt. k-hat says when.

Latents that were read off rollouts are off by what a rollout's length leaves open, all of them in
the same direction: frequencies are more extreme than the chances behind them. What J changes by
when half of each rollout's tokens are dropped says by how much.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Float
from posteer.core.weights import pareto_smoothed, weighted_mean
from posteer.families.markov.kernels import log_likelihood
from posteer.goals.protocol import Utility
from posteer.methods.scorers.posterior import (
    FoldedPrompts,
    HardPromptPosterior,
    mean_utilities,
)
from posteer.methods.scorers.protocol import HardScores

COUNTING = 2.0
"""Times what half of a rollout's tokens change J by that counting may be off: once is what a bias
in proportion to 1/length would leave, and it falls more slowly."""

NO_MEAN = 1.0
"""Pareto k-hat from which weights have no mean, so that smoothed ones have no standard error."""


class ImportanceSampled(HardPromptPosterior):
    """Self-normalised weights over the bank, `smoothed` by PSIS if asked.

    The standard error is the delta method's, `sqrt(sum_l w_l^2 (mu_l - J)^2)`; with it goes what
    counting may be off by, where latents were counted and errors are asked for, and what smoothing
    changed, where it did. ESS is that of the weights used, k-hat that of the raw ones.
    """

    follows = True

    def __init__(
        self, bank: LatentBank, *, smoothed: bool = False, errors: bool = True, seed: int = 0
    ) -> None:
        self.bank = bank
        self.smoothed = smoothed
        self.errors = errors
        self.seed = seed
        self.name = "psis" if smoothed else "importance"

    def for_search(self) -> ImportanceSampled:
        """The same weights; errors leave out counting."""
        quick = copy(self)
        quick.errors = False
        return quick

    @cached_property
    def halved(self) -> Float[Tensor, "L C V"] | None:
        """Latents by a random half of the tokens they were counted on; None where none were."""
        if self.bank.counts is None:
            return None
        stream = numpy_stream(self.seed, "half-the-tokens")
        counts = torch.from_numpy(stream.binomial(self.bank.counts.numpy(), 0.5)).double()
        counts += self.bank.smoothing
        visits = counts.sum(-1, keepdim=True)
        return torch.where(visits > 0, counts / visits.clamp(min=1), self.bank.kernels)

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        scores = self._by_kernels(self.bank.kernels, utility, prompts, horizon)
        if not self.errors:
            return scores
        error = scores.standard_error
        if self.halved is not None:
            half = self._by_kernels(self.halved, utility, prompts, horizon)
            error = torch.hypot(error, COUNTING * (half.value - scores.value))
        if self.smoothed:
            plain = ImportanceSampled(self.bank, errors=False, seed=self.seed)
            change = scores.value - plain.of_folded(utility, prompts, horizon).value
            error = torch.hypot(error, change)
            error = error.masked_fill(scores.pareto_k >= NO_MEAN, torch.nan)
        error = error.masked_fill(~error.isfinite(), torch.nan)
        return HardScores.of(scores.value, error, scores.ess_fraction, scores.pareto_k)

    def _by_kernels(
        self,
        kernels: Float[Tensor, "L C V"],
        utility: Utility,
        prompts: FoldedPrompts,
        horizon: int,
    ) -> HardScores:
        space, kernels = self.bank.space, kernels.to(prompts.device)
        means = mean_utilities(utility, space, kernels, prompts.wide, horizon, self.seed)
        parts = []
        for rows in torch.arange(len(prompts.last)).split(max(1, NUMBERS_AT_ONCE // len(kernels))):
            raw = log_likelihood(prompts.counts[rows], kernels)
            smoothed, shape = pareto_smoothed(raw)
            log_weights = smoothed if self.smoothed else raw
            mean = weighted_mean(log_weights, means.T[prompts.last[rows]])
            shape = shape.masked_fill(mean.value.isneginf(), torch.nan)
            parts.append(torch.stack([mean.value, mean.standard_error, mean.ess_fraction, shape]))
        value, error, ess, shape = torch.cat(parts, 1)
        return HardScores.of(value, error, ess, shape)
