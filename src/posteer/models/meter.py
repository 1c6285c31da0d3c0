"""The meter: methods see a model through it, so none can forget to count what it asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.families.markov.priors import Process
from posteer.models.protocol import SequenceModel
from posteer.models.trees import prompt_tree_size, tree_size
from posteer.tokens.contexts import ContextSpace


@dataclass
class QueryCount:
    """Tokens a model was asked to read."""

    forward_tokens: int = 0
    backward_tokens: int = 0

    def since(self, before: QueryCount) -> QueryCount:
        """What was asked after an earlier count."""
        return QueryCount(
            self.forward_tokens - before.forward_tokens,
            self.backward_tokens - before.backward_tokens,
        )


class Metered:
    """A model that counts its queries. Methods get this one, so none can forget to count."""

    def __init__(self, model: SequenceModel) -> None:
        self.inner = model
        self.queries = QueryCount()

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def space(self) -> ContextSpace:
        return self.inner.space

    @property
    def process(self) -> Process | None:
        return self.inner.process

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def batch_invariant(self, n_tokens: int) -> bool:
        return self.inner.batch_invariant(n_tokens)

    @property
    def max_length(self) -> int | None:
        return self.inner.max_length

    def batch_limit(self, n_tokens: int) -> int:
        return self.inner.batch_limit(n_tokens)

    @property
    def context_tokens(self) -> int:
        """Tokens that every history reads before its own: a conditioned model's context."""
        return int(getattr(self.inner, "context_tokens", 0))

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        self.queries.forward_tokens += tokens.numel() + len(tokens) * self.context_tokens
        return self.inner.log_predictive(tokens)

    def start(self, batch: int, capacity: int = 16) -> Any:
        self.queries.forward_tokens += batch * self.context_tokens
        return self.inner.start(batch, capacity)

    @property
    def gives_gradients(self) -> bool:
        """Whether the model can be differentiated in one-hot inputs."""
        return hasattr(self.inner, "continuation_log_probs_of_rows")

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        law: Tensor = self.inner.continuation_log_probs(prompts, horizon)  # type: ignore[attr-defined]
        self.queries.forward_tokens += len(prompts) * self.tokens_of(prompts.shape[1], horizon)
        return law

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        law: Tensor = self.inner.shared_log_probs(prompts, horizon)  # type: ignore[attr-defined]
        read = prompt_tree_size(prompts, self.space.vocab_size, horizon)
        self.queries.forward_tokens += self.context_tokens + read
        return law

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """One pass forward and, as it is asked for gradients, one back."""
        return self._both_ways("rows", rows, horizon)

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        return self._both_ways("embeddings", embedded, horizon)

    def _both_ways(self, what: str, prompts: Tensor, horizon: int) -> Tensor:
        spent = len(prompts) * self.tokens_of(prompts.shape[1], horizon)
        self.queries.forward_tokens += spent
        self.queries.backward_tokens += spent
        law: Tensor = getattr(self.inner, f"continuation_log_probs_of_{what}")(prompts, horizon)
        return law

    def refund(self, before: QueryCount) -> None:
        """Forget what was asked since: a pass that failed for want of memory is asked again."""
        self.queries.forward_tokens = before.forward_tokens
        self.queries.backward_tokens = before.backward_tokens

    def tokens_of(self, length: int, horizon: int) -> int:
        """Tokens that the law of all continuations of one prompt takes to read."""
        return self.context_tokens + length + tree_size(self.space.vocab_size, horizon)

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        self.queries.forward_tokens += tokens.numel()
        return self.inner.advance(state, tokens)
