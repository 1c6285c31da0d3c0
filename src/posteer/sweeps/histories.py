"""Per-step histories in few bytes: columns of numbers, bytes of equal weight together, deflated."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from posteer.results import Elicitation

MOST_BYTES = 2**28
"""Of one series: millions of steps."""
Series = Sequence[float] | Sequence[int]


def pack(values: Series) -> str:
    """A series as text; what float32 does not hold is lost.

    >>> unpack(pack([1.0, 0.5]))
    [1.0, 0.5]
    """
    numbers = np.asarray(values, dtype="<f4")
    by_weight = numbers.view(np.uint8).reshape(-1, 4).T.tobytes()  # exponents repeat: deflate well
    return base64.b85encode(zlib.compress(by_weight, 9)).decode()


def unpack(text: str) -> list[float]:
    """The inverse of `pack`; what `pack` did not write is a ValueError."""
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b85decode(text), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflater.eof:
        raise ValueError("cut short, or too long")
    by_weight = np.frombuffer(data, dtype=np.uint8)
    numbers: list[float] = by_weight.reshape(4, -1).T.copy().view("<f4")[:, 0].tolist()
    return numbers


def columns_of(found: Elicitation) -> dict[str, str]:
    """What a run did step by step: an ascent's surrogate and ESS, or a search's value and cost."""
    answer = found.answer
    if answer.surrogate_history:
        return _packed({"surrogate": answer.surrogate_history, "ess": answer.ess_history})
    steps = answer.history
    return _packed(
        {
            "value": [step.value for step in steps],
            "candidates": [step.candidates for step in steps],
            "forward_tokens": [step.forward_tokens for step in steps],
            "backward_tokens": [step.backward_tokens for step in steps],
        }
    )


def _packed(columns: Mapping[str, Series]) -> dict[str, str]:
    return {name: pack(values) for name, values in columns.items() if values}
