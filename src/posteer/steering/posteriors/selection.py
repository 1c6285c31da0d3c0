"""How many components a bank asks for, and densities that spend one on every latent.

Half of the bank fits, half judges. A finer mixture is taken only where the judging half likes it
better by more than two standard errors of the difference, so a bank of independent Dirichlet rows
gets one component nineteen times in twenty and more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.kernels import ContextSpace
from posteer.randomness import numpy_stream
from posteer.shapes import Float
from posteer.steering.posteriors.dirichlet_mixture import DirichletMixture
from posteer.steering.posteriors.expectation_maximisation import (
    Evidence,
    Fitted,
    expectation_maximisation,
    initial_mixture,
)

BANDWIDTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Concentrations of the Dirichlet around each latent that a kernel density is tried with."""

KERNEL_CENTRES = 1000
"""Latents that a kernel density is built on, and as many that judge it."""


@dataclass(frozen=True, eq=False)
class Selection:
    """A fit with as many components as the held-out half supports.

    `held_out[l]` is the log-density of each judging latent under the fit of the other half, and
    `tried` the mean of it for each number of components that was tried.
    """

    mixture: DirichletMixture
    history: list[float]
    held_out: Float[Tensor, "H"]
    tried: dict[int, float]


def best_start(
    space: ContextSpace, evidence: Evidence, n_components: int, seed: int, restarts: int = 3
) -> Fitted:
    """The best of a few short climbs, climbed to the end."""
    starts = range(1 if n_components == 1 else restarts)
    short = []
    for start in starts:
        stream = numpy_stream(seed, "dirichlet-mixture", n_components, start)
        given = initial_mixture(space, evidence, n_components, stream)
        short.append(expectation_maximisation(evidence, given, max_steps=20))
    best = max(short, key=lambda fitted: fitted.history[-1])
    rest = expectation_maximisation(evidence, best.mixture)
    return Fitted(rest.mixture, best.history[:-1] + rest.history)


def halves(evidence: Evidence, seed: int) -> tuple[Evidence, Evidence]:
    """A random half to fit and the other to judge."""
    shuffled = numpy_stream(seed, "halves").permutation(len(evidence))
    order = torch.from_numpy(shuffled)
    return evidence.select(order[::2]), evidence.select(order[1::2])


def select_components(
    space: ContextSpace, evidence: Evidence, seed: int, most: int = 32
) -> Selection:
    """1, 2, 4, .. components while the held-out log-likelihood rises; refitted on all latents."""
    fitting, judging = halves(evidence, seed)
    chosen, held_out, tried, n = 0, torch.empty(0), {}, 1
    while n <= min(most, max(1, len(fitting) // 20)):
        fitted = best_start(space, fitting, n, seed).mixture
        densities = judging.log_densities(fitted).logsumexp(-1)
        tried[n] = float(densities.mean())
        if chosen:
            gain = densities - held_out
            if float(gain.mean()) <= 2 * float(gain.std()) / len(gain) ** 0.5:
                break
        chosen, held_out, n = n, densities, 2 * n
    whole = best_start(space, evidence, chosen, seed)
    return Selection(whole.mixture, whole.history, held_out, tried)


def kernel_density(
    space: ContextSpace, kernels: Float[Tensor, "L C V"], bandwidth: float
) -> DirichletMixture:
    """A Dirichlet around each latent, `Dirichlet(1/V + bandwidth kernel[c])` in each row."""
    log_weights = torch.full((len(kernels),), 1 / len(kernels), dtype=torch.float64).log()
    return DirichletMixture(space, log_weights, 1 / space.vocab_size + bandwidth * kernels)


def best_density(
    space: ContextSpace, evidence: Evidence, selected: Selection, seed: int
) -> DirichletMixture:
    """The fitted mixture, or a kernel density where the held-out half likes that better."""
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
        return selected.mixture
    return kernel_density(space, evidence.kernels()[:KERNEL_CENTRES], best)
