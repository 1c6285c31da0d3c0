"""From counts to kernels: rows that a rollout never visited have no frequencies.

Which treatment is best was settled by measurement (docs/LOG.md): `donor`. Leaving such rows empty
was the worst, and is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from posteer.errors import require
from posteer.models.base import SequenceModel
from posteer.randomness import numpy_stream
from posteer.shapes import Float, Int

Treatment = Literal["donor", "uniform", "predictive", "dirichlet"]
"""What to put into an unvisited row.

donor: the row of another rollout that did visit it, drawn at random: its law under the bank, and
    the right one wherever rows are independent, without knowing the prior
uniform: equal probabilities
predictive: the model's law right after that context alone (and after what the bank is conditioned
    on): the mean of the row, not a draw of it
dirichlet: a draw from Dirichlet(1/2, .., 1/2)
"""

TREATMENTS: tuple[str, ...] = get_args(Treatment)


def kernels_of_counts(
    model: SequenceModel,
    counts: Int[Tensor, "L C V"],
    treatment: str,
    seed: int,
    context: Sequence[int] = (),
) -> Float[Tensor, "L C V"]:
    """Frequencies of each row, and the treatment where there are none."""
    require(
        treatment in TREATMENTS,
        f"unvisited '{treatment}': expected one of {', '.join(TREATMENTS)}",
    )
    totals = counts.sum(-1, keepdim=True)
    kernels = counts.double() / totals.clamp(min=1)
    stream = numpy_stream(seed, "unvisited")
    missing = totals[..., 0] == 0
    for row in missing.any(0).nonzero()[:, 0].tolist():
        gaps = missing[:, row]
        fill = _FILLS[treatment]
        kernels[gaps, row] = fill(model, kernels[~gaps, row], int(gaps.sum()), row, stream, context)
    return kernels


def _donor(
    model: SequenceModel,
    seen: Float[Tensor, "n V"],
    n: int,
    row: int,
    stream: np.random.Generator,
    context: Sequence[int],
) -> Float[Tensor, "K V"]:
    if len(seen) == 0:  # nobody visited this context
        return _uniform(model, seen, n, row, stream, context)
    return seen[torch.from_numpy(stream.integers(len(seen), size=n))]


def _uniform(
    model: SequenceModel,
    seen: Float[Tensor, "n V"],
    n: int,
    row: int,
    stream: np.random.Generator,
    context: Sequence[int],
) -> Float[Tensor, "K V"]:
    vocab = model.space.vocab_size
    return torch.full((n, vocab), 1 / vocab, dtype=torch.float64)


def _predictive(
    model: SequenceModel,
    seen: Float[Tensor, "n V"],
    n: int,
    row: int,
    stream: np.random.Generator,
    context: Sequence[int],
) -> Float[Tensor, "K V"]:
    tokens = torch.cat(
        [torch.tensor(context, dtype=torch.long), model.space.decode(torch.tensor(row))]
    )
    law = model.log_predictive(tokens[None])[0, -1].double().exp().cpu()
    return law.expand(n, -1)


def _dirichlet(
    model: SequenceModel,
    seen: Float[Tensor, "n V"],
    n: int,
    row: int,
    stream: np.random.Generator,
    context: Sequence[int],
) -> Float[Tensor, "K V"]:
    return torch.from_numpy(stream.dirichlet(np.full(model.space.vocab_size, 0.5), n))


Fill = Callable[[SequenceModel, Tensor, int, int, np.random.Generator, Sequence[int]], Tensor]
_FILLS: dict[str, Fill] = {
    "donor": _donor,
    "uniform": _uniform,
    "predictive": _predictive,
    "dirichlet": _dirichlet,
}
