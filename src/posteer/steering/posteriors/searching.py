"""Which estimator a search should climb on, and the estimators of a bank, each made once.

A search takes the largest of thousands of scores, so it needs one estimator throughout. k-hat and
ESS decide whether plain weights are admitted at all, `misfit` whether the conjugate fit is; of two
that are, the one with the smaller standard error is used. Where neither is, candidates found on
the fit are scored again by SMC.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from posteer.errors import InputError
from posteer.kernels import ContextSpace
from posteer.latents.bank import LatentBank
from posteer.latents.hard_prompts import HardScores
from posteer.shapes import Float, Int
from posteer.steering.posteriors.base import FoldedPrompts, HardPromptPosterior, as_drawn
from posteer.steering.posteriors.choice import ESTIMATORS, trusted_weights
from posteer.steering.posteriors.conjugate_fit import ConjugateFit
from posteer.steering.posteriors.goodness import Misfit, misfit
from posteer.steering.posteriors.importance_sampled import ImportanceSampled
from posteer.steering.posteriors.tempered_smc import TemperedSMC
from posteer.utilities.base import Utility

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
        if name == "psis":
            return ImportanceSampled(self.bank, smoothed=True, seed=self.seed)
        if name not in ("importance", "conjugate", "smc"):
            raise InputError(f"unknown estimator '{name}': expected {', '.join(ESTIMATORS)}")
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
        return Chosen(name, f"{weights}; {fits}; the fit errs {ratio:.2f} times as much")


@dataclass(frozen=True, eq=False)
class PosteriorScorer:
    """An estimator as searches over classes ask it: counts of the latents' order, contexts of
    `ends`, which may be wider; `observed` transitions came before the prompt."""

    posterior: HardPromptPosterior
    utility: Utility
    horizon: int
    ends: ContextSpace
    observed: Float[Tensor, "C V"] | None = None

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        seen = counts.double() if self.observed is None else counts.double() + self.observed
        prompts = FoldedPrompts(self.ends, seen, last)
        return self.posterior.of_folded(self.utility, prompts, self.horizon)
