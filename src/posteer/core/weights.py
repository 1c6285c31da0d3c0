"""Importance weights and what they can be trusted for: ESS, standard error, Pareto k-hat.

Everything takes log-weights; scale cancels, so nothing under- or overflows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Float


def normalise(log_weights: Float[Tensor, "*B L"]) -> Float[Tensor, "*B L"]:
    """Self-normalised weights, `w / sum w`."""
    return log_weights.softmax(-1)


@dataclass(frozen=True, eq=False)
class WeightedMean:
    """A self-normalised estimate and how far it can be trusted.

    `influence` is what each latent contributes to its error: `w_l (v_l - J)`, which sums to zero.
    """

    value: Float[Tensor, "*B"]
    standard_error: Float[Tensor, "*B"]
    ess_fraction: Float[Tensor, "*B"]
    weights: Float[Tensor, "*B L"]
    influence: Float[Tensor, "*B L"]


def weighted_mean(
    log_weights: Float[Tensor, "*B L"], values: Float[Tensor, "*B L"]
) -> WeightedMean:
    """`J = sum_l w_l v_l` with self-normalised weights (eq. IS_estimator).

    The standard error is the delta method's, `sqrt(sum_l w_l^2 (v_l - J)^2)`; ESS is a share of L.
    Where all weights are zero the value is `-inf`, its error `nan` and its ESS 0.

    >>> mean = weighted_mean(torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]))
    >>> float(mean.value), float(mean.ess_fraction)
    (2.0, 1.0)
    """
    possible = log_weights.amax(-1) > -math.inf
    weights = normalise(log_weights)
    value = (weights * values).sum(-1)
    influence = weights * (values - value[..., None])
    error = torch.linalg.vector_norm(influence, dim=-1)
    ess = 1 / (weights.square().sum(-1) * weights.shape[-1])
    return WeightedMean(
        torch.where(possible, value, -math.inf),
        torch.where(possible, error, math.nan),
        torch.where(possible, ess, 0.0),
        weights,
        influence,
    )


def ess_fraction(log_weights: Float[Tensor, "*B L"]) -> Float[Tensor, "*B"]:
    """`ESS / L = (sum w)^2 / (L sum w^2)`: 1 for equal weights, 1/L when one latent has it all."""
    log_ess = 2 * log_weights.logsumexp(-1) - (2 * log_weights).logsumexp(-1)
    return log_ess.exp() / log_weights.shape[-1]


def pareto_k(log_weights: Float[Tensor, "L"]) -> float:
    """Pareto k-hat of the largest weights (PSIS, Vehtari et al. 2024).

    Below 0.5 the estimate has finite variance, above 0.7 it should not be trusted. `nan` when
    fewer than five weights make up the tail; `-inf` when the tail weights are all equal.
    """
    return float(pareto_smoothed(log_weights[None])[1][0])


def pareto_smoothed(
    log_weights: Float[Tensor, "K L"],
) -> tuple[Float[Tensor, "K L"], Float[Tensor, "K"]]:
    """Pareto-smoothed log-weights and k-hat, many posteriors at once.

    The M largest of L weights are replaced by the quantiles `(i - 1/2) / M` of a generalised
    Pareto law fitted to them, none above the largest raw weight. Rows without a fit (`k-hat` not
    finite) are left as they are.
    """
    n = log_weights.shape[1]
    n_tail = math.ceil(min(0.2 * n, 3 * math.sqrt(n)))
    smoothed = log_weights.clone()
    shapes = log_weights.new_full((len(log_weights),), math.nan)
    if n_tail < 5:
        return smoothed, shapes
    largest = log_weights.topk(n_tail + 1, dim=1)
    ordered = (largest.values - largest.values[:, :1]).flip(1)  # ascending, the largest at 0
    where = largest.indices.flip(1)
    shapes[ordered[:, 1] == 0.0] = -math.inf
    cutoff = ordered[:, :1].clamp(min=-700.0).exp()
    exceedances = (ordered[:, 1:].exp() - cutoff).clamp(min=0.0)
    above = (exceedances > 0).sum(1)  # ties with the cutoff, and what underflows, are no tail
    for size in above.unique().tolist():
        if size < 5:
            continue
        rows = (above == size).nonzero()[:, 0]
        shape, scale = _generalised_pareto_fit(exceedances[rows, -size:])
        shapes[rows] = shape
        quantile = (torch.arange(size, dtype=shape.dtype, device=shape.device) + 0.5) / size
        growth = torch.expm1(-shape[:, None] * torch.log1p(-quantile)) / shape[:, None]
        values = (cutoff[rows] + scale[:, None] * growth).log().clamp(max=0.0)
        fitted = shape.isfinite() & (scale > 0)
        values = torch.where(fitted[:, None], values, ordered[rows, -size:])
        smoothed[rows[:, None], where[rows, -size:]] = values + largest.values[rows, :1]
    return smoothed, shapes


def _generalised_pareto_fit(
    ascending: Float[Tensor, "K n"],
) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
    """Zhang and Stephens' (2009) shape and scale, with PSIS's weak pull of k towards 0.5."""
    n = ascending.shape[1]
    n_grid = 30 + int(math.sqrt(n))
    steps = torch.arange(1, n_grid + 1, dtype=ascending.dtype, device=ascending.device)
    grid = 1 - (n_grid / (steps - 0.5)).sqrt()
    quartile = ascending[:, int(n / 4 + 0.5) - 1, None]
    theta = grid / (3 * quartile) + 1 / ascending[:, -1:]
    shape = torch.log1p(-theta[..., None] * ascending[:, None]).mean(-1)
    profile = n * ((-theta / shape).log() - shape - 1)
    posterior = (profile.softmax(1) * theta).sum(1)
    estimate = torch.log1p(-posterior[:, None] * ascending).mean(1)
    return (n * estimate + 10 * 0.5) / (n + 10), -estimate / posterior
