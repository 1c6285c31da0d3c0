"""A model that has read some tokens already: every history begins with them.

Exact Bayes after a context is exact Bayes under the posterior, started where the context ends; it
reads nothing. Anything else reads the context anew for every history, and is charged for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.shapes import Float, Int
from posteer.families.markov.priors import Process
from posteer.models.exact import ExactModel, ExactState
from posteer.models.meter import Metered
from posteer.models.protocol import SequenceModel
from posteer.tokens.contexts import ContextSpace, count_transitions


def condition(model: Any, context: Sequence[int]) -> Any:
    """The model after `context`; the model itself if that is empty."""
    if not len(context):
        return model
    given = tuple(int(token) for token in context)
    vocab = model.space.vocab_size
    outside = [token for token in given if not 0 <= token < vocab]
    require(
        not outside,
        f"context has the symbol {outside[0] if outside else ''}: expected symbols 0 to "
        f"{vocab - 1}",
    )
    if isinstance(model, ExactModel):
        return ConditionedExact(model, given)
    network = hasattr(model, "continuation_log_probs_of_rows")
    return ConditionedNetwork(model, given) if network else Conditioned(model, given)


def context_of(model: SequenceModel) -> tuple[int, ...]:
    """What a model, metered or not, has read before any prompt."""
    inner = model.inner if isinstance(model, Metered) else model
    context: tuple[int, ...] = getattr(inner, "context", ())
    return context


def unconditioned(model: SequenceModel) -> Any:
    """The model, without its meter, that has read nothing yet."""
    inner: Any = model.inner if isinstance(model, Metered) else model
    return inner.base if context_of(inner) else inner


def after_context(model: SequenceModel, prompts: Int[Tensor, "B m"]) -> Int[Tensor, "B n"]:
    """Whole histories: what the model has read, then each prompt."""
    return _after(context_of(model), prompts)


def _after(context: tuple[int, ...], prompts: Int[Tensor, "B m"]) -> Int[Tensor, "B n"]:
    if not context:
        return prompts
    read = torch.tensor(context, dtype=prompts.dtype, device=prompts.device)
    return torch.cat([read.expand(len(prompts), -1), prompts], 1)


def counts_after_context(
    model: SequenceModel, prompts: Int[Tensor, "B m"]
) -> Float[Tensor, "B C V"]:
    """Transitions into the tokens of each prompt: from the context's end on, none of its own."""
    order = model.space.order
    head = context_of(model)[-order:] if order else ()
    return count_transitions(model.space, _after(head, prompts))


def posterior_after(process: Process, context: tuple[int, ...]) -> Process:
    """The process updated on the transitions of a context."""
    if len(context) <= process.space.order:  # the first tokens say nothing about the kernel
        return process
    return process.posterior(count_transitions(process.space, torch.tensor(context)))


def _fingerprint(base: str, context: tuple[int, ...]) -> str:
    return hashlib.sha256(f"{base} after {context}".encode()).hexdigest()


class ConditionedExact(ExactModel):
    """Exact Bayes after a context: `process` is the posterior, counts are the prompt's alone."""

    def __init__(self, base: ExactModel, context: tuple[int, ...]) -> None:
        try:
            posterior = posterior_after(base.process, context)
        except InputError as error:
            tokens = list(context)
            raise InputError(f"the context {tokens} is impossible under {base.name}") from error
        super().__init__(posterior, base.name)
        self.base = base
        self.context = context

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self.base.fingerprint, self.context)

    def start(self, batch: int, capacity: int = 16) -> ExactState:
        fresh = super().start(batch, capacity)
        order = self.space.order
        head = torch.tensor(self.context[-order:] if order else (), dtype=torch.long)
        contexts = self.space.encode(head).expand(batch).clone()
        return ExactState(self.process, fresh.counts, contexts, len(head))


class Conditioned:
    """Any other model after a context, which each history reads first.

    `context_tokens` is what the meter adds for every history.
    """

    def __init__(self, base: Any, context: tuple[int, ...]) -> None:
        longest = base.max_length
        require(
            longest is None or len(context) < longest,
            f"a context of {len(context)} tokens: {base.name} was trained on positions for "
            f"{longest}, which leaves none for a prompt",
        )
        self.base = base
        self.context = context
        self.name: str = base.name
        self.space: ContextSpace = base.space

    @cached_property
    def process(self) -> Process | None:
        """The prior the model filters, updated on the context."""
        known = self.base.process
        return None if known is None else posterior_after(known, self.context)

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self.base.fingerprint, self.context)

    @property
    def context_tokens(self) -> int:
        return len(self.context)

    @property
    def max_length(self) -> int | None:
        longest = self.base.max_length
        return None if longest is None else longest - len(self.context)

    def batch_invariant(self, n_tokens: int) -> bool:
        invariant: bool = self.base.batch_invariant(n_tokens + len(self.context))
        return invariant

    def batch_limit(self, n_tokens: int) -> int:
        limit: int = self.base.batch_limit(n_tokens + len(self.context))
        return limit

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        laws: Tensor = self.base.log_predictive(_after(self.context, tokens))
        return laws[:, len(self.context) :]

    def start(self, batch: int, capacity: int = 16) -> Any:
        state = self.base.start(batch, capacity + len(self.context))
        for token in self.context:
            _, state = self.base.advance(state, torch.full((batch,), token))
        return state

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        answer: tuple[Tensor, Any] = self.base.advance(state, tokens)
        return answer


class ConditionedNetwork(Conditioned):
    """A transformer after a context: gradients are in the prompt, the context stays as it is."""

    @property
    def network(self) -> Any:
        return self.base.network

    @property
    def device(self) -> torch.device:
        device: torch.device = self.base.device
        return device

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        law: Tensor = self.base.continuation_log_probs(_after(self.context, prompts), horizon)
        return law

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        law: Tensor = self.base.shared_log_probs(_after(self.context, prompts), horizon)
        return law

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        read = torch.nn.functional.one_hot(torch.tensor(self.context), self.space.vocab_size)
        law: Tensor = self.base.continuation_log_probs_of_rows(_before(read, rows), horizon)
        return law

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        weights = self.network.tokens.weight.detach()
        read = weights[torch.tensor(self.context, device=weights.device)]
        law: Tensor = self.base.continuation_log_probs_of_embeddings(
            _before(read, embedded), horizon
        )
        return law


def _before(read: Tensor, prompts: Float[Tensor, "B m W"]) -> Float[Tensor, "B n W"]:
    return torch.cat([read.to(prompts).expand(len(prompts), -1, -1), prompts], 1)
