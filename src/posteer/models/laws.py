"""What a model predicts must be a law: numbers that are not negative and sum to one.

The meter looks at every law that enters. Laws of users' models are freed of rounding first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.rounding import close_to, rounding_of
from posteer.core.shapes import Float


def departure(log_probs: Float[Tensor, "*B V"]) -> Float[Tensor, ""]:
    """How far the sum of a law is from one at most; no number where a law has one that is none."""
    found = log_probs.detach()
    sums = (found if found.dtype.itemsize >= 4 else found.float()).exp().sum(-1)
    if sums.numel() == 0:
        return sums.new_zeros(())
    least, most = sums.aminmax()
    return torch.maximum(most - 1, 1 - least)


def require_laws(worst: float, tolerance: float, name: str) -> None:
    """Refuse a model by the worst of its laws."""
    require(not math.isnan(worst), f"{name} returned a next-token law that is not a number")
    require(
        worst <= tolerance,
        f"{name} returned a next-token law that sums to 1 only within {worst:.2g}: expected "
        "probabilities that sum to 1",
    )


def lawful(
    log_probs: Float[Tensor, "*B V"], name: str, tolerance: float | None = None
) -> Float[Tensor, "*B V"]:
    """A user's laws: refused where they are none, what rounding did to a sum taken back.

    Row by row, so that a law has the same bits in any batch.
    """
    worst = float(departure(log_probs))
    require_laws(worst, tolerance or rounding_of(log_probs.dtype), name)
    kind = log_probs.dtype if log_probs.dtype.itemsize >= 4 else torch.float64
    close = close_to(kind)
    if worst <= close:
        return log_probs.to(kind)
    wide = log_probs.double()
    off = wide.logsumexp(-1, keepdim=True)
    return torch.where(off.abs() > close, wide - off, wide).to(kind)
