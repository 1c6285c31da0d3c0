"""EM for mixtures of products of Dirichlets, from kernels or from the counts of rollouts.

A latent is known exactly (a kernel drawn from the prior) or through n tokens it emitted (a
rollout). Both are one EM: the complete data are the component and the kernel, the expected
statistic of latent l in component j is `E[log kernel_l | evidence, alpha_j]`, which is
`log kernel_l` in the first case and `digamma(alpha_j + n_l) - digamma(A_j + N_l)` in the second.
The M-step is then a Dirichlet fit per component and row, concave in alpha. Since rows of a rollout
that were never visited carry no evidence, the treatment of such rows plays no part here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.tokens.contexts import ContextSpace

LOG_FLOOR = -700.0
"""Logarithms of kernel entries are floored here: a density has no value at a corner."""

MOST_CONCENTRATED = 1e6
"""Largest row sum of a component: a prior of point masses has no finite maximum likelihood."""

LEAST_ENTRY = 1e-4
"""Smallest entry of a concentration, for the same reason at the corners."""


SETTLED = 1e-8
"""Newton step of an entry, as a share of it, after which no further one can be seen."""


@runtime_checkable
class Evidence(Protocol):
    """What is known of each latent of a bank."""

    def __len__(self) -> int: ...

    def select(self, rows: Int[Tensor, "n"]) -> Evidence: ...

    def kernels(self) -> Float[Tensor, "L C V"]:
        """A guess at each kernel with no zeros, to start from."""

    def log_densities(self, mixture: DirichletMixture) -> Float[Tensor, "L J"]:
        """`log pi_j + log p(evidence_l | alpha_j)`."""

    def expected_logs(
        self, mixture: DirichletMixture, shares: Float[Tensor, "L J"]
    ) -> Float[Tensor, "J C V"]:
        """`sum_l shares_lj E[log kernel_l | evidence_l, alpha_j]`."""


@dataclass(frozen=True, eq=False)
class KnownKernels:
    """Latents drawn from the prior itself."""

    logs: Float[Tensor, "L C V"]

    def __len__(self) -> int:
        return len(self.logs)

    def select(self, rows: Int[Tensor, "n"]) -> KnownKernels:
        return KnownKernels(self.logs[rows])

    def kernels(self) -> Float[Tensor, "L C V"]:
        return self.logs.clamp(min=-30.0).softmax(-1)

    def log_densities(self, mixture: DirichletMixture) -> Float[Tensor, "L J"]:
        return mixture.component_log_densities(self.logs)

    def expected_logs(
        self, mixture: DirichletMixture, shares: Float[Tensor, "L J"]
    ) -> Float[Tensor, "J C V"]:
        return (shares.T @ self.logs.flatten(1)).unflatten(1, self.logs.shape[1:])


@dataclass(frozen=True, eq=False)
class RolloutCounts:
    """Latents seen through the tokens they emitted."""

    counts: Float[Tensor, "L C V"]

    def __len__(self) -> int:
        return len(self.counts)

    def select(self, rows: Int[Tensor, "n"]) -> RolloutCounts:
        return RolloutCounts(self.counts[rows])

    def kernels(self) -> Float[Tensor, "L C V"]:
        smoothed = self.counts + 0.5
        return smoothed / smoothed.sum(-1, keepdim=True)

    def log_densities(self, mixture: DirichletMixture) -> Float[Tensor, "L J"]:
        return mixture.component_log_evidence(self.counts)

    def expected_logs(
        self, mixture: DirichletMixture, shares: Float[Tensor, "L J"]
    ) -> Float[Tensor, "J C V"]:
        sums = []
        for share, prior in zip(shares.T, mixture.concentration, strict=True):
            updated = prior + self.counts
            logs = torch.digamma(updated) - torch.digamma(updated.sum(-1, keepdim=True))
            sums.append((share @ logs.flatten(1)).unflatten(0, prior.shape))
        return torch.stack(sums)


def evidence_of(
    kernels: Float[Tensor, "L C V"], counts: Int[Tensor, "L C V"] | None
) -> KnownKernels | RolloutCounts:
    """Counts where a bank kept them, else its kernels."""
    if counts is not None:
        return RolloutCounts(counts.double())
    return KnownKernels(kernels.log().clamp(min=LOG_FLOOR))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit and the log-likelihood per latent before each of its steps and after the last."""

    mixture: DirichletMixture
    history: list[float]


def expectation_maximisation(
    evidence: Evidence,
    start: DirichletMixture,
    *,
    max_steps: int = 300,
    tolerance: float = 1e-6,
) -> Fitted:
    """Climb from `start` until a step gains less than `tolerance` per latent."""
    (fitted,) = fits_from(evidence, [start], max_steps=max_steps, tolerance=tolerance)
    return fitted


def fits_from(
    evidence: Evidence,
    starts: Sequence[DirichletMixture],
    weights: Float[Tensor, "R L"] | None = None,
    *,
    max_steps: int = 300,
    tolerance: float = 1e-6,
) -> list[Fitted]:
    """One climb from each start, all of as many components, and with its row of weights.

    Weights, of mean one, make latents count more or less, as a bootstrap does. All climb at once;
    those that are done leave.
    """
    n, space = len(starts[0]), starts[0].space
    log_weights = torch.stack([start.log_weights for start in starts])
    concentration = torch.stack([start.concentration for start in starts])
    if weights is None:
        weights = concentration.new_ones(1, 1).expand(len(starts), len(evidence))
    histories: list[list[float]] = [[] for _ in weights]
    climbing = torch.arange(len(weights))
    for step in range(max_steps + 1):
        stacked = DirichletMixture(
            space, log_weights[climbing].flatten(), concentration[climbing].flatten(0, 1)
        )
        joint = evidence.log_densities(stacked).T.unflatten(0, (len(climbing), n))  # [R, J, L]
        own = weights[climbing]
        if n == 1:  # a component that shares with none has all
            evidences, shares = joint[:, 0], own[:, None]
        else:
            peak = joint.amax(1, keepdim=True)
            shares = (joint - peak).exp_()
            total = shares.sum(1, keepdim=True)
            evidences = (peak + total.log())[:, 0]
            shares *= own[:, None] / total
        gaining = []
        values = (own * evidences).mean(1).tolist()
        for place, (row, value) in enumerate(zip(climbing.tolist(), values, strict=True)):
            known = histories[row]
            if not known or value - known[-1] >= tolerance:
                gaining.append(place)
            known.append(value)
        if not gaining or step == max_steps:
            break
        if len(gaining) < len(climbing):
            climbing, shares = climbing[gaining], shares[gaining]
            stacked = DirichletMixture(
                space, log_weights[climbing].flatten(), concentration[climbing].flatten(0, 1)
            )
        totals = shares.sum(-1)
        fitted = _maximised(evidence, stacked, shares.flatten(0, 1).T, totals.flatten())
        concentration[climbing] = fitted.unflatten(0, totals.shape)
        log_weights[climbing] = totals.clamp(min=1e-300).log().log_softmax(-1)
    found = zip(log_weights, concentration, histories, strict=True)
    return [Fitted(DirichletMixture(space, a, b), history) for a, b, history in found]


def _maximised(
    evidence: Evidence,
    mixture: DirichletMixture,
    shares: Float[Tensor, "L J"],
    totals: Float[Tensor, "J"],
) -> Float[Tensor, "J C V"]:
    """Concentrations that the shares of latents ask for; those nobody has a share in stay."""
    alive = totals > 1e-6
    targets = evidence.expected_logs(mixture, shares) / totals.clamp(min=1e-6)[:, None, None]
    fitted = fit_dirichlets(targets, mixture.concentration)
    return torch.where(alive[:, None, None], fitted, mixture.concentration)


def fit_dirichlets(
    mean_logs: Float[Tensor, "*B V"], start: Float[Tensor, "*B V"], steps: int = 3
) -> Float[Tensor, "*B V"]:
    """Maximise `lgamma(A) - sum lgamma(alpha) + sum alpha mean_logs` in each row (Minka 2000).

    The Hessian is a diagonal plus a constant, so a Newton step costs no more than a gradient; it
    is halved until the objective does not fall by more than rounding, which concavity grants sooner
    or later. Newton's steps end by squaring: after one that is below `SETTLED` of every entry
    the next would be below rounding, and is not made.
    """

    def objective(alpha: Tensor) -> Tensor:
        entries = alpha * mean_logs - torch.lgamma(alpha)
        return torch.lgamma(alpha.sum(-1)) + entries.sum(-1)

    def admissible(alpha: Tensor) -> Tensor:
        """Rows scaled back to the largest sum, entries lifted to the smallest."""
        total = alpha.sum(-1, keepdim=True)
        return (alpha * (MOST_CONCENTRATED / total).clamp(max=1.0)).clamp(min=LEAST_ENTRY)

    alpha, value = start, objective(start)
    rounding = 1e-15 * (1 + start * mean_logs.abs()).sum(-1)
    for _ in range(steps):
        total = alpha.sum(-1, keepdim=True)
        gradient = torch.digamma(total) - torch.digamma(alpha) + mean_logs
        diagonal = -torch.special.polygamma(1, alpha)
        constant = torch.special.polygamma(1, total)
        shift = (gradient / diagonal).sum(-1, keepdim=True)
        shift = shift / (1 / constant + (1 / diagonal).sum(-1, keepdim=True))
        step = (gradient - shift) / diagonal
        # never below a fifth of an entry in one step: the objective is flat far from zero only
        limit = torch.where(step > 0, 0.8 * alpha / step.clamp(min=1e-300), torch.inf)
        size = limit.amin(-1, keepdim=True).clamp(max=1.0)
        for _ in range(12):
            proposed = admissible(alpha - size * step)
            reached = objective(proposed)
            worse = ~(reached >= value - rounding)
            if not bool(worse.any()):
                break
            size = torch.where(worse[..., None], size / 2, size)
        settled = bool((step.abs() <= SETTLED * alpha).all())
        alpha = torch.where(worse[..., None], alpha, proposed)
        value = torch.where(worse, value, reached)
        if settled:
            break
    return alpha


def initial_mixture(
    space: ContextSpace, evidence: Evidence, n_components: int, stream: np.random.Generator
) -> DirichletMixture:
    """Clusters of kernels by k-means++ on square roots (Hellinger), a Dirichlet by moments each."""
    kernels = evidence.kernels()
    points = kernels.sqrt().flatten(1)
    centres = points[int(stream.integers(len(points)))][None]
    for _ in range(n_components - 1):
        distance = torch.cdist(points, centres).amin(1).square() + 1e-12
        law = (distance / distance.sum()).numpy()
        centres = torch.cat([centres, points[int(stream.choice(len(points), p=law))][None]])
    for _ in range(5):
        nearest = torch.cdist(points, centres).argmin(1)
        members = torch.nn.functional.one_hot(nearest, n_components).double()
        sizes = members.sum(0)[:, None]
        centres = torch.where(sizes > 0, members.T @ points / sizes.clamp(min=1), centres)
    shares = 0.9 * members + 0.1 / n_components
    totals = shares.sum(0)[:, None, None]
    mean = torch.einsum("lj,lcv->jcv", shares, kernels) / totals
    square = torch.einsum("lj,lcv->jcv", shares, kernels.square()) / totals
    spread = (square - mean.square()).sum(-1, keepdim=True).clamp(min=1e-9)
    total = ((mean * (1 - mean)).sum(-1, keepdim=True) / spread - 1).clamp(min=0.1, max=1e4)
    log_weights = (totals.flatten() / len(points)).log()
    return DirichletMixture(space, log_weights, (mean * total).clamp(min=LEAST_ENTRY))
