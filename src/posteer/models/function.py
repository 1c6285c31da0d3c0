"""Any function that gives next-token probabilities, as a SequenceModel.

What an API offers: no gradients, no internals, no cache. It is asked with whole histories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.shapes import Float, Int
from posteer.core.userfiles import object_from_file
from posteer.families.markov.priors import Process
from posteer.models.protocol import SequenceModel, predict_by_advancing
from posteer.tokens.contexts import ContextSpace


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
    give one that changes when the model does. The meter counts new tokens, as if what was sent
    before were remembered. Each history is taken to be predicted alike in any batch.
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
        return True

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


class Adapted:
    """A model that has `space`, `start` and `advance` and no more, with the rest filled in."""

    def __init__(self, model: Any, name: str, fingerprint: str | None = None) -> None:
        for needed in ("space", "start", "advance"):
            require(hasattr(model, needed), f"{name} has no '{needed}': not a sequence model")
        self.model = model
        self.space: ContextSpace = model.space
        self.name: str = getattr(model, "name", name)
        self.process: Process | None = getattr(model, "process", None)
        self.max_length: int | None = getattr(model, "max_length", None)
        facts = f"{type(model).__qualname__} {self.name} {self.space}"
        own = getattr(model, "fingerprint", None)
        self.fingerprint: str = own or fingerprint or hashlib.sha256(facts.encode()).hexdigest()

    def batch_invariant(self, n_tokens: int) -> bool:
        known = getattr(self.model, "batch_invariant", None)
        return False if known is None else bool(known(n_tokens))

    def batch_limit(self, n_tokens: int) -> int:
        known = getattr(self.model, "batch_limit", None)
        return 1024 if known is None else int(known(n_tokens))

    def start(self, batch: int, capacity: int = 16) -> Any:
        state = self.model.start(batch)
        require(
            hasattr(state, "log_probs"),
            f"{self.name}: the state that start returns has no log_probs",
        )
        return state

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        answer: tuple[Tensor, Any] = self.model.advance(state, tokens)
        return answer

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        return predict_by_advancing(self, tokens)


def complete(model: Any, name: str | None = None, fingerprint: str | None = None) -> Any:
    """The model itself if it is a whole SequenceModel, else with defaults for what it lacks."""
    if isinstance(model, SequenceModel):
        return model
    return Adapted(model, name or type(model).__name__, fingerprint)


def from_file(text: str) -> Any:
    """`./file.py:name`: a model with `space`, `start` and `advance`, or a function with
    `vocab_size` and `order` set on it. It is known by the file's content."""
    given = object_from_file(text)
    path, _, attribute = text.rpartition(":")
    content = Path(path).read_bytes() + attribute.encode()
    fingerprint = hashlib.sha256(content).hexdigest()
    if hasattr(given, "advance"):
        return complete(given, text, fingerprint)
    require(
        callable(given) and hasattr(given, "vocab_size") and hasattr(given, "order"),
        f"'{text}' is neither a model nor a function with vocab_size and order set on it",
    )
    return FunctionModel(
        given,
        vocab_size=given.vocab_size,
        order=given.order,
        name=text,
        fingerprint=fingerprint,
    )
