"""A bank of the prior as one of the posterior: its latents weighed by what was observed since."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.drawn import Bank, LatentBank, Origin
from posteer.core import Float, require
from posteer.core.weights import ess_fraction
from posteer.families.markov.family import Lifted, MarkovLatents
from posteer.families.markov.kernels import log_likelihood
from posteer.tokens.contexts import count_transitions

LEAST_LOG_WEIGHT = 230.0
"""How far below the largest a log-weight still counts: exp(-230) is 1e-100."""


@dataclass(frozen=True, eq=False)
class ReweighedBank(Bank):
    """Latents of `drawn` that are still to be weighed by the likelihood of `observed` counts.

    Whoever weighs them by a prompt's counts does so by adding these. A latent whose weight is below
    1e-100 of the largest is as good as absent and left out: an exact zero would have to be told
    from rounding wherever logarithms are taken.
    """

    latents: MarkovLatents
    observed: Float[Tensor, "C V"]
    drawn: LatentBank

    log_weights = None

    @classmethod
    def of(cls, drawn: LatentBank, observed: Float[Tensor, "C V"]) -> ReweighedBank:
        """The latents that can still matter."""
        observed = drawn.temper * observed
        log_weights = log_likelihood(observed[None], drawn.kernels)[0]
        kept = log_weights > log_weights.max() - LEAST_LOG_WEIGHT
        require(int(kept.sum()) >= 2, "no two latents of the bank can emit the context")
        return cls(MarkovLatents(drawn.space, drawn.kernels[kept]), observed, drawn)

    @property
    def origin(self) -> Origin:  # type: ignore[override]
        return self.drawn.origin

    @property
    def temper(self) -> float:  # type: ignore[override]
        return self.drawn.temper

    def lifted(self, order: int, head: tuple[int, ...] = ()) -> Lifted:
        """The latents as kernels of a higher order, what was observed in their first weights."""
        log_weights = log_likelihood(self.observed[None], self.kernels)[0]
        return self.latents.lifted(order, head, log_weights)


def effective_latents(bank: LatentBank, context: tuple[int, ...]) -> float:
    """How many latents of a prior are left once weighed by a context."""
    if len(context) <= bank.latents.family.order:  # no transition yet
        return float(len(bank))
    log_weights = bank.latents.log_likelihood(torch.tensor([context]))[0]
    possible = bool((log_weights > -torch.inf).any())
    return float(ess_fraction(log_weights)) * len(bank) if possible else 0.0


def weighed(bank: LatentBank, context: tuple[int, ...]) -> Bank:
    """A bank of the prior as one of the posterior after a context; of latents that are no kernels
    the bank itself: whoever weighs them has them read the context."""
    if len(context) <= bank.latents.family.order or not isinstance(bank.latents, MarkovLatents):
        return bank
    return ReweighedBank.of(bank, count_transitions(bank.space, torch.tensor(context)))
