"""Calls of a user's function: what it is sent, what it gives back, in few shapes.

It is sent torch tensors or numpy arrays (which JAX takes), and gives any kind of array back:
probabilities of the next token, or their logarithms up to a constant; after whole histories, or
after every beginning of them. A function that is compiled for every shape is sent few shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.rounding import rounding_of
from posteer.core.shapes import Float, Int
from posteer.core.spec import shown
from posteer.core.userfiles import Home, users_own
from posteer.models.laws import lawful

FEWEST_ROWS, FEWEST_TOKENS = 8, 8
"""Rows and lengths are filled up to these, to the next power of two, or to one and a half."""

STEADY = 1e-4
"""Probabilities that differ by more between two calls are not the same answer."""


@dataclass
class Calling:
    """How a function is called, and what its answers are."""

    predict: Callable[[Any], Any]
    vocab_size: int
    name: str
    gives: str | Any = "probabilities"
    all_positions: bool = False
    arrays: str | Any = "torch"
    pad: bool = False
    steady: bool = True
    home: Home | None = None
    asked_again: set[bool] = field(default_factory=set)

    def __post_init__(self) -> None:
        for said, known in (("gives", ("probabilities", "logits")), ("arrays", ("torch", "numpy"))):
            given = getattr(self, said)
            require(
                given in known, f"{self.name}: {said} {shown(given)}: expected {' or '.join(known)}"
            )

    def laws(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B n V"]:
        """Log laws after every beginning of each history, or after the whole of it alone."""
        laws = self._laws(tokens)
        longer = tokens.shape[1] > 0
        if not self.steady and longer not in self.asked_again:
            self.asked_again.add(longer)
            off = float((self._laws(tokens).exp() - laws.exp()).abs().max())
            require(
                off <= STEADY,
                f"{self.name} changes its answer: asked again for the same histories of "
                f"{tokens.shape[1]} tokens, probabilities differ by {off:.2g}",
            )
            if self.all_positions and longer:
                ahead = float((self._laws(tokens[:, :-1]) - laws[:, :-1]).exp().sub(1).abs().max())
                require(
                    ahead <= STEADY,
                    f"{self.name} looks ahead: its law after a token depends on the next one",
                )
        return laws

    def _laws(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B n V"]:
        sent = self._filled(tokens)
        with users_own(self.name, self.home):  # of a copy: it may write into what it is given
            given = self.predict(sent.numpy() if self.arrays == "numpy" else sent)
            answer = as_tensor(given)
        return self._checked(answer, tokens, sent, rounding_of(getattr(given, "dtype", None)))

    def _filled(self, tokens: Int[Tensor, "B T"]) -> Int[Tensor, "C U"]:
        """A copy, with rows that are left out again, and tokens after which nothing is asked."""
        if not self.pad:
            return tokens.clone()
        rows = _next(len(tokens), FEWEST_ROWS)
        length = _next(tokens.shape[1], FEWEST_TOKENS) if self.all_positions else tokens.shape[1]
        sent = tokens.new_zeros(rows, length)
        sent[: len(tokens), : tokens.shape[1]] = tokens
        return sent

    def _checked(
        self, answer: Tensor, tokens: Int[Tensor, "B T"], sent: Tensor, rounding: float
    ) -> Float[Tensor, "B n V"]:
        """The answer as laws, or a refusal that says what was expected."""
        rows, length = sent.shape
        shapes: list[tuple[int, ...]] = [(rows, self.vocab_size)]
        if self.all_positions:
            shapes = [(rows, n, self.vocab_size) for n in (length + 1, length)]
        found = tuple(answer.shape)
        said = " or ".join(map(str, shapes))
        require(found in shapes, f"{self.name} returned shape {found}: expected {said}")
        if not self.all_positions:
            answer = answer[:, None]
        elif answer.shape[1] == length:  # nothing is said of the first token
            answer = torch.cat([self._level(answer), answer], 1)
        n = tokens.shape[1] + 1 if self.all_positions else 1
        own = answer[: len(tokens), :n]
        if self.gives == "logits":
            require(not bool(own.isnan().any()), f"{self.name} returned logits that are no numbers")
            return own.log_softmax(-1)
        good = ((own.sum(-1) - 1).abs() <= rounding) & (own >= 0).all(-1)
        if not bool(good.all()):
            raise InputError(
                f"{self.name} returned {own[~good][0].tolist()} after {tokens.shape[1]} tokens: "
                "expected probabilities that sum to 1"
            )
        return lawful(own.log(), self.name, 2 * rounding)

    def _level(self, answer: Tensor) -> Float[Tensor, "B 1 V"]:
        """All tokens alike."""
        each = 0.0 if self.gives == "logits" else 1 / self.vocab_size
        return answer.new_full((len(answer), 1, self.vocab_size), each)


def _next(n: int, fewest: int) -> int:
    above = 1 << max(n - 1, 0).bit_length()
    return max(fewest, above * 3 // 4 if n <= above * 3 // 4 else above)


def as_tensor(given: Any) -> Tensor:
    """Any array, a list too, in double precision; a tensor's gradients are left behind."""
    if isinstance(given, Tensor):
        return given.detach().cpu().double()
    if hasattr(given, "__array__"):
        given = np.array(given)  # JAX's are not for writing
    return torch.as_tensor(given, dtype=torch.float64)


def is_compiled(function: Any) -> bool:
    """Whether JAX compiles it anew for every shape."""
    return type(function).__module__.partition(".")[0] in ("jax", "jaxlib")
