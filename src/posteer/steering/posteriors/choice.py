"""Which estimator to believe, prompt by prompt.

Plain importance sampling assumes nothing and comes first wherever its weights can be trusted. Past
that a prior must be assumed: the conjugate fit if it agrees with the bank wherever the bank can be
asked, else SMC with the best density at hand.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from posteer.errors import InputError
from posteer.latents.bank import LatentBank
from posteer.latents.hard_prompts import HardScores
from posteer.shapes import Bool
from posteer.steering.posteriors.base import (
    FoldedPrompts,
    FromBank,
    HardPromptPosterior,
    as_drawn,
)
from posteer.steering.posteriors.conjugate_fit import ConjugateFit
from posteer.steering.posteriors.goodness import Misfit, misfit
from posteer.steering.posteriors.importance_sampled import ImportanceSampled
from posteer.steering.posteriors.tempered_smc import TemperedSMC
from posteer.utilities.base import Utility

TRUSTED_SHAPE = 0.7
"""Pareto k-hat from which weights are not believed (Vehtari et al. 2024)."""

TRUSTED_LATENTS = 100
"""Effective latents below which weights are not believed, whatever their tail looks like."""

ESTIMATORS = ("auto", "importance", "psis", "conjugate", "smc")


class Automatic(FromBank):
    """Importance sampling where it holds, else the conjugate fit where that fits, else SMC.

    `used` says which, prompt by prompt. `pareto_k` is that of the bank's weights throughout, so a
    prompt scored otherwise shows why; ESS and standard error are those of the estimator used.
    """

    name = "auto"

    def __init__(self, bank: LatentBank, *, fit: ConjugateFit | None = None, seed: int = 0) -> None:
        self.bank = as_drawn(bank)
        self.sampled = ImportanceSampled(bank, seed=seed)
        self.fit = ConjugateFit(bank, seed=seed) if fit is None else fit
        self.smc = TemperedSMC(bank, fit=self.fit, seed=seed)
        self.seed = seed

    @cached_property
    def misfit(self) -> Misfit:
        """What the conjugate fit gets wrong where the bank can tell."""
        return misfit(self.fit.mixture, self.fit.latents, self.seed)

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        plain = self.sampled.of_folded(utility, prompts, horizon)
        trusted = trusted_weights(plain, len(self.bank))
        estimators = (self.sampled.name, self.fit.name, self.smc.name)
        rest = (~trusted).nonzero()[:, 0]
        if len(rest) == 0:
            return replace(plain, estimators=estimators)
        fallback: HardPromptPosterior = self.fit if self.misfit.good else self.smc
        other = fallback.of_folded(utility, prompts.select(rest), horizon)
        index = torch.full_like(rest, estimators.index(fallback.name))
        return HardScores(
            plain.value.index_copy(0, rest, other.value),
            plain.standard_error.index_copy(0, rest, other.standard_error),
            plain.ess_fraction.index_copy(0, rest, other.ess_fraction),
            plain.pareto_k,
            plain.used.index_copy(0, rest, index),
            estimators,
        )


def trusted_weights(scores: HardScores, n_latents: int) -> Bool[Tensor, "K"]:
    """k-hat below 0.7, or unknown, and enough effective latents."""
    heavy = scores.pareto_k >= TRUSTED_SHAPE  # false for nan: no tail to judge
    return ~heavy & (scores.ess_fraction * n_latents >= TRUSTED_LATENTS)


def choose(bank: LatentBank, name: str = "auto", *, seed: int = 0) -> HardPromptPosterior:
    """An estimator by name."""
    if name == "auto":
        return Automatic(bank, seed=seed)
    if name in ("importance", "psis"):
        return ImportanceSampled(bank, smoothed=name == "psis", seed=seed)
    if name == "conjugate":
        return ConjugateFit(bank, seed=seed)
    if name == "smc":
        return TemperedSMC(bank, seed=seed)
    raise InputError(f"unknown estimator '{name}': expected one of {', '.join(ESTIMATORS)}")
