"""The meter: methods see a model through it, so none can forget to count what it asks, and every
law that enters is looked at.

A model token is one position of one history at which a model is asked for its next-token law: each
token of a prompt, of its context, and of the continuations that are followed. Positions that a
model keeps in a cache, or that a function without one is sent again, are not counted again. Where
a model is made of several, each of them is asked (`tokens_per_token`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.rounding import rounding_of
from posteer.core.shapes import Bool, Float, Int
from posteer.families.protocol import Prior
from posteer.models.laws import departure, require_laws
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


@dataclass
class Spending:
    """What the meters of a run have asked together, and the most they may: None if anything."""

    asked: QueryCount = field(default_factory=QueryCount)
    most: int | None = None

    @property
    def left(self) -> int | None:
        return None if self.most is None else self.most - self.asked.total

    def charge(self, forward: int, backward: int = 0) -> None:
        """Count a pass that is about to be made; one that is not paid for is not made."""
        price, left = forward + backward, self.left
        require(
            left is None or price <= left,
            f"{price:,} more model tokens are asked for and the budget has {left} left",
        )
        self.asked.forward_tokens += forward
        self.asked.backward_tokens += backward

    @contextmanager
    def within(self, tokens: int | None) -> Iterator[None]:
        """No more than so many tokens inside, nor than there were left."""
        before = self.most
        if tokens is not None:
            here = self.asked.total + tokens
            self.most = here if before is None else min(here, before)
        try:
            yield
        finally:
            self.most = before


class Metered(Model):
    """A model that counts its queries and looks at its laws; in all else the model it meters."""

    metered = True

    def __init__(self, model: Model, spending: Spending | None = None) -> None:
        self._worst: dict[float, Tensor] = {}
        self.inner, self.spending = model, spending or Spending()
        self.name, self.vocab_size = model.name, model.vocab_size
        self.family, self.max_length = model.family, model.max_length
        self.can, self.context, self.probed = model.can, model.context, model.probed
        self.tokens_per_token = model.tokens_per_token
        self.names, self.text = model.names, model.text

    @property
    def queries(self) -> QueryCount:
        """All that was asked so far."""
        return self.spending.asked

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def formerly(self) -> tuple[str, ...]:
        return self.inner.formerly

    @cached_property
    def prior(self) -> Prior | None:  # type: ignore[override]
        return self.inner.prior_behind(lambda model: Metered(model, self.spending))

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

    def alphabet_share(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1"]:
        own = tokens.numel() * self.tokens_per_token
        self.spending.charge(own + len(tokens) * self.context_tokens)
        return self.inner.alphabet_share(tokens)

    def impossible(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        return self.inner.impossible(prompts)

    def tokens_of(self, length: int, horizon: int) -> int:
        """Tokens that the law of all continuations of one prompt takes to read."""
        own = length + tree_size(self.vocab_size, horizon)
        return self.context_tokens + own * self.tokens_per_token

    def start(self, batch: int, capacity: int = 16) -> Any:
        self.spending.charge(batch * self.context_tokens)
        state = self.inner.start(batch, capacity)
        self._look_at(state.log_probs)
        return state

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        self.spending.charge(tokens.numel() * self.tokens_per_token)
        law, after = self.inner.advance(state, tokens)
        self._look_at(law)
        if (own := after.log_probs) is not law:
            self._look_at(own)
        return law, after

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        own = tokens.numel() * self.tokens_per_token
        self.spending.charge(own + len(tokens) * self.context_tokens)
        return self._look_at(self.inner.log_predictive(tokens))

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        self.spending.charge(len(prompts) * self.tokens_of(prompts.shape[1], horizon))
        return self._look_at(self.inner.continuation_log_probs(prompts, horizon), horizon)

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        read = prompt_tree_size(prompts, self.vocab_size, horizon)
        self.spending.charge(self.context_tokens + read * self.tokens_per_token)
        return self._look_at(self.inner.shared_log_probs(prompts, horizon), horizon)

    def product_log_probs(
        self, firsts: Int[Tensor, "P k"], lasts: Int[Tensor, "S n"], horizon: int
    ) -> Float[Tensor, "K Y"]:
        self.spending.charge(self.tokens_of_product(firsts, lasts, horizon))
        return self._look_at(self.inner.product_log_probs(firsts, lasts, horizon), horizon)

    def tokens_of_product(
        self, firsts: Int[Tensor, "P k"], lasts: Int[Tensor, "S n"], horizon: int
    ) -> int:
        """Tokens of all beginnings, and behind each of the tree of all ends."""
        own = firsts.shape[1] + prompt_tree_size(lasts, self.vocab_size, horizon)
        return len(firsts) * (self.context_tokens + own * self.tokens_per_token)

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """One pass forward and, as it is asked for gradients, one back."""
        self._charge_both_ways(rows, horizon)
        return self._look_at(self.inner.continuation_log_probs_of_rows(rows, horizon), horizon)

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        self._charge_both_ways(embedded, horizon)
        laws = self.inner.continuation_log_probs_of_embeddings(embedded, horizon)
        return self._look_at(laws, horizon)

    def _look_at(self, log_probs: Tensor, steps: int = 1) -> Tensor:
        """At laws of so many tokens: at once, or later where that would wait for a device."""
        worst, tolerance = departure(log_probs), steps * rounding_of(log_probs.dtype)
        if worst.device.type == "cpu":
            require_laws(float(worst), tolerance, self.name)
        else:
            before = self._worst.get(tolerance)
            self._worst[tolerance] = worst if before is None else torch.maximum(before, worst)
        return log_probs

    def check_laws(self) -> None:
        seen, self._worst = self._worst, {}
        for tolerance, worst in seen.items():
            require_laws(float(worst), tolerance, self.name)

    def _charge_both_ways(self, prompts: Tensor, horizon: int) -> None:
        spent = len(prompts) * self.tokens_of(prompts.shape[1], horizon)
        self.spending.charge(spent, spent)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        before = replace(self.queries)
        try:
            yield
        except RuntimeError:
            self.spending.asked = before
            raise


def metered(model: Model) -> Model:
    """A model behind a meter: its own, or a new one."""
    return model if model.metered else Metered(model)
