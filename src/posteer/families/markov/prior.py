"""A prior over Markov kernels: filtering it is a matter of transition counts.

A sequence is drawn by sampling a kernel from the prior, `order` first tokens uniformly (the random
initial context of the paper's training data), and the rest from the kernel. The first tokens carry
no information about the kernel, so everything Bayesian depends on the transition counts alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.markov.family import MarkovFamily, MarkovLatents
from posteer.families.markov.prompt_classes import ClassProblem, PromptClasses
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace, count_transitions


@dataclass(frozen=True, eq=False)
class CountBelief:
    """Sufficient statistics of a batch of histories; `read` counts tokens up to the order."""

    prior: MarkovPrior
    counts: Float[Tensor, "B C V"]
    contexts: Int[Tensor, "B"]
    read: int

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        space = self.prior.space
        if self.read < space.order:  # the random first context of the process
            uniform = self.counts.new_full((len(self.counts), space.vocab_size), space.vocab_size)
            return -uniform.log()
        return self.prior.predictive(self.counts, self.contexts).log()

    def select(self, rows: Int[Tensor, "K"]) -> CountBelief:
        return CountBelief(self.prior, self.counts[rows], self.contexts[rows], self.read)


@dataclass(frozen=True, eq=False, kw_only=True)
class MarkovPrior(ABC):
    """A prior on `[C, V]` kernels that knows its posterior, predictive and evidence by counts.

    `context` is what was read before: a posterior starts where its data end.
    """

    space: ContextSpace = field(kw_only=False)
    context: tuple[int, ...] = ()

    @property
    @abstractmethod
    def spec(self) -> str:
        """The prior as text, from which `open_process` makes it again."""

    @abstractmethod
    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]:
        """Draws of kernels."""

    @abstractmethod
    def posterior(self, counts: Float[Tensor, "C V"]) -> MarkovPrior:
        """The prior updated on transition counts."""

    @abstractmethod
    def predictive(
        self, counts: Float[Tensor, "B C V"], contexts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        """The exact next-token law after counts, in the given contexts."""

    @abstractmethod
    def log_marginal(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B"]:
        """Log-probability of one ordered sequence with these counts, given its first context."""

    @property
    def independent_rows(self) -> bool:
        """Whether a step from one context tells nothing about another's row."""
        return False

    @property
    def head(self) -> tuple[int, ...]:
        """As much of the context as a kernel looks back to."""
        return self.context[-self.space.order :] if self.space.order else ()

    @property
    def family(self) -> MarkovFamily:
        return MarkovFamily(self.space)

    def sample(self, n: int, stream: np.random.Generator) -> MarkovLatents:
        return MarkovLatents(self.space, self.sample_kernels(n, stream))

    def start(self, batch: int) -> CountBelief:
        shape = (batch, self.space.n_contexts, self.space.vocab_size)
        counts = torch.zeros(shape, dtype=torch.float64)
        context = self.space.encode(torch.tensor(self.head, dtype=torch.long))
        return CountBelief(self, counts, context.expand(batch).clone(), len(self.head))

    def observe(self, belief: CountBelief, tokens: Int[Tensor, "B"]) -> CountBelief:
        counts = belief.counts
        if belief.read >= self.space.order:
            counts = counts.clone()
            counts[torch.arange(len(tokens)), belief.contexts, tokens] += 1
        contexts = self.space.next_context[belief.contexts, tokens]
        return CountBelief(self, counts, contexts, min(belief.read + 1, self.space.order))

    def evidence(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """Given the first context, of which no latent says anything."""
        head = torch.tensor(self.head, dtype=prompts.dtype).expand(len(prompts), -1)
        return self.log_marginal(count_transitions(self.space, torch.cat([head, prompts], 1)))

    def after(self, tokens: tuple[int, ...]) -> MarkovPrior:
        news, updated = (*self.head, *tokens), self
        if len(news) > self.space.order:  # the first tokens say nothing about the kernel
            updated = self.posterior(count_transitions(self.space, torch.tensor(news)))
        return replace(updated, context=(*self.context, *tokens))

    def classes_can_tell(
        self, length: int, goal_order: int, allowed: AllowedPrompts | None
    ) -> bool:
        return ClassProblem(self.space, length, goal_order, allowed, self.context).decided

    def classes_of_prompts(
        self, length: int, goal_order: int, allowed: AllowedPrompts | None
    ) -> MarkovClasses | None:
        asked = ClassProblem(self.space, length, goal_order, allowed, self.context)
        classes = asked.enumerate()
        if classes is None:
            return None
        kept = (self.log_marginal(classes.counts.double()) > -torch.inf).nonzero().flatten()
        if allowed is not None:
            rows = asked.allowed_rows(classes)
            require(len(rows) > 0, f"no allowed prompt of {length} tokens exists")
            kept = kept[torch.isin(kept, rows)]
        return MarkovClasses(self, classes, kept)


class MarkovClasses:
    """Classes by transition counts and ends, those that no kernel can emit left out."""

    def __init__(self, prior: MarkovPrior, classes: PromptClasses, kept: Int[Tensor, "K"]) -> None:
        self.prior, self.classes, self.kept = prior, classes, kept
        self.sizes = [classes.sizes[row] for row in kept.tolist()]

    def __len__(self) -> int:
        return len(self.kept)

    def prompt(self, row: int) -> Int[Tensor, "m"]:
        return self.classes.prompt(int(self.kept[row]))

    def beliefs(self, rows: Int[Tensor, "K"]) -> CountBelief:
        own = self.kept[rows]
        return belief_of_counts(self.prior, self.classes.counts[own], self.classes.last[own])

    def contexts(self, rows: Int[Tensor, "K"], order: int) -> Int[Tensor, "K"]:
        return self.classes.last[self.kept[rows]] % self.prior.space.vocab_size**order


def belief_of_counts(
    prior: MarkovPrior, counts: Int[Tensor, "K C V"], last: Int[Tensor, "K"]
) -> CountBelief:
    """The belief after any histories with these counts and last contexts, without reading them."""
    space = prior.space
    return CountBelief(prior, counts.double(), last % space.n_contexts, space.order)
