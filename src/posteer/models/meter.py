"""The meter: methods see a model through it, so none can forget to count what it asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from posteer.core.shapes import Bool, Float, Int
from posteer.families.protocol import Prior
from posteer.models.protocol import Model
from posteer.models.trees import prompt_tree_size, tree_size


@dataclass
class QueryCount:
    """Tokens a model was asked to read."""

    forward_tokens: int = 0
    backward_tokens: int = 0

    @property
    def total(self) -> int:
        return self.forward_tokens + self.backward_tokens

    def since(self, before: QueryCount) -> QueryCount:
        """What was asked after an earlier count."""
        return QueryCount(
            self.forward_tokens - before.forward_tokens,
            self.backward_tokens - before.backward_tokens,
        )

    def plus(self, more: QueryCount) -> QueryCount:
        return QueryCount(
            self.forward_tokens + more.forward_tokens, self.backward_tokens + more.backward_tokens
        )


class Metered(Model):
    """A model that counts its queries; in all else the model it meters."""

    def __init__(self, model: Model) -> None:
        self.inner = model
        self.name, self.vocab_size = model.name, model.vocab_size
        self.family, self.max_length = model.family, model.max_length
        self.can, self.context, self.probed = model.can, model.context, model.probed
        self.queries = QueryCount()

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def formerly(self) -> tuple[str, ...]:
        return self.inner.formerly

    @property
    def prior(self) -> Prior | None:  # type: ignore[override]
        return self.inner.prior

    @property
    def base(self) -> Model:
        return self.inner.base

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.inner.device

    @property
    def narrow_cache(self) -> bool:
        return self.inner.narrow_cache

    @narrow_cache.setter
    def narrow_cache(self, narrow: bool) -> None:
        self.inner.narrow_cache = narrow

    def embeddings(self) -> Float[Tensor, "V W"]:
        return self.inner.embeddings()

    @property
    def context_tokens(self) -> int:
        return self.inner.context_tokens

    def batch_invariant(self, n_tokens: int) -> bool:
        return self.inner.batch_invariant(n_tokens)

    def batch_limit(self, n_tokens: int) -> int:
        return self.inner.batch_limit(n_tokens)

    def impossible(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        return self.inner.impossible(prompts)

    def tokens_of(self, length: int, horizon: int) -> int:
        """Tokens that the law of all continuations of one prompt takes to read."""
        return self.context_tokens + length + tree_size(self.vocab_size, horizon)

    def start(self, batch: int, capacity: int = 16) -> Any:
        self.queries.forward_tokens += batch * self.context_tokens
        return self.inner.start(batch, capacity)

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        self.queries.forward_tokens += tokens.numel()
        return self.inner.advance(state, tokens)

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        self.queries.forward_tokens += tokens.numel() + len(tokens) * self.context_tokens
        return self.inner.log_predictive(tokens)

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        self.queries.forward_tokens += len(prompts) * self.tokens_of(prompts.shape[1], horizon)
        return self.inner.continuation_log_probs(prompts, horizon)

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        read = prompt_tree_size(prompts, self.vocab_size, horizon)
        self.queries.forward_tokens += self.context_tokens + read
        return self.inner.shared_log_probs(prompts, horizon)

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """One pass forward and, as it is asked for gradients, one back."""
        self._charge_both_ways(rows, horizon)
        return self.inner.continuation_log_probs_of_rows(rows, horizon)

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        self._charge_both_ways(embedded, horizon)
        return self.inner.continuation_log_probs_of_embeddings(embedded, horizon)

    def _charge_both_ways(self, prompts: Tensor, horizon: int) -> None:
        spent = len(prompts) * self.tokens_of(prompts.shape[1], horizon)
        self.queries.forward_tokens += spent
        self.queries.backward_tokens += spent

    @contextmanager
    def attempt(self) -> Iterator[None]:
        before = replace(self.queries)
        try:
            yield
        except RuntimeError:
            self.queries = before
            raise
