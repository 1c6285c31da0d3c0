"""What runs did step by step, in few bytes: steps evenly spread on a logarithmic axis."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posteer.sweeps.results import Histories

LEVELS = 65534
"""Between a series' least and greatest value; one more stands for what is no number."""
WHOLE = 48
"""Curves of so many steps are kept as they are."""
SHOWN = ("surrogate", "ess", "value", "forward_tokens", "backward_tokens")


def grid_of(longest: int, per_octave: int) -> list[int]:
    """Steps that are kept of every run; its last is kept besides.

    >>> grid_of(16, 2)
    [1, 2, 3, 4, 6, 8, 11, 16]
    """
    powers = np.arange(0, per_octave * np.log2(max(longest, 1)) + 1)
    steps = np.unique(np.round(2 ** (powers / per_octave)).astype(int))
    return [int(step) for step in steps if step <= longest]


def curves_of(histories: Histories, runs: Sequence[str], per_octave: int) -> dict[str, Any]:
    """The curves of runs by their place, thinned."""
    known = {at: histories[run] for at, run in enumerate(runs) if histories.get(run)}
    lengths = [len(next(iter(history.values()))) for history in known.values()]
    grid = grid_of(max(lengths, default=1), per_octave)
    found = {str(at): _packed(history, grid) for at, history in known.items()}
    return {
        "whole": WHOLE,
        "grid": grid,
        "runs": {at: one for at, one in found.items() if one["series"]},
    }


def _packed(history: Mapping[str, Sequence[float]], grid: Sequence[int]) -> dict[str, Any]:
    steps = len(next(iter(history.values())))
    kept = [step - 1 for step in grid if step < steps] + [steps - 1]
    if steps <= WHOLE:
        kept = list(range(steps))
    shown = {name: history[name] for name in SHOWN if any(history.get(name, ()))}
    return {
        "steps": steps,
        "series": {name: levels_of([values[at] for at in kept]) for name, values in shown.items()},
    }


def levels_of(values: Sequence[float]) -> list[Any]:
    """Least value, greatest value, and 16 bits for each between them."""
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    low, high = (
        (float(numbers[finite].min()), float(numbers[finite].max())) if finite.any() else (0, 0)
    )
    scaled = np.zeros(len(numbers))
    if high > low:
        scaled[finite] = (numbers[finite] - low) / (high - low) * LEVELS
    levels = np.where(finite, np.round(scaled), LEVELS + 1).astype("<u2")
    return [float(f"{low:.9g}"), float(f"{high:.9g}"), base64.b64encode(levels.tobytes()).decode()]
