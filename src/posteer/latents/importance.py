"""Importance weights and what they can be trusted for: ESS, standard error, Pareto k-hat.

Everything takes log-weights; scale cancels, so nothing under- or overflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posteer.shapes import Float


def normalise(log_weights: Float[Tensor, "*B L"]) -> Float[Tensor, "*B L"]:
    """Self-normalised weights, `w / sum w`."""
    return log_weights.softmax(-1)


def ess_fraction(log_weights: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """`ESS / L = (sum w)^2 / (L sum w^2)`: 1 for equal weights, 1/L when one latent has it all."""
    log_ess = 2 * log_weights.logsumexp(-1) - (2 * log_weights).logsumexp(-1)
    return log_ess.exp() / log_weights.shape[-1]


def pareto_k(log_weights: Float[Tensor, "L"]) -> float:
    """Pareto k-hat of the largest weights (PSIS, Vehtari et al. 2024).

    Below 0.5 the estimate has finite variance, above 0.7 it should not be trusted. `nan` when
    fewer than five weights make up the tail; `-inf` when the tail weights are all equal.
    """
    n = len(log_weights)
    n_tail = math.ceil(min(0.2 * n, 3 * math.sqrt(n)))
    if n_tail < 5:
        return math.nan
    ordered = log_weights.sort().values
    ordered = ordered - ordered[-1]
    cutoff = torch.maximum(ordered[-n_tail - 1], torch.tensor(-700.0, dtype=ordered.dtype))
    exceedances = ordered[-n_tail:].exp() - cutoff.exp()
    exceedances = exceedances[exceedances > 0]
    if len(exceedances) < 5:
        return -math.inf if bool(ordered[-n_tail] == ordered[-1]) else math.nan
    return _generalised_pareto_shape(exceedances)


def _generalised_pareto_shape(ascending: Float[Tensor, "n"]) -> float:
    """Zhang and Stephens' (2009) estimator, with PSIS's weak pull of k towards 0.5."""
    n = len(ascending)
    n_grid = 30 + int(math.sqrt(n))
    grid = 1 - (n_grid / (torch.arange(1, n_grid + 1, dtype=ascending.dtype) - 0.5)).sqrt()
    quartile = ascending[int(n / 4 + 0.5) - 1]
    theta = grid / (3 * quartile) + 1 / ascending[-1]
    shape = (-theta[:, None] * ascending).log1p().mean(-1)
    profile = n * ((-theta / shape).log() - shape - 1)
    posterior = profile.softmax(0)
    estimate = (-(posterior * theta).sum() * ascending).log1p().mean()
    return float((n * estimate + 10 * 0.5) / (n + 10))
