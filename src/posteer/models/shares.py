"""How much of a language model's law the tokens hold that it is steered over."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Int
from posteer.models.protocol import Can, Model

SMALL_SHARE = 0.5
"""An alphabet that holds less on average is warned of: the model would say something else."""


@dataclass(frozen=True)
class Share:
    """Of the laws along a history: on average, and at least."""

    mean: float
    least: float


def share_along(model: Model, prompt: Int[Tensor, "m"], horizon: int) -> Share | None:
    """Along a prompt and its likeliest continuation; None of a model over all its tokens."""
    if Can.SHARES not in model.can:
        return None
    tokens = prompt[None]
    for _ in range(horizon - 1):
        likeliest = model.log_predictive(tokens)[:, -1].argmax(-1).cpu()
        tokens = torch.cat([tokens, likeliest[:, None]], 1)
    found = model.alphabet_share(tokens)[0]
    return Share(float(found.mean()), float(found.min()))
