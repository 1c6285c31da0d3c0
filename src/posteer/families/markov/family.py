"""Markov latents: L kernels as one table, and all that their family can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, InputError, Int, Spec, integer, require
from posteer.core.spec import within
from posteer.families.markov.kernels import lift, log_likelihood, sample_chains
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.unvisited import TREATMENTS, filled
from posteer.families.protocol import Latents, NextToken
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace, count_transitions, sound_rows

MOST_ORDER = 64
"""That may be asked for; vocabularies allow far less."""


@dataclass(frozen=True)
class MarkovFamily:
    """k-Markov kernels over a vocabulary: `Counted`, `Tiltable` and `Fittable`.

    >>> family = MarkovFamily(ContextSpace(2, 1))
    >>> family.count(torch.tensor([[0, 1, 1, 0]])).tolist()
    [[[0.0, 1.0], [1.0, 1.0]]]
    """

    space: ContextSpace

    @property
    def name(self) -> str:
        return "markov"

    @property
    def vocab_size(self) -> int:
        return self.space.vocab_size

    @property
    def order(self) -> int:
        return self.space.order

    @property
    def text(self) -> str:
        """From which `open_family` makes it again."""
        return f"markov(order={self.order})"

    @property
    def treatments(self) -> tuple[str, ...]:
        """What can be put into rows that a rollout never reached."""
        return TREATMENTS

    def count(self, tokens: Int[Tensor, "*B T"]) -> Float[Tensor, "*B C V"]:
        """T(y): the transition counts, all that a latent sees of a prompt."""
        return count_transitions(self.space, tokens)

    def tally(self, n: int, context: tuple[int, ...], device: torch.device) -> MarkovTally:
        return MarkovTally(self.space, n, context, device)

    def fit(
        self,
        counts: Int[Tensor, "L C V"],
        treatment: str,
        stream: np.random.Generator,
        law_after: NextToken,
    ) -> MarkovLatents:
        """Frequencies of each row, and the treatment where there are none."""
        return MarkovLatents(self.space, filled(self.space, counts, treatment, stream, law_after))

    def latents_of(self, tensors: dict[str, Tensor]) -> MarkovLatents:
        kernels = tensors["kernels"]
        expected = (self.space.n_contexts, self.space.vocab_size)
        fits = kernels.ndim == 3 and tuple(kernels.shape[1:]) == expected
        require(fits, f"kernels of shape {tuple(kernels.shape)}: expected L x {expected}")
        for name, counts in tensors.items():
            if name.startswith("counts"):
                found = tuple(counts.shape)
                require(found == kernels.shape, f"{name} of shape {found}: one for each latent")
        return MarkovLatents(self.space, sound_rows(kernels, "a latent's kernel"))


def from_facts(facts: Mapping[str, Any]) -> MarkovFamily:
    """The family that a bank's file names."""
    return MarkovFamily(ContextSpace(facts["vocab_size"], facts["order"]))


def asked_for(spec: Spec, vocab_size: int, prior: object) -> MarkovFamily:
    """`markov(order=2)`."""
    given = spec.take(("order",), order=1)
    order = within(integer(given["order"], "markov: order"), "markov: order", 0, MOST_ORDER)
    return MarkovFamily(ContextSpace(vocab_size, order))


def markov_space(family: object, who: str) -> ContextSpace:
    """The contexts of a Markov family; anything else is refused in the name of `who`."""
    if not isinstance(family, MarkovFamily):
        said = getattr(family, "name", "nothing")
        raise InputError(f"{who}: expected Markov latents, and this model says {said} of its own")
    return family.space


def kernels_of(latents: Latents) -> Float[Tensor, "L C V"]:
    """The tables of Markov latents; others are refused."""
    if not isinstance(latents, MarkovLatents):
        raise InputError(f"{latents.family.name} latents are no kernels: expected Markov latents")
    return latents.kernels


class MarkovTally:
    """Transition counts of rollouts, kept as tokens come, never waiting for the device."""

    def __init__(
        self, space: ContextSpace, n: int, context: tuple[int, ...], device: torch.device
    ) -> None:
        self.space, self.n = space, n
        self._context = torch.zeros(n, dtype=torch.long, device=device)
        for token in context[-space.order :] if space.order else ():
            self._context = (self._context * space.vocab_size + token) % space.n_contexts
        self._known = len(context)
        size = space.n_contexts * space.vocab_size
        self._counts = torch.zeros(n, size, dtype=torch.int32, device=device)
        self._ones = torch.ones(n, 1, dtype=torch.int32, device=device)

    def add(self, tokens: Int[Tensor, "B"]) -> None:
        edges = self._context * self.space.vocab_size + tokens
        if self._known >= self.space.order:
            self._counts.scatter_add_(1, edges[:, None], self._ones)
        self._context = edges % self.space.n_contexts
        self._known += 1

    def counts(self) -> Int[Tensor, "L C V"]:
        return self._counts.view(self.n, self.space.n_contexts, -1).cpu().clone()


@dataclass(frozen=True, eq=False)
class MarkovLatents:
    """L kernels of one order."""

    space: ContextSpace
    kernels: Float[Tensor, "L C V"]

    @property
    def family(self) -> MarkovFamily:
        return MarkovFamily(self.space)

    def __len__(self) -> int:
        return len(self.kernels)

    def tensors(self) -> dict[str, Tensor]:
        """What a bank's file holds of them."""
        return {"kernels": self.kernels}

    def log_likelihood(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K L"]:
        """`sum_cv T(c, v) log kernel(v | c)`, the first `order` tokens only set the context."""
        return log_likelihood(count_transitions(self.space, prompts), self.kernels)

    def mean_utility(
        self, utility: Utility, prompts: Int[Tensor, "K m"], horizon: int
    ) -> Float[Tensor, "K L"]:
        """mu from each prompt's last context."""
        return self.means(utility, horizon)(prompts)

    def means(
        self, utility: Utility, horizon: int
    ) -> Callable[[Int[Tensor, "K m"]], Float[Tensor, "K L"]]:
        """The same, with what many prompts share worked out once."""
        wide = ContextSpace(self.space.vocab_size, max(self.space.order, utility.order))
        kernels = lift(self.space, self.kernels, wide.order)
        of_contexts = utility_of_kernels(utility, wide, kernels, horizon).T
        return lambda prompts: of_contexts[wide.suffix(prompts)]

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        """Each kernel's tokens; what a head lacks of a first context is uniform, as in the paper's
        training data."""
        space, device = self.space, generator.device
        known = torch.tensor(head[max(0, len(head) - space.order) :], dtype=torch.long)
        shape = (len(self), space.order - len(known))
        first = torch.randint(space.vocab_size, shape, generator=generator, device=device)
        start = space.encode(torch.cat([known.to(device).expand(len(self), -1), first], 1))
        rest = max(length - first.shape[1], 0)
        tail = sample_chains(space, self.kernels.to(device), start, rest, generator)
        return torch.cat([first, tail], -1)[:, :length]

    def lifted(
        self,
        order: int,
        head: tuple[int, ...] = (),
        log_weights: Float[Tensor, "L"] | None = None,
    ) -> Lifted:
        """The same latents at a higher order, `log_weights` being what they were weighed by before.

        First contexts that begin with a `head` were read before: transitions within it are no news.
        """
        own = self.space
        require(order >= own.order, f"latents of order {own.order} are not of {order}")
        if order == own.order and log_weights is None:
            return Lifted(own, self.kernels, None)
        space = ContextSpace(own.vocab_size, order)
        firsts = space.decode(torch.arange(space.n_contexts))
        counts = count_transitions(own, firsts)
        if len(head) > own.order:
            behind = (firsts[:, : len(head)] == torch.tensor(head)).all(-1)[:, None, None]
            known = count_transitions(own, torch.tensor(head))
            counts = torch.where(behind, counts - known, counts)
        log_first = log_likelihood(counts, self.kernels)
        if log_weights is not None:
            log_first = log_first + log_weights - log_weights.max()
        return Lifted(space, lift(own, self.kernels, order), log_first.exp().T)


@dataclass(frozen=True, eq=False)
class Lifted:
    """Latents as kernels of a higher order than their own.

    `first_likelihood` is what each latent gives to the tokens of a first context; None where a
    first context says nothing, the order being the latents' own.
    """

    space: ContextSpace
    kernels: Float[Tensor, "L C V"]
    first_likelihood: Float[Tensor, "L C"] | None
