"""Which atom of a known finite prior emitted each rollout, and how surely that can be told.

Under exact Bayes the mean posterior over rollouts is the prior. Posterior weights vary less than
the atoms themselves do, so that the chi-square of their sums has at most its stated false alarms,
and just those where every rollout is told for sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.families.atoms.classified import ClassifiedFamily

SURE = 0.99
LEAST_EXPECTED = 5.0
"""Rollouts that a bin of the chi-square must expect; rarer atoms share one."""


@dataclass(frozen=True)
class AtomCheck:
    """`sharpness` is the mean of the largest posterior weight, `entropy` the mean entropy in nats,
    `sure` the share of rollouts with a weight above 0.99. `weights` are the prior's, `found` the
    mean posterior's; `p_value` is of such a difference under exact Bayes, or larger."""

    rollouts: int
    length: int
    atoms: int
    sharpness: float
    entropy: float
    sure: float
    weights: list[float]
    found: list[float]
    p_value: float


def check_atoms(family: ClassifiedFamily, rollouts: Int[Tensor, "L T"]) -> AtomCheck:
    """Classify rollouts by atoms, where a context has left them if there is one."""
    posterior = family.posterior(rollouts)
    weights = family.prior.log_weights.softmax(0)
    largest = posterior.amax(1)
    return AtomCheck(
        rollouts=len(rollouts),
        length=rollouts.shape[1],
        atoms=len(weights),
        sharpness=float(largest.mean()),
        entropy=float(torch.special.entr(posterior).sum(1).mean()),
        sure=float((largest > SURE).double().mean()),
        weights=weights.tolist(),
        found=posterior.mean(0).tolist(),
        p_value=frequencies_p_value(posterior.sum(0), weights * len(rollouts)),
    )


def frequencies_p_value(seen: Float[Tensor, "J"], expected: Float[Tensor, "J"]) -> float:
    """Chi-square of what was seen of each atom, rare ones taken together."""
    order = expected.argsort()
    rare = int((expected[order].cumsum(0) < LEAST_EXPECTED).sum()) + 1
    rare = max(rare, int((expected < LEAST_EXPECTED).sum()))
    first, rest = order[:rare], order[rare:]
    if len(rest) == 0:
        return 1.0
    found = torch.cat([seen[first].sum()[None], seen[rest]])
    known = torch.cat([expected[first].sum()[None], expected[rest]])
    statistic = ((found - known).square() / known).sum()
    degrees = torch.tensor(len(rest) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(degrees, statistic / 2))
