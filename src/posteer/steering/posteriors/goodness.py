"""Does the fitted mixture say what the bank says, where the bank can be asked?

Probes are small tables of counts whose posterior plain importance sampling still resolves. Counts
on one row alone reach further than whole prompts do: a row has V - 1 dimensions and the bank all
its latents. For each probe the posterior mean of every probability in the rows observed is taken
both ways; the difference is measured in standard errors of the importance sampler.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.kernels import log_likelihood
from posteer.latents.bank import LatentBank
from posteer.latents.importance import ess_fraction, normalise
from posteer.randomness import numpy_stream
from posteer.shapes import Float
from posteer.steering.posteriors.dirichlet_mixture import DirichletMixture

PROBES_PER_SIZE = 24
PROBE_SIZES = (2, 4, 8, 16, 32, 64)
RESOLVED_LATENTS = 100
"""Effective latents a probe must leave the bank to be an answer worth comparing with."""


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


def probes(bank: LatentBank, seed: int) -> Float[Tensor, "K C V"]:
    """Counts as latents of the bank emit them: on one row, on two, on all."""
    stream = numpy_stream(seed, "probes")
    n_contexts, tables = bank.space.n_contexts, []
    for size in PROBE_SIZES:
        for probe in range(PROBES_PER_SIZE):
            n_rows = (1, min(2, n_contexts), n_contexts)[probe % 3]
            rows = stream.permutation(n_contexts)[:n_rows]
            kernel = bank.kernels[int(stream.integers(len(bank)))].numpy()
            table = torch.zeros(bank.kernels.shape[1:], dtype=torch.float64)
            per_row = stream.multinomial(size, [1 / n_rows] * n_rows)
            for row, visits in zip(rows, per_row, strict=True):
                table[row] = torch.from_numpy(stream.multinomial(visits, kernel[row])).double()
            tables.append(table)
    return torch.stack(tables)


def misfit(mixture: DirichletMixture, bank: LatentBank, seed: int = 0) -> Misfit:
    """How far the mixture's posterior means are from those of the bank's own latents."""
    counts = probes(bank, seed)
    log_weights = log_likelihood(counts, bank.kernels)
    resolved = ess_fraction(log_weights) * len(bank) >= RESOLVED_LATENTS
    counts, weights = counts[resolved], normalise(log_weights[resolved])
    if len(counts) == 0:
        return Misfit(torch.nan, 0)
    by_bank = torch.einsum("kl,lcv->kcv", weights, bank.kernels)
    squares = torch.einsum("kl,lcv->kcv", weights.square(), bank.kernels.square())
    cross = torch.einsum("kl,lcv->kcv", weights.square(), bank.kernels)
    total = weights.square().sum(-1)[:, None, None]
    variance = squares - 2 * by_bank * cross + by_bank.square() * total
    shares = mixture.component_log_evidence(counts).softmax(-1)
    rows = mixture.concentration + counts[:, None]
    by_fit = (shares[..., None, None] * rows / rows.sum(-1, keepdim=True)).sum(1)
    # rounding is no misfit: where all latents agree to 1e-12 there is nothing to compare
    compared = (counts.sum(-1, keepdim=True) > 0) & (variance > 1e-24)
    scaled = ((by_fit - by_bank).square() / variance.clamp(min=1e-24))[compared]
    return Misfit(float(scaled.mean().sqrt()), len(counts))
