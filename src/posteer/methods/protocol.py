"""What every method is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.shapes import Bool
from posteer.goals.objectives import ForwardCrossEntropy
from posteer.goals.protocol import Utility
from posteer.models.conditioned import context_of
from posteer.models.meter import Metered
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace
from posteer.tokens.drawing import LISTED_PROMPTS, list_allowed


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
