"""What every method answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from posteer.core.shapes import Int
from posteer.models.meter import QueryCount


@dataclass(frozen=True)
class Step:
    """A moment of a search: its best value, the prompts it just tried, all it has spent so far."""

    value: float
    candidates: int
    forward_tokens: int
    backward_tokens: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Answer:
    """A hard prompt and how it was found; figures that do not apply to a method are None.

    `certificate` says what the prompt is provably best of, `candidates` holds the best prompts a
    method knows, itself first, for trying on the model.
    """

    prompt: Int[Tensor, "m"]
    queries: QueryCount
    bank_tokens: int = 0
    surrogate: float | None = None
    surrogate_standard_error: float | None = None
    snapped_surrogate: float | None = None
    held_out_surrogate: float | None = None
    held_out_standard_error: float | None = None
    ess_fraction: float | None = None
    pareto_k: float | None = None
    steps: int | None = None
    stop_reason: str | None = None
    certificate: str | None = None
    estimator: str | None = None
    verified: str | None = None
    choice: str | None = None
    candidates: Int[Tensor, "K m"] | None = field(default=None, repr=False)
    history: list[Step] = field(default_factory=list, repr=False)
    surrogate_history: list[float] = field(default_factory=list, repr=False)
    ess_history: list[float] = field(default_factory=list, repr=False)
