"""From counts to kernels: rows that a rollout never visited have no frequencies.

Which treatment is best was settled by measurement (docs/LOG.md): `donor`. Leaving such rows empty
was the worst, and is not offered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.protocol import NextToken
from posteer.tokens.contexts import ContextSpace

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


def filled(
    space: ContextSpace,
    counts: Int[Tensor, "L C V"],
    treatment: str,
    stream: np.random.Generator,
    law_after: NextToken,
) -> Float[Tensor, "L C V"]:
    """Kernels: frequencies of each row, and the treatment where there are none.

    `law_after` is the model's next-token law after some tokens, which `predictive` asks for.
    """
    require(
        treatment in TREATMENTS,
        f"unvisited '{treatment}': expected one of {', '.join(TREATMENTS)}",
    )
    totals = counts.sum(-1, keepdim=True)
    kernels = counts.double() / totals.clamp(min=1)
    missing = totals[..., 0] == 0
    for row in missing.any(0).nonzero()[:, 0].tolist():
        empty = missing[:, row]
        own = space.decode(torch.tensor(row))
        gap = _Gap(own, int(empty.sum()), kernels[~empty, row], law_after)
        kernels[empty, row] = _FILLS[treatment](gap, stream)
    return kernels


@dataclass(frozen=True, eq=False)
class _Gap:
    """The row of a context that `size` rollouts never visited, and what the others saw of it."""

    tokens: Int[Tensor, "k"]
    size: int
    seen: Float[Tensor, "n V"]
    law_after: NextToken


def _donor(gap: _Gap, stream: np.random.Generator) -> Float[Tensor, "K V"]:
    if len(gap.seen) == 0:  # nobody visited this context
        return _uniform(gap, stream)
    return gap.seen[torch.from_numpy(stream.integers(len(gap.seen), size=gap.size))]


def _uniform(gap: _Gap, _stream: np.random.Generator) -> Float[Tensor, "K V"]:
    vocab = gap.seen.shape[1]
    return torch.full((gap.size, vocab), 1 / vocab, dtype=torch.float64)


def _predictive(gap: _Gap, _stream: np.random.Generator) -> Float[Tensor, "K V"]:
    return gap.law_after(gap.tokens).expand(gap.size, -1)


def _dirichlet(gap: _Gap, stream: np.random.Generator) -> Float[Tensor, "K V"]:
    half = np.full(gap.seen.shape[1], 0.5)
    return torch.from_numpy(stream.dirichlet(half, gap.size))


_FILLS: dict[str, Callable[[_Gap, np.random.Generator], Tensor]] = {
    "donor": _donor,
    "uniform": _uniform,
    "predictive": _predictive,
    "dirichlet": _dirichlet,
}
