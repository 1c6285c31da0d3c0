"""What every method is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from posteer.allowed import AllowedPrompts
from posteer.allowed.drawing import LISTED_PROMPTS, list_allowed
from posteer.errors import InputError, require
from posteer.kernels import ContextSpace
from posteer.models.base import Metered, QueryCount
from posteer.models.conditioned import context_of
from posteer.objectives import ForwardCrossEntropy
from posteer.shapes import Bool, Int
from posteer.utilities.base import Utility

Progress = Callable[[str, int, int], None]
"""Called as work proceeds, with (what is being done, steps done, steps at most)."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Find a prompt of `length` tokens that makes continuations of `horizon` tokens useful.

    `max_model_tokens` bounds what a search may ask of the model, forward and backward together.
    `allowed` says which prompts may be answered. A model may have read a `context` before the
    prompt (`models.conditioned`): then all that is said of prompts is said of what follows it.
    """

    model: Metered
    utility: Utility | ForwardCrossEntropy
    length: int
    horizon: int
    seed: int
    max_model_tokens: int | None = None
    allowed: AllowedPrompts | None = None

    def __post_init__(self) -> None:
        space = self.model.space
        require(self.horizon >= 1, f"horizon {self.horizon}: expected at least 1")
        budget = self.max_model_tokens
        require(budget is None or budget >= 1, f"budget of {budget} model tokens: expected some")
        require(self.horizon <= 10_000, f"horizon {self.horizon}: expected at most 10000")
        require(self.length <= 1_000_000, f"length {self.length}: expected at most 1000000")
        known = len(self.context)
        require(
            known + self.length > space.order,
            f"length {self.length}: expected more than the model's order {space.order}",
        )
        require(
            known + self.length > self.utility.order,
            f"length {self.length}: {self.utility.name} reads {self.utility.order} prompt tokens, "
            "expected more",
        )
        require(self.length >= 1, f"length {self.length}: expected at least 1")
        longest = self.model.max_length
        require(
            longest is None or self.length + self.horizon - 1 <= longest,
            f"length {self.length} and horizon {self.horizon}: {self.model.name} reads "
            f"{longest} tokens, expected length + horizon at most {(longest or 0) + 1}",
        )
        require(
            self.allowed is None or self.allowed.vocab_size == space.vocab_size,
            f"allowed prompts are over {self.allowed.vocab_size if self.allowed else 0} tokens: "
            f"{self.model.name} has {space.vocab_size}",
        )
        if self.allowed is not None:
            self.allowed.token_mask(self.length)  # refuses what no prompt can satisfy
            if space.vocab_size**self.length <= LISTED_PROMPTS:
                list_allowed(self.allowed, self.length)  # and so does this

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

    @property
    def context(self) -> tuple[int, ...]:
        """What the model has read before the prompt."""
        return context_of(self.model)

    @property
    def head(self) -> tuple[int, ...]:
        """The end of the context that the first tokens of a prompt follow at this order.

        A prompt with its head in front is a walk over contexts as any other, whose beginning is
        given.
        """
        return self.context[-self.order :] if self.order else ()

    @property
    def steps(self) -> int:
        """Transitions of a prompt with its head, past the first context: the n of eq. W."""
        return len(self.head) + self.length - self.order

    @property
    def first_contexts(self) -> Bool[Tensor, "C"] | None:
        """The first contexts that the head and what is allowed leave; None if all."""
        if not self.head and self.allowed is None:
            return None
        space = ContextSpace(self.model.space.vocab_size, self.order)
        return begins_as(space, self.head, self.length, self.allowed)


def begins_as(
    space: ContextSpace,
    head: tuple[int, ...],
    length: int,
    allowed: AllowedPrompts | None = None,
) -> Bool[Tensor, "C"]:
    """First contexts that begin with the head and go on with tokens allowed in their places."""
    tokens = space.decode(torch.arange(space.n_contexts))
    good = torch.ones(space.n_contexts, dtype=torch.bool)
    for place, token in enumerate(head):
        good &= tokens[:, place] == token
    if allowed is not None:
        mask = allowed.token_mask(length)
        for place in range(len(head), space.order):
            good &= mask[place - len(head)][tokens[:, place]]
    return good


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


def parse_context(given: str | Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """Observed tokens from text, or as they are; none is a context too."""
    if isinstance(given, str):
        given = parse_prompt(given, vocab_size, "context").tolist() if given.strip() else ()
    return tuple(int(token) for token in given)


def show_prompt(tokens: list[int], vocab_size: int) -> str:
    """The inverse of `parse_prompt`."""
    return ("," if vocab_size > 10 else "").join(str(token) for token in tokens)
