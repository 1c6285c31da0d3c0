"""The model boundary: what a sequence model offers, and the meter that counts what was asked."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.families.markov.priors import Process
from posteer.tokens.contexts import ContextSpace


@runtime_checkable
class ModelState(Protocol):
    """What a batch of histories has been read into."""

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        """The next-token law of each history."""

    def select(self, rows: Int[Tensor, "K"]) -> ModelState:
        """The states of some rows, repeats allowed: how a tree of continuations forks."""


@runtime_checkable
class SequenceModel(Protocol):
    """Anything that predicts the next token. PPT needs `start` and `advance` alone."""

    @property
    def name(self) -> str: ...

    @property
    def space(self) -> ContextSpace:
        """The vocabulary, and the Markov order of the latent kernels the model filters."""

    @property
    def process(self) -> Process | None:
        """The prior the model filters, where it is known."""

    @property
    def fingerprint(self) -> str:
        """Names the model by what it computes: equal for equal models only."""

    def batch_invariant(self, n_tokens: int) -> bool:
        """Whether a history of so many tokens gives the same bits in any batch it is read in."""

    @property
    def max_length(self) -> int | None:
        """The most tokens a history may have; None if any number."""

    def batch_limit(self, n_tokens: int) -> int:
        """How many histories of so many tokens should be held at once."""

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        """Row t is the log law of the next token after t tokens; row 0 is unconditional."""

    def start(self, batch: int, capacity: int = 16) -> Any:
        """The state of `batch` empty histories; `capacity` tokens are expected to follow."""

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        """Read one token per history."""


def predict_by_advancing(
    model: SequenceModel, tokens: Int[Tensor, "B T"]
) -> Float[Tensor, "B T1 V"]:
    """`log_predictive` of a model that can only advance."""
    state = model.start(len(tokens), tokens.shape[1])
    laws = [state.log_probs]
    for token in tokens.unbind(-1):
        law, state = model.advance(state, token)
        laws.append(law)
    return torch.stack(laws, 1)
