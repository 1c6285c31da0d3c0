"""The estimators of a bank, and which of them to believe.

A search takes the largest of thousands of scores, so it is one for all (`Estimators.choose`).
k-hat and ESS decide whether plain weights are admitted, `misfit` whether the conjugate fit is.
Plain weights assume nothing, so of two that are admitted the fit is used where it errs clearly
less. Where neither is, candidates found on the fit are scored again by SMC. Probing prompts are
random, the best one is not: where plain weights turn out unsound there, the search is made again
without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from posteer.banks.drawn import Bank
from posteer.core.shapes import Bool, Float, Int
from posteer.families.markov.fit.goodness import Misfit, misfit
from posteer.goals.protocol import Utility
from posteer.methods.answers import EstimatorChoice
from posteer.methods.scorers import SCORERS
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.exact import ExactAtoms
from posteer.methods.scorers.importance import ImportanceSampled
from posteer.methods.scorers.posterior import FoldedPrompts, HardPromptPosterior
from posteer.methods.scorers.protocol import HardScores
from posteer.methods.scorers.smc import TemperedSMC
from posteer.tokens.contexts import ContextSpace

TRUSTED_SHAPE = 0.5
"""Pareto k-hat from which the *errors* of weights are not believed: their variance is infinite. A
value alone is good up to 0.7 (Vehtari et al. 2024)."""

TRUSTED_LATENTS = 100
"""Effective latents below which weights are not believed, whatever their tail looks like."""

TRUSTED_COPIES = 10
"""Effective latents that are enough where the largest weights are equal: draws of one atom, whose
place no more of them would tell better."""

ADMITTED = 0.8
"""Share of probing prompts whose weights must be trusted for plain weights to be admitted."""

CLEARLY_LESS = 0.8
"""Error of the fit over that of plain weights up to which its assumptions are worth making."""

MANY_COMPONENTS = 8
"""Components from which the prior is so unlike a Dirichlet that a fit has no less error."""


class Estimators:
    """The estimators of one bank, each made once; the fit from that of others `like` it.

    A bank of all latents there are needs no estimate: whatever is asked for, it is exact.
    """

    def __init__(self, bank: Bank, seed: int = 0, like: Estimators | None = None) -> None:
        self.bank, self.observed, self.seed = bank.drawn, bank.observed, seed
        self.like = like
        self.exact = ExactAtoms(bank) if bank.exact else None
        self._made: dict[str, HardPromptPosterior] = {}

    def with_observed(self, counts: Int[Tensor, "K C V"]) -> Float[Tensor, "K C V"]:
        """Counts as latents are weighed by them, with those of what was observed since."""
        own = self.bank.temper * counts.double()
        return own if self.observed is None else own + self.observed

    def named(self, name: str) -> HardPromptPosterior:
        """An estimator that gives standard errors."""
        if self.exact is not None:
            return self.exact
        if name not in self._made:
            self._made[name] = SCORERS[name](self)
        return self._made[name]

    @cached_property
    def fit(self) -> ConjugateFit:
        """The conjugate fit, which others build on."""
        like = None if self.like is None else self.like.fit
        return ConjugateFit(self.bank, like=like, seed=self.seed)

    @cached_property
    def misfit(self) -> Misfit:
        return misfit(self.fit.mixture, self.fit.latents, self.seed)

    def choose(self, utility: Utility, probes: FoldedPrompts, horizon: int) -> EstimatorChoice:
        """By k-hat, ESS and misfit on prompts of the kind that will be searched."""
        if self.exact is not None:
            return EstimatorChoice(self.exact.name)
        if self.bank.smoothing > 0:
            return EstimatorChoice("importance", tuned=True)
        plain = self.named("importance").of_folded(utility, probes, horizon)
        admitted = float(trusted_weights(plain, len(self.bank)).double().mean())
        figures = EstimatorChoice(
            "smc" if admitted < ADMITTED else "importance",
            pareto_k=float(plain.pareto_k.nanmedian()),
            trusted=admitted,
            misfit=self.misfit.rms,
            fits=self.misfit.good,
        )
        if not self.misfit.good:
            return figures
        if admitted < ADMITTED:
            return replace(figures, name="conjugate")
        if self.fit.selection.supported >= MANY_COMPONENTS:
            return figures
        fitted = self.fit.of_folded(utility, probes, horizon)
        ratio = float((fitted.standard_error / plain.standard_error).nanmedian())
        name = "conjugate" if ratio < CLEARLY_LESS else "importance"
        return replace(figures, name=name, relative_error=ratio)

    def without_weights(self, chosen: EstimatorChoice, shape: float) -> EstimatorChoice:
        """What to use where plain weights were chosen and have this k-hat at the best prompt."""
        name = "conjugate" if self.misfit.good else "smc"
        return replace(chosen, name=name, pareto_k_at_best=shape)


def importance(estimators: Estimators) -> HardPromptPosterior:
    """Plain weights: nothing is assumed."""
    return ImportanceSampled(estimators.bank, seed=estimators.seed)


def psis(estimators: Estimators) -> HardPromptPosterior:
    """Pareto-smoothed weights."""
    return ImportanceSampled(estimators.bank, smoothed=True, seed=estimators.seed)


def conjugate(estimators: Estimators) -> HardPromptPosterior:
    """The fitted mixture of Dirichlets, updated exactly."""
    return estimators.fit


def smc(estimators: Estimators) -> HardPromptPosterior:
    """Particles led from the bank to the posterior, with the fit's density."""
    return TemperedSMC(estimators.bank, fit=estimators.fit, seed=estimators.seed)


def trusted_weights(scores: HardScores, n_latents: int) -> Bool[Tensor, "K"]:
    """k-hat below 0.5, or unknown, and enough effective latents; fewer where those are alike."""
    heavy = scores.pareto_k >= TRUSTED_SHAPE  # false for nan: no tail to judge
    effective = scores.ess_fraction * n_latents
    at_an_atom = scores.pareto_k.isneginf() & (effective >= TRUSTED_COPIES)
    return at_an_atom | ~heavy & (effective >= TRUSTED_LATENTS)


@dataclass(frozen=True, eq=False)
class PosteriorScorer:
    """An estimator as searches over classes ask it: counts of the latents' order, contexts of
    `ends`, which may be wider, and not those of what was observed before the prompt. Those that
    follow prompts work on `device`; scores come back to the CPU."""

    estimators: Estimators
    posterior: HardPromptPosterior
    utility: Utility
    horizon: int
    ends: ContextSpace
    device: str = "cpu"

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        prompts = FoldedPrompts(self.ends, self.estimators.with_observed(counts), last)
        if self.posterior.follows:
            prompts = prompts.to(self.device)
        return self.posterior.of_folded(self.utility, prompts, self.horizon).cpu()
