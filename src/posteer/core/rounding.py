"""By how much probabilities may miss a sum of one, and what is no miss at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

ROUNDING = 1e-5
"""Of a sum over a vocabulary in float32."""

CLOSE = 8
"""Units of the last place that no sum is corrected for: it is as good as its type can hold."""


def rounding_of(kind: Any) -> float:
    """By how much a sum of numbers of a type, torch's or numpy's or of none, may miss one.

    >>> rounding_of(torch.float64), rounding_of(torch.float16)
    (1e-05, 0.00390625)
    """
    if isinstance(kind, torch.dtype) and kind.is_floating_point:
        return max(ROUNDING, 4 * torch.finfo(kind).eps)
    half = isinstance(kind, np.dtype) and kind == np.float16
    return 4 * float(np.finfo(np.float16).eps) if half else ROUNDING


def close_to(kind: torch.dtype) -> float:
    """What is left of a sum's miss by the best that a type can do."""
    return CLOSE * float(torch.finfo(kind).eps)
