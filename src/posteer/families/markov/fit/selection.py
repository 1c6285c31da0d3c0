"""How many components a bank asks for.

Half of the bank fits, half judges. A finer mixture is taken only where the judging half likes it
better by more than two standard errors of the difference, so a bank of independent Dirichlet rows
supports one component (88 of 90 banks of binary models).

A fit that is as coarse as held-out latents allow balances bias with noise, and its bias is in no
bootstrap. The prior is therefore fitted with `FINER` times as many components: what is left of the
bias is then below the noise, which a bootstrap does see (studies/error_bars.py). What orders
prompts best is the coarse one: its bias is much the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Float
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.fit.expectation_maximisation import (
    Evidence,
    Fitted,
    expectation_maximisation,
    fits_from,
    initial_mixture,
)
from posteer.tokens.contexts import ContextSpace

TOLERANCE = 1e-5
"""Gain per latent that ends a climb: a few hundredths of a nat of a whole bank, where half a nat is
the least that says anything."""

FINER = 4
"""Components of a fit for each one that held-out latents support."""


@dataclass(frozen=True, eq=False)
class Selection:
    """A fit that is finer than the held-out half supports, and the one that it does (`coarse`).

    `supported` is how many components that half likes best, `held_out[l]` the log-density of each
    judging latent under the fit of the other half with so many, and `tried` the mean of it for each
    number that was tried.
    """

    mixture: DirichletMixture
    coarse: DirichletMixture
    supported: int
    history: list[float]
    held_out: Float[Tensor, "H"]
    tried: dict[int, float]


def best_start(
    space: ContextSpace, evidence: Evidence, n_components: int, seed: int, restarts: int = 3
) -> Fitted:
    """The best of a few short climbs, climbed to the end."""
    starts = []
    for start in range(1 if n_components == 1 else restarts):
        stream = numpy_stream(seed, "dirichlet-mixture", n_components, start)
        starts.append(initial_mixture(space, evidence, n_components, stream))
    short = fits_from(evidence, starts, max_steps=20)
    best = max(short, key=lambda fitted: fitted.history[-1])
    rest = expectation_maximisation(evidence, best.mixture, tolerance=TOLERANCE)
    return Fitted(rest.mixture, best.history[:-1] + rest.history)


def halves(evidence: Evidence, seed: int) -> tuple[Evidence, Evidence]:
    """A random half to fit and the other to judge."""
    shuffled = numpy_stream(seed, "halves").permutation(len(evidence))
    order = torch.from_numpy(shuffled)
    return evidence.select(order[::2]), evidence.select(order[1::2])


def select_components(
    space: ContextSpace, evidence: Evidence, seed: int, most: int = 32, finer: int = FINER
) -> Selection:
    """1, 2, 4, .. components while the held-out log-likelihood rises; then `finer` times as many
    for all latents."""
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
    fitted_with = max(chosen, min(finer * chosen, most, len(evidence) // 20))
    coarse = best_start(space, evidence, chosen, seed)
    whole = coarse if fitted_with == chosen else best_start(space, evidence, fitted_with, seed)
    return Selection(whole.mixture, coarse.mixture, chosen, whole.history, held_out, tried)
