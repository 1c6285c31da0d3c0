"""Boxes of transition counts, narrowed to what a prompt's walk over contexts can be."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from posteer.core import Bool, Float, Int
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.prompt_classes import begins_as
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace, count_transitions

ROUNDS = 4
"""Times that boxes are narrowed, each by what the one before gave."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Counts from `lo` to `hi` of prompts that end in `last`; at most `most` from each context.
    Each has its bound, and the entry and count to split it at: -1 if there is nothing to split."""

    last: Int[Tensor, "K"]
    lo: Float[Tensor, "K C V"]
    hi: Float[Tensor, "K C V"]
    most: Float[Tensor, "K C"]
    bound: Float[Tensor, "K"]
    entry: Int[Tensor, "K"]
    cut: Float[Tensor, "K"]

    def __len__(self) -> int:
        return len(self.last)

    def select(self, rows: Tensor) -> Boxes:
        """Some of them."""
        return Boxes(*(getattr(self, one.name)[rows] for one in fields(self)))

    @staticmethod
    def join(parts: list[Boxes]) -> Boxes:
        """All of them."""
        return Boxes(
            *(torch.cat([getattr(part, one.name) for part in parts]) for one in fields(Boxes))
        )


@dataclass(frozen=True, eq=False)
class Walks:
    """What the counts of prompts of a length can be, behind what a prior has read. `order` is how
    many of their last tokens are told apart, at least that of the prior."""

    prior: DirichletRows
    length: int
    order: int
    allowed: AllowedPrompts | None

    @property
    def steps(self) -> int:
        """Transitions of a prompt."""
        return len(self.prior.head) + self.length - self.prior.space.order

    def whole(self) -> Boxes:
        """All prompts, by what they end in."""
        space, lasts = self.prior.space, self.lasts()
        n = len(lasts)
        most = torch.full((n, space.n_contexts, space.vocab_size), float(self.steps)).double()
        if self.allowed is not None:
            most = most.minimum(self.allowed.token_mask(self.length).sum(0).double())
        none = torch.full((n,), torch.inf, dtype=torch.float64)
        least = torch.zeros_like(most)
        return Boxes(lasts, least, most, most.sum(-1), none, torch.full((n,), -1), none)

    def endings(self, lasts: Int[Tensor, "K"]) -> tuple[Float[Tensor, "K C V"], Int[Tensor, "K"]]:
        """The transitions that last tokens are themselves, and the contexts these begin in."""
        space = self.prior.space
        own = min(self.order, self.steps + space.order)
        tokens = ContextSpace(space.vocab_size, self.order).decode(lasts)[:, self.order - own :]
        return count_transitions(space, tokens), space.encode(tokens[:, : space.order])

    def lasts(self) -> Int[Tensor, "K"]:
        """The last tokens that a prompt may have, as contexts of the order."""
        vocab, context = self.prior.space.vocab_size, self.prior.context
        contexts = torch.arange(vocab**self.order)
        good = torch.ones(len(contexts), dtype=torch.bool)
        mask = None if self.allowed is None else self.allowed.token_mask(self.length)
        for back in range(1, self.order + 1):
            tokens = contexts // vocab ** (back - 1) % vocab
            if back > self.length:
                good &= tokens == context[self.length - back]
            elif mask is not None:
                good &= mask[self.length - back][tokens]
        return contexts[good]

    def narrowed(self, boxes: Boxes) -> Boxes:
        """Boxes less what no walk can have; those with nothing left are gone.

        The walk that is asked about is the one up to the last tokens.
        """
        space = self.prior.space
        ending, before = self.endings(boxes.last)
        n_steps = self.steps - ending.sum((1, 2))[:, None]
        first = begins_as(space, self.prior.head, self.length, self.allowed).double()
        must = first if first.sum() == 1 else torch.zeros_like(first)
        last = torch.nn.functional.one_hot(before, space.n_contexts).double()
        lo = (boxes.lo - ending).clamp(min=0).flatten(1)
        hi = (boxes.hi - ending).flatten(1)
        inward = space.incoming
        outward = torch.arange(lo.shape[1]).view(space.n_contexts, -1)
        for _ in range(ROUNDS):
            hi = hi.where(self._led_out_of(hi.view(boxes.hi.shape), last), hi.clamp(max=0))
            for own, other, more, less in (
                (outward, inward, first - last, must - last),
                (inward, outward, last - must, last - first),
            ):
                low, high = lo[:, own].sum(-1), hi[:, own].sum(-1)
                top = high.minimum(hi[:, other].sum(-1) + more)
                top = top.minimum(n_steps - (low.sum(-1, keepdim=True) - low))
                bottom = low.maximum(lo[:, other].sum(-1) + less)
                bottom = bottom.maximum(n_steps - (high.sum(-1, keepdim=True) - high))
                at_most = (top - low)[..., None] + lo[:, own]
                at_least = (bottom - high)[..., None] + hi[:, own]
                hi, lo = hi.clone(), lo.clone()
                hi[:, own] = hi[:, own].minimum(at_most)
                lo[:, own] = lo[:, own].maximum(at_least)
                if own is outward:
                    most = top
        left = (lo <= hi).all(-1).nonzero().flatten()
        low, high = (table.view_as(ending) + ending for table in (lo, hi))
        most = most + ending.sum(-1)
        found = Boxes(boxes.last, low, high, most, boxes.bound, boxes.entry, boxes.cut)
        return found.select(left)

    def _led_out_of(
        self, hi: Float[Tensor, "K C V"], last: Float[Tensor, "K C"]
    ) -> Bool[Tensor, "K E"]:
        """Whether the last context can be reached after a transition."""
        after, open_to = self.prior.space.next_context, hi > 0
        good, found = last > 0, -1
        while found < (found := int(good.sum())):
            good = good | (good[:, after] & open_to).any(-1)
        return good[:, after].flatten(1)
