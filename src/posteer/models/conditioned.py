"""A model that has read some tokens already: every history begins with them, and is charged."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from posteer.core import Bool, Float, Int, require
from posteer.families.protocol import Prior
from posteer.models.exact import conditioned_fingerprint
from posteer.models.protocol import Meter, Model


class Conditioned(Model):
    """Any model after a context, which each history reads first.

    Gradients are in the prompt, the context stays as it is.
    """

    def __init__(self, base: Model, context: tuple[int, ...]) -> None:
        longest = base.max_length
        require(
            longest is None or len(context) < longest,
            f"a context of {len(context)} tokens: {base.name} was trained on positions for "
            f"{longest}, which leaves none for a prompt",
        )
        self._base, self.context, self.name = base, context, base.name
        self.vocab_size, self.family, self.can = base.vocab_size, base.family, base.can
        self.probed, self.tokens_per_token = base.probed, base.tokens_per_token
        self.names, self.text = base.names, base.text
        self.max_length = None if longest is None else longest - len(context)

    @property
    def base(self) -> Model:
        return self._base

    @cached_property
    def prior(self) -> Prior | None:  # type: ignore[override]
        """The prior the model filters, updated on the context."""
        return self._after_context(self.base.prior)

    def prior_behind(self, meter: Meter) -> Prior | None:
        return self._after_context(self.base.prior_behind(meter))

    def _after_context(self, known: Prior | None) -> Prior | None:
        return None if known is None else known.after(self.context)

    @property
    def fingerprint(self) -> str:
        return conditioned_fingerprint(self.base.fingerprint, self.context)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.base.device

    def to(self, device: str) -> Model:
        self._base = self._base.to(device)
        return self

    @property
    def context_tokens(self) -> int:
        return self.base.context_tokens + len(self.context) * self.tokens_per_token

    def embeddings(self) -> Float[Tensor, "V W"]:
        return self.base.embeddings()

    def batch_invariant(self, n_tokens: int) -> bool:
        return self.base.batch_invariant(n_tokens + len(self.context))

    def batch_limit(self, n_tokens: int) -> int:
        return self.base.batch_limit(n_tokens + len(self.context))

    def impossible(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        return self.base.impossible(self.after_context(prompts))

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        return self.base.log_predictive(self.after_context(tokens))[:, len(self.context) :]

    def alphabet_share(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1"]:
        return self.base.alphabet_share(self.after_context(tokens))[:, len(self.context) :]

    def start(self, batch: int, capacity: int = 16) -> Any:
        state = self.base.start(batch, capacity + len(self.context))
        for token in self.context:
            _, state = self.base.advance(state, torch.full((batch,), token))
        return state

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        return self.base.advance(state, tokens)

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        return self.base.continuation_log_probs(self.after_context(prompts), horizon)

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        return self.base.shared_log_probs(self.after_context(prompts), horizon)

    def product_log_probs(
        self, firsts: Int[Tensor, "P k"], lasts: Int[Tensor, "S n"], horizon: int
    ) -> Float[Tensor, "K Y"]:
        return self.base.product_log_probs(self.after_context(firsts), lasts, horizon)

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        read = torch.nn.functional.one_hot(torch.tensor(self.context), self.vocab_size)
        return self.base.continuation_log_probs_of_rows(_before(read, rows), horizon)

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        own = self.embeddings()
        read = own[torch.tensor(self.context, device=own.device)]
        return self.base.continuation_log_probs_of_embeddings(_before(read, embedded), horizon)


def _before(read: Tensor, prompts: Float[Tensor, "B m W"]) -> Float[Tensor, "B n W"]:
    return torch.cat([read.to(prompts).expand(len(prompts), -1, -1), prompts], 1)


def require_readable(model: Model, n_tokens: int) -> None:
    """Refuse a context that would be read for ever: its law is asked for after every token."""
    most = model.longest_context
    require(
        most is None or n_tokens <= most,
        f"a context of {n_tokens} tokens: {model.name} is sent whole histories, expected at most "
        f"{most}",
    )


def condition(model: Model, context: tuple[int, ...]) -> Model:
    """The model after `context`; the model itself if that is empty.

    >>> from posteer.models import open_model
    >>> condition(open_model("exact:urn"), (0, 1)).context
    (0, 1)
    """
    if not context:
        return model
    outside = [token for token in context if not 0 <= token < model.vocab_size]
    require(
        not outside,
        f"context has the symbol {outside[0] if outside else ''}: expected symbols 0 to "
        f"{model.vocab_size - 1}",
    )
    base, whole = model.base, (*model.context, *context)
    require_readable(base, len(whole))
    if base.context:  # exact Bayes that began as a posterior: there is nothing before it
        base, whole = model, context
    return base.conditioned(whole) or Conditioned(base, whole)
