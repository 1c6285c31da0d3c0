"""Is the implied prior the one the model was trained on?"""

from __future__ import annotations

from dataclasses import dataclass

from posteer.latents.bank import LatentBank
from posteer.latents.checks.reference import Reference
from posteer.latents.checks.statistics import (
    Interval,
    holm,
    two_sample_ks,
    wasserstein,
    wasserstein_of_exact,
)
from posteer.randomness import torch_stream


@dataclass(frozen=True)
class RowDistance:
    """One entry of the kernel, the bank against the known prior.

    `ks` and `p_value` compare with exact latents rolled out and counted the same way, so that the
    error of counting is on both sides and the p-value is fair at any length. `ks_prior` and
    `wasserstein` are to the prior itself, counting error included; `wasserstein_exact` is what a
    bank of an exact model shows.
    """

    context: int
    token: int
    ks: float
    p_value: float
    ks_prior: float
    wasserstein: float
    wasserstein_exact: Interval


@dataclass(frozen=True)
class PriorCheck:
    """Distances of all rows; `p_value` is corrected for their number."""

    rows: list[RowDistance]
    p_value: float


def check_prior(bank: LatentBank, exact: Reference, seed: int) -> PriorCheck:
    """Every row, and every token but the first (which the others determine in a binary row)."""
    generator = torch_stream(seed, "prior-check")
    rows = []
    for context in range(bank.space.n_contexts):
        for token in range(1, bank.space.vocab_size):
            own = bank.kernels[:, context, token]
            counted = exact.kernels[:, context, token]
            prior = exact.prior[:, context, token]
            ks, p_value = two_sample_ks(own, counted)
            rows.append(
                RowDistance(
                    context=context,
                    token=token,
                    ks=ks,
                    p_value=p_value,
                    ks_prior=two_sample_ks(own, prior)[0],
                    wasserstein=wasserstein(own, prior),
                    wasserstein_exact=wasserstein_of_exact(counted, prior, len(own), generator),
                )
            )
    return PriorCheck(rows, holm([row.p_value for row in rows]))
