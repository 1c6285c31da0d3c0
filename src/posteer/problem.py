"""What every method is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from posteer.errors import InputError, require
from posteer.models.base import Metered, QueryCount
from posteer.objectives import ForwardCrossEntropy
from posteer.shapes import Int
from posteer.utilities.base import Utility

Progress = Callable[[str, int, int], None]
"""Called as work proceeds, with (what is being done, steps done, steps at most)."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Find a prompt of `length` tokens that makes continuations of `horizon` tokens useful.

    `max_model_tokens` bounds what a search may ask of the model, forward and backward together.
    """

    model: Metered
    utility: Utility | ForwardCrossEntropy
    length: int
    horizon: int
    seed: int
    max_model_tokens: int | None = None

    def __post_init__(self) -> None:
        space = self.model.space
        require(self.horizon >= 1, f"horizon {self.horizon}: expected at least 1")
        budget = self.max_model_tokens
        require(budget is None or budget >= 1, f"budget of {budget} model tokens: expected some")
        require(self.horizon <= 10_000, f"horizon {self.horizon}: expected at most 10000")
        require(self.length <= 1_000_000, f"length {self.length}: expected at most 1000000")
        require(
            self.length > space.order,
            f"length {self.length}: expected more than the model's order {space.order}",
        )
        require(
            self.length > self.utility.order,
            f"length {self.length}: {self.utility.name} reads {self.utility.order} prompt tokens, "
            "expected more",
        )

    @property
    def expected(self) -> Utility:
        """The goal as a utility, for methods whose surrogate is the mean of one."""
        if isinstance(self.utility, ForwardCrossEntropy):
            raise InputError(
                f"{self.utility.name} is no expected utility, which is what PPT ascends: use gcg, "
                "coordinate, beam, random, exhaustive or a prefix method"
            )
        return self.utility

    @property
    def order(self) -> int:
        """The order at which both the latents and the utility are kernels over contexts."""
        return max(self.model.space.order, self.utility.order)


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


def parse_prompt(text: str, vocab_size: int, what: str = "prompt") -> Int[Tensor, "m"]:
    """`010101`, or comma-separated for vocabularies of more than ten symbols."""
    parts = text.split(",") if "," in text or vocab_size > 10 else list(text.strip())
    tokens = []
    for part in parts:
        symbol = part.strip()
        require(
            symbol.isascii() and symbol.isdigit() and int(symbol) < vocab_size,
            f"{what} has the symbol '{symbol}': expected symbols 0 to {vocab_size - 1}",
        )
        tokens.append(int(symbol))
    require(len(tokens) > 0, f"the {what} is empty")
    return torch.tensor(tokens)


def show_prompt(tokens: list[int], vocab_size: int) -> str:
    """The inverse of `parse_prompt`."""
    return ("," if vocab_size > 10 else "").join(str(token) for token in tokens)
