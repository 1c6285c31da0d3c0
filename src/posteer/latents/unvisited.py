"""From counts to kernels: rows that a rollout never visited have no frequencies.

Which treatment is best was settled by measurement (docs/LOG.md): `donor`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from posteer.errors import require
from posteer.kernels import ContextSpace
from posteer.models.base import SequenceModel
from posteer.randomness import numpy_stream
from posteer.shapes import Float, Int

Treatment = Literal["donor", "uniform", "predictive", "dirichlet", "zero"]
"""What to put into an unvisited row.

donor: the row of another rollout that did visit it, drawn at random: its law under the bank, and
    the right one wherever rows are independent, without knowing the prior
uniform: equal probabilities
predictive: the model's law right after that context alone: the mean of the row, not a draw of it
dirichlet: a draw from Dirichlet(1/2, .., 1/2)
zero: nothing, so that a prompt that uses the row has likelihood zero
"""

TREATMENTS: tuple[str, ...] = get_args(Treatment)


def kernels_of_counts(
    model: SequenceModel, counts: Int[Tensor, "L C V"], treatment: str, seed: int
) -> Float[Tensor, "L C V"]:
    """Frequencies of each row, and the treatment where there are none."""
    require(
        treatment in TREATMENTS,
        f"unvisited '{treatment}': expected one of {', '.join(TREATMENTS)}",
    )
    totals = counts.sum(-1, keepdim=True)
    kernels = counts.double() / totals.clamp(min=1)
    missing = totals[..., 0] == 0
    if bool(missing.any()):
        fill = _FILLS[treatment]
        kernels[missing] = fill(model, kernels, missing, numpy_stream(seed, "unvisited"))
    return kernels


def _donor(
    model: SequenceModel,
    kernels: Float[Tensor, "L C V"],
    missing: Tensor,
    stream: np.random.Generator,
) -> Float[Tensor, "K V"]:
    rows = []
    for latent, context in missing.nonzero().tolist():
        donors = (~missing[:, context]).nonzero()[:, 0]
        if len(donors) == 0:  # nobody saw this context
            rows.append(torch.full_like(kernels[latent, context], 1 / kernels.shape[-1]))
        else:
            rows.append(kernels[donors[int(stream.integers(len(donors)))], context])
    return torch.stack(rows)


def _uniform(
    model: SequenceModel,
    kernels: Float[Tensor, "L C V"],
    missing: Tensor,
    stream: np.random.Generator,
) -> Float[Tensor, "K V"]:
    return torch.full_like(kernels[missing], 1 / kernels.shape[-1])


def _predictive(
    model: SequenceModel,
    kernels: Float[Tensor, "L C V"],
    missing: Tensor,
    stream: np.random.Generator,
) -> Float[Tensor, "K V"]:
    space: ContextSpace = model.space
    contexts = space.decode(torch.arange(space.n_contexts))
    laws = model.log_predictive(contexts)[:, -1].double().exp().cpu()
    return laws[missing.nonzero()[:, 1]]


def _dirichlet(
    model: SequenceModel,
    kernels: Float[Tensor, "L C V"],
    missing: Tensor,
    stream: np.random.Generator,
) -> Float[Tensor, "K V"]:
    half = np.full(kernels.shape[-1], 0.5)
    return torch.from_numpy(stream.dirichlet(half, int(missing.sum())))


def _zero(
    model: SequenceModel,
    kernels: Float[Tensor, "L C V"],
    missing: Tensor,
    stream: np.random.Generator,
) -> Float[Tensor, "K V"]:
    return torch.zeros_like(kernels[missing])


Fill = Callable[[SequenceModel, Tensor, Tensor, np.random.Generator], Tensor]
_FILLS: dict[str, Fill] = {
    "donor": _donor,
    "uniform": _uniform,
    "predictive": _predictive,
    "dirichlet": _dirichlet,
    "zero": _zero,
}
