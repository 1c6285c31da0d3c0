"""The estimators of a bank, each made once, and which of them to believe.

Prompt by prompt (`Automatic`): plain importance sampling assumes nothing and comes first wherever
its weights can be trusted; past that the conjugate fit if it agrees with the bank wherever the bank
can be asked, else SMC with the best density at hand.

For a search (`Estimators.choose`) it is one for all, since a search takes the largest of thousands
of scores. k-hat and ESS decide whether plain weights are admitted, `misfit` whether the conjugate
fit is; of two that are, the one with the smaller standard error is used. Where neither is,
candidates found on the fit are scored again by SMC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.errors import InputError
from posteer.core.shapes import Bool, Float, Int
from posteer.core.weights import pareto_k
from posteer.families.markov.fit.goodness import Misfit, misfit
from posteer.families.markov.kernels import log_likelihood
from posteer.goals.protocol import Utility
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.importance import ImportanceSampled
from posteer.methods.scorers.posterior import FoldedPrompts, HardPromptPosterior, as_drawn
from posteer.methods.scorers.protocol import HardScores
from posteer.methods.scorers.smc import TemperedSMC
from posteer.tokens.contexts import ContextSpace

TRUSTED_SHAPE = 0.7
"""Pareto k-hat from which weights are not believed (Vehtari et al. 2024)."""

TRUSTED_LATENTS = 100
"""Effective latents below which weights are not believed, whatever their tail looks like."""

ESTIMATORS = ("auto", "importance", "psis", "conjugate", "smc")


ADMITTED = 0.8
"""Share of probing prompts whose weights must be trusted for plain weights to be admitted."""


@dataclass(frozen=True)
class Chosen:
    """An estimator by name, and why."""

    name: str
    reason: str


class Estimators:
    """The estimators of one bank."""

    def __init__(self, bank: LatentBank, seed: int = 0) -> None:
        self.bank = as_drawn(bank if bank.drawn is None else bank.drawn)
        self.observed = bank.observed
        self.seed = seed

    def with_observed(self, counts: Int[Tensor, "K C V"]) -> Float[Tensor, "K C V"]:
        """Counts with those of what was observed after the bank was drawn."""
        return counts.double() if self.observed is None else counts.double() + self.observed

    def shape_of(self, counts: Int[Tensor, "C V"]) -> float:
        """k-hat of the plain weights of one prompt."""
        seen = self.with_observed(counts[None])
        return pareto_k(log_likelihood(seen, self.bank.kernels)[0])

    @cached_property
    def importance(self) -> ImportanceSampled:
        return ImportanceSampled(self.bank, seed=self.seed)

    @cached_property
    def conjugate(self) -> ConjugateFit:
        return ConjugateFit(self.bank, seed=self.seed)

    @cached_property
    def smc(self) -> TemperedSMC:
        return TemperedSMC(self.bank, fit=self.conjugate, seed=self.seed)

    @cached_property
    def misfit(self) -> Misfit:
        return misfit(self.conjugate.mixture, self.conjugate.latents, self.seed)

    def named(self, name: str) -> HardPromptPosterior:
        """An estimator that gives standard errors."""
        if name == "auto":
            return Automatic(self)
        if name == "psis":
            return ImportanceSampled(self.bank, smoothed=True, seed=self.seed)
        if name not in ESTIMATORS:
            raise InputError(f"unknown estimator '{name}': expected one of {', '.join(ESTIMATORS)}")
        found: HardPromptPosterior = getattr(self, name)
        return found

    def to_search_with(self, name: str) -> HardPromptPosterior:
        """The same, quick enough to be asked thousands of times: values matter, errors do not."""
        if name in ("conjugate", "smc"):
            return self.conjugate.without_errors()
        return self.named(name)

    def choose(self, utility: Utility, probes: FoldedPrompts, horizon: int) -> Chosen:
        """By k-hat, ESS and misfit on prompts of the kind that will be searched."""
        plain = self.importance.of_folded(utility, probes, horizon)
        admitted = float(trusted_weights(plain, len(self.bank)).double().mean())
        shape = float(plain.pareto_k.nanmedian())
        weights = f"k-hat {shape:.2f}, weights trusted in {admitted:.0%} of probes"
        fits = f"misfit {self.misfit.rms:.1f}"
        if not self.misfit.good:
            name = "importance" if admitted >= ADMITTED else "smc"
            return Chosen(name, f"{weights}; the fit is not ({fits})")
        if admitted < ADMITTED:
            return Chosen("conjugate", f"{weights}; {fits}")
        fitted = self.conjugate.of_folded(utility, probes, horizon)
        ratio = float((fitted.standard_error / plain.standard_error).nanmedian())
        name = "conjugate" if ratio < 1 else "importance"
        return Chosen(name, f"{weights}; {fits}; the fit errs {ratio:.2g} times as much")


class Automatic(HardPromptPosterior):
    """Importance sampling where it holds, else the conjugate fit where that fits, else SMC.

    `used` says which, prompt by prompt. `pareto_k` is that of the bank's weights throughout, so a
    prompt scored otherwise shows why; ESS and standard error are those of the estimator used.
    """

    name = "auto"

    def __init__(self, estimators: Estimators) -> None:
        self.bank = estimators.bank
        self.estimators = estimators

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        plain = self.estimators.importance.of_folded(utility, prompts, horizon)
        trusted = trusted_weights(plain, len(self.bank))
        estimators = ("importance", "conjugate", "smc")
        rest = (~trusted).nonzero()[:, 0]
        if len(rest) == 0:
            return replace(plain, estimators=estimators)
        name = "conjugate" if self.estimators.misfit.good else "smc"
        other = self.estimators.named(name).of_folded(utility, prompts.select(rest), horizon)
        index = torch.full_like(rest, estimators.index(name))
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


@dataclass(frozen=True, eq=False)
class PosteriorScorer:
    """An estimator as searches over classes ask it: counts of the latents' order, contexts of
    `ends`, which may be wider, and not those of what was observed before the prompt."""

    estimators: Estimators
    posterior: HardPromptPosterior
    utility: Utility
    horizon: int
    ends: ContextSpace

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        prompts = FoldedPrompts(self.ends, self.estimators.with_observed(counts), last)
        return self.posterior.of_folded(self.utility, prompts, self.horizon)
