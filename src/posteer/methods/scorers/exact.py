"""A prior of finitely many kernels, all known with their weights: J itself, no estimate of it."""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.banks.drawn import Bank
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.shapes import Float
from posteer.core.weights import weighted_mean
from posteer.families.markov.kernels import log_likelihood
from posteer.goals.protocol import Utility
from posteer.methods.answers import EXACT
from posteer.methods.scorers.posterior import FoldedPrompts, HardPromptPosterior, mean_utilities
from posteer.methods.scorers.protocol import HardScores


class ExactAtoms(HardPromptPosterior):
    """`J = sum_j w_j p_j mu_j / sum_j w_j p_j` over all kernels there are, with no error."""

    name = EXACT
    follows = True

    def __init__(self, bank: Bank) -> None:
        assert bank.log_weights is not None, "of a bank that is exact"
        self.bank, self.log_weights = bank.drawn, bank.log_weights
        self._means: dict[tuple[int, int, int], tuple[Utility, Float[Tensor, "L W"]]] = {}

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        kernels = self.bank.kernels.to(prompts.device)
        means = self._means_of(utility, prompts, horizon).to(prompts.device)
        known, values = self.log_weights.to(prompts.device), []
        for rows in torch.arange(len(prompts.last)).split(max(1, NUMBERS_AT_ONCE // len(kernels))):
            joint = known + log_likelihood(prompts.counts[rows], kernels)
            values.append(weighted_mean(joint, means.T[prompts.last[rows]]).value)
        value = torch.cat(values)
        return HardScores.of(value, torch.zeros_like(value))

    def _means_of(
        self, utility: Utility, prompts: FoldedPrompts, horizon: int
    ) -> Float[Tensor, "L W"]:
        """Worked out once for each utility that is asked about, which is kept with them."""
        key = (id(utility), prompts.wide.order, horizon)
        if key not in self._means:
            space, kernels = self.bank.space, self.bank.kernels
            found = mean_utilities(utility, space, kernels, prompts.wide, horizon, seed=0)
            self._means[key] = utility, found
        return self._means[key][1]
