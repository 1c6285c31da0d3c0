"""Is the implied prior the one the model was trained on?"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from posteer.banks.checks.moments import MomentCheck, check_moments
from posteer.banks.checks.reference import Reference
from posteer.banks.checks.statistics import bonferroni, two_sample_ks, wasserstein
from posteer.banks.drawn import LatentBank
from posteer.core.shapes import Float, Int

LEAST = 30
"""Rollouts that must have visited a row for it to be compared."""


@dataclass(frozen=True)
class RowDistance:
    """One entry of the kernel over the rollouts that visited its row, against the known prior.

    `ks` and `p_value` compare with exact latents rolled out and counted the same way, so that the
    errors of counting and of not visiting are on both sides and the p-value is fair at any length.
    `ks_prior` and `wasserstein` are to the prior itself, those errors included;
    `wasserstein_exact` is the same for two banks of an exact model.
    """

    context: int
    token: int
    rollouts: int
    ks: float
    p_value: float
    ks_prior: float
    wasserstein: float
    wasserstein_exact: tuple[float, float]


@dataclass(frozen=True)
class PriorCheck:
    """Distances of all rows, and moments; `p_value` is corrected for the number of both."""

    rows: list[RowDistance]
    moments: MomentCheck
    p_value: float


def check_prior(bank: LatentBank, exact: Reference) -> PriorCheck:
    """Every row, and every token but the first (which the others determine in a binary row)."""
    assert bank.counts is not None
    size, rows = len(bank), []
    halves = exact.full[:size], exact.full[size : 2 * size]
    for context in range(bank.space.n_contexts):
        own = _frequencies(bank.counts, context)
        counted = _frequencies(exact.full, context)
        parts = [_frequencies(half, context) for half in halves]
        if min(len(own), *(len(part) for part in parts)) < LEAST:
            continue
        for token in range(1, bank.space.vocab_size):
            prior = exact.prior[:, context, token]
            ks, p_value = two_sample_ks(own[:, token], counted[:, token])
            rows.append(
                RowDistance(
                    context=context,
                    token=token,
                    rollouts=len(own),
                    ks=ks,
                    p_value=p_value,
                    ks_prior=two_sample_ks(own[:, token], prior)[0],
                    wasserstein=wasserstein(own[:, token], prior),
                    wasserstein_exact=(
                        wasserstein(parts[0][:, token], prior),
                        wasserstein(parts[1][:, token], prior),
                    ),
                )
            )
    moments = check_moments(bank.counts, exact.full, exact.prior.mean(0))
    distances = bonferroni([row.p_value for row in rows])
    return PriorCheck(rows, moments, bonferroni([distances, moments.p_value]))


def _frequencies(counts: Int[Tensor, "L C V"], context: int) -> Float[Tensor, "n V"]:
    """Of the rollouts that visited the context; copies filled in elsewhere would not be draws."""
    own = counts[:, context].double()
    totals = own.sum(-1, keepdim=True)
    return (own / totals.clamp(min=1))[totals[:, 0] > 0]
