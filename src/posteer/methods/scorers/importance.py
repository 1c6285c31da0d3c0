"""Plain and Pareto-smoothed importance sampling from the bank.

`J ~ sum_l w_l mu_l`, `w_l ∝ prod_cv kernel_l[c, v]^T[c, v]`: exact as the bank grows, whatever the
prior, and useless once few of its latents could have emitted the prompt. k-hat says when.
"""

from __future__ import annotations

import torch

from posteer.banks.drawn import LatentBank
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.weights import pareto_smoothed, weighted_mean
from posteer.families.markov.kernels import log_likelihood
from posteer.goals.protocol import Utility
from posteer.methods.scorers.posterior import (
    FoldedPrompts,
    HardPromptPosterior,
    mean_utilities,
)
from posteer.methods.scorers.protocol import HardScores


class ImportanceSampled(HardPromptPosterior):
    """Self-normalised weights over the bank, `smoothed` by PSIS if asked.

    The standard error is the delta method's, `sqrt(sum_l w_l^2 (mu_l - J)^2)`. ESS is that of the
    weights used, k-hat that of the raw ones.
    """

    def __init__(self, bank: LatentBank, *, smoothed: bool = False, seed: int = 0) -> None:
        self.bank = bank
        self.smoothed = smoothed
        self.seed = seed
        self.name = "psis" if smoothed else "importance"

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        space, kernels = self.bank.space, self.bank.kernels
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
