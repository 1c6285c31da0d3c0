"""Rollouts that remember every token and every law, for checks of modest size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.models.protocol import Model


@dataclass(frozen=True, eq=False)
class Trace:
    """`laws[:, t]` is what `tokens[:, t]` was drawn from; `state` has read all the tokens."""

    tokens: Int[Tensor, "B T"]
    laws: Float[Tensor, "B T V"]
    state: Any


def trace(
    model: Model,
    observed: Int[Tensor, "B n"],
    length: int,
    generator: torch.Generator,
) -> Trace:
    """Continue each observed sequence by `length` tokens of the model's own."""
    state = model.start(len(observed), observed.shape[1] + length)
    for token in observed.unbind(1):
        _, state = model.advance(state, token)
    tokens, laws = [], []
    for _ in range(length):
        law = state.log_probs.double().exp().cpu()
        require(
            bool(torch.isfinite(law).all()) and bool(((law.sum(-1) - 1).abs() < 1e-3).all()),
            f"{model.name} returned a next-token law that is not one: expected probabilities that "
            "sum to 1",
        )
        uniform = torch.rand(len(observed), 1, dtype=torch.float64, generator=generator)
        token = (uniform >= law.cumsum(-1)[:, :-1]).sum(-1)
        tokens.append(token)
        laws.append(law)
        _, state = model.advance(state, token)
    return Trace(torch.stack(tokens, 1), torch.stack(laws, 1), state)
