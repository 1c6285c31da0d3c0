"""Does the fitted mixture say what the bank says, where the bank can be asked?

Probes are small tables of counts whose posterior plain importance sampling still resolves. Counts
on one row alone reach further than whole prompts do: a row has V - 1 dimensions and the bank all
its latents. For each probe the posterior mean of every probability in the rows observed is taken
both ways; the difference is measured in standard errors of the importance sampler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Float
from posteer.core.weights import ess_fraction, normalise
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.kernels import log_likelihood

PROBES_PER_SIZE = 24
PROBE_SIZES = (2, 4, 8, 16, 32, 64)
RESOLVED_LATENTS = 100
"""Effective latents a probe must leave the bank to be an answer worth comparing with."""

IMMATERIAL = 1e-3
"""Differences of a probability are not measured more finely: near a corner, or at a point mass,
the bank's own standard error vanishes and any difference at all would count as misfit."""


@dataclass(frozen=True)
class Misfit:
    """Root mean square difference in standard errors, over `n_probes`: about 1 for a good fit.

    The two errors come from one bank; under a good fit the mixture's is the smaller part of the
    sampler's, so figures below 1 are usual.
    """

    rms: float
    n_probes: int

    @property
    def good(self) -> bool:
        """Misfit that the bank can show is below twice the noise it is shown against."""
        return self.n_probes > 0 and self.rms < 2.0


def probes(latents: Float[Tensor, "L C V"], seed: int) -> Float[Tensor, "K C V"]:
    """Counts as the latents emit them: on one row, on two, on all."""
    stream = numpy_stream(seed, "probes")
    n_contexts, known, tables = latents.shape[1], latents.numpy(), []
    for size in PROBE_SIZES:
        for probe in range(PROBES_PER_SIZE):
            n_rows = (1, min(2, n_contexts), n_contexts)[probe % 3]
            rows = stream.permutation(n_contexts)[:n_rows]
            kernel = known[int(stream.integers(len(known)))]
            table = np.zeros(kernel.shape)
            per_row = stream.multinomial(size, [1 / n_rows] * n_rows)
            for row, visits in zip(rows, per_row, strict=True):
                table[row] = stream.multinomial(visits, kernel[row])
            tables.append(table)
    return torch.from_numpy(np.stack(tables))


def misfit(mixture: DirichletMixture, latents: Float[Tensor, "L C V"], seed: int = 0) -> Misfit:
    """How far the mixture's posterior means are from those of the latents it was fitted to."""
    counts = probes(latents, seed)
    log_weights = log_likelihood(counts, latents)
    resolved = ess_fraction(log_weights) * len(latents) >= RESOLVED_LATENTS
    counts, weights = counts[resolved], normalise(log_weights[resolved])
    if len(counts) == 0:
        return Misfit(torch.nan, 0)
    by_bank = torch.einsum("kl,lcv->kcv", weights, latents)
    squares = torch.einsum("kl,lcv->kcv", weights.square(), latents.square())
    cross = torch.einsum("kl,lcv->kcv", weights.square(), latents)
    total = weights.square().sum(-1)[:, None, None]
    variance = squares - 2 * by_bank * cross + by_bank.square() * total
    shares = mixture.component_log_evidence(counts).softmax(-1)
    rows = mixture.concentration + counts[:, None]
    by_fit = (shares[..., None, None] * rows / rows.sum(-1, keepdim=True)).sum(1)
    compared = (counts.sum(-1, keepdim=True) > 0).expand_as(variance)
    scaled = ((by_fit - by_bank).square() / variance.clamp(min=IMMATERIAL**2))[compared]
    return Misfit(float(scaled.mean().sqrt()), len(counts))
