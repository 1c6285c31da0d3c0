"""The prior's density, where samples of it are not enough, and what it may be wrong by.

Either the fitted mixture or a kernel density: a Dirichlet around every latent. Both are mixtures of
Dirichlets, so one class and one update serve them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Float
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.fit.expectation_maximisation import Evidence
from posteer.families.markov.fit.selection import Selection, halves
from posteer.tokens.contexts import ContextSpace

BANDWIDTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Concentrations of the Dirichlet around each latent that a kernel density is tried with."""

KERNEL_CENTRES = 1000
"""Latents that a kernel density is built on, and as many that judge it."""

REPLICATES = 16


@dataclass(frozen=True, eq=False)
class PriorDensity:
    """A density and others that might have come out instead.

    `replicates` are its bootstrap, whose spread is to be multiplied by `shrink`; without any it
    counts as known. `coarser` is the same kernel density with kernels of twice the variance:
    smoothing biases in proportion to that variance, so what J changes by from one to the other
    estimates what it is off by already.
    """

    mixture: DirichletMixture
    replicates: tuple[DirichletMixture, ...] = ()
    coarser: DirichletMixture | None = None
    shrink: float = 1.0

    def error(
        self, kernels: Float[Tensor, "n C V"], utilities: Float[Tensor, "n"]
    ) -> Float[Tensor, ""]:
        """How far J may be off for want of the true density, from posterior draws under this one.

        The prompt's likelihood is common to all, so a draw's weight under another density is the
        ratio of the priors there, `p_other(kernel) / p(kernel)`.
        """
        logs = kernels.log()
        base = self.mixture.log_density(logs)

        def under(other: DirichletMixture) -> Tensor:
            return ((other.log_density(logs) - base).softmax(0) * utilities).sum()

        total = utilities.new_zeros(())
        if len(self.replicates) > 1:
            total = self.shrink * torch.stack([under(other) for other in self.replicates]).std()
        if self.coarser is not None:
            total = torch.hypot(total, under(self.coarser) - utilities.mean())
        return total


def kernel_density(
    space: ContextSpace,
    kernels: Float[Tensor, "L C V"],
    bandwidth: float,
    weights: Float[Tensor, "L"] | None = None,
) -> DirichletMixture:
    """A Dirichlet around each latent, `Dirichlet(1/V + bandwidth kernel[c])` in each row."""
    given = kernels.new_ones(len(kernels)) if weights is None else weights
    log_weights = given.log().log_softmax(0)
    return DirichletMixture(space, log_weights, 1 / space.vocab_size + bandwidth * kernels)


def better_kernel_density(
    space: ContextSpace, evidence: Evidence, selected: Selection, seed: int
) -> PriorDensity | None:
    """A kernel density, where the held-out half likes one better than the fitted mixture."""
    fitting, judging = halves(evidence, seed)
    judges = judging.select(torch.arange(min(len(judging), KERNEL_CENTRES)))
    best, best_gain = None, 0.0
    for bandwidth in BANDWIDTHS:
        smooth = kernel_density(space, fitting.kernels()[:KERNEL_CENTRES], bandwidth)
        gain = judges.log_densities(smooth).logsumexp(-1) - selected.held_out[: len(judges)]
        excess = float(gain.mean() - 2 * gain.std() / len(gain) ** 0.5)
        if excess > best_gain:
            best, best_gain = bandwidth, excess
    if best is None:
        return None
    centres = evidence.kernels()[:KERNEL_CENTRES]
    stream = numpy_stream(seed, "kernel-density-bootstrap")
    weightings = torch.from_numpy(stream.standard_exponential((REPLICATES, len(centres))))
    return PriorDensity(
        kernel_density(space, centres, best),
        tuple(kernel_density(space, centres, best, weights) for weights in weightings),
        kernel_density(space, centres, best / 2),
    )
