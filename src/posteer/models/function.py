"""Any function that gives next-token probabilities, as a SequenceModel.

What an API offers: no gradients, no internals, no cache. It is asked with whole histories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.errors import InputError, require
from posteer.kernels import ContextSpace
from posteer.processes import Process
from posteer.shapes import Float, Int
from posteer.userfiles import object_from_file


@dataclass(frozen=True, eq=False)
class HistoryState:
    """The histories themselves."""

    tokens: Int[Tensor, "B T"]
    log_probs: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, "K"]) -> HistoryState:
        return HistoryState(self.tokens[rows], self.log_probs[rows])


class FunctionModel:
    """`predict(tokens[B, T]) -> probabilities[B, V]` of the next token, T from 0 on.

    `order` is that of the latent kernels one believes it filters. `fingerprint` tells banks apart;
    give one that changes when the model does.
    """

    max_length = None

    def __init__(
        self,
        predict: Callable[[Tensor], Any],
        *,
        vocab_size: int,
        order: int,
        name: str = "function",
        process: Process | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.predict = predict
        self.space = ContextSpace(vocab_size, order)
        self.name = name
        self.process = process
        facts = f"{name} {vocab_size} {order}"
        self.fingerprint = fingerprint or hashlib.sha256(facts.encode()).hexdigest()

    def batch_invariant(self, n_tokens: int) -> bool:
        return False

    def batch_limit(self, n_tokens: int) -> int:
        return max(1, 2**22 // (n_tokens + 1))

    def start(self, batch: int, capacity: int = 16) -> HistoryState:
        return self._ask(torch.zeros(batch, 0, dtype=torch.long))

    def advance(
        self, state: HistoryState, tokens: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B V"], HistoryState]:
        after = self._ask(torch.cat([state.tokens, tokens[:, None].cpu()], 1))
        return after.log_probs, after

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        lengths = range(tokens.shape[1] + 1)
        return torch.stack([self._ask(tokens[:, :n]).log_probs for n in lengths], 1)

    def _ask(self, tokens: Int[Tensor, "B T"]) -> HistoryState:
        try:
            answer = torch.as_tensor(self.predict(tokens), dtype=torch.float64)
        except Exception as error:  # whatever the user's code raises is the user's input
            detail = str(error).splitlines()[0] if str(error) else ""
            raise InputError(f"{self.name} raised {type(error).__name__}: {detail}") from error
        expected = (len(tokens), self.space.vocab_size)
        require(
            tuple(answer.shape) == expected,
            f"{self.name} returned shape {tuple(answer.shape)}: expected {expected}",
        )
        sums = answer.sum(-1)
        good = bool((answer >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all())
        if not good:
            worst = answer[(~((sums - 1).abs() < 1e-3)) | (answer < 0).any(-1)][0].tolist()
            raise InputError(
                f"{self.name} returned {worst} after {tokens.shape[1]} tokens: expected "
                "probabilities that sum to 1"
            )
        return HistoryState(tokens, answer.log())


def from_file(text: str) -> Any:
    """`./file.py:name`: a SequenceModel, or a function with `vocab_size` and `order` set on it."""
    given = object_from_file(text)
    if hasattr(given, "advance") and hasattr(given, "space"):
        return given
    require(
        callable(given) and hasattr(given, "vocab_size") and hasattr(given, "order"),
        f"'{text}' is neither a SequenceModel nor a function with vocab_size and order set on it",
    )
    return FunctionModel(given, vocab_size=given.vocab_size, order=given.order, name=text)
