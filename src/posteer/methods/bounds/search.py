"""Best first: the node with the largest bound is split, until nothing open can be better.

A node is the end of a prompt; it is split by the token before it. Every prompt that is not yet
ruled out ends in an open node, so the largest bound among those is one for all prompts, at any
time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Bool, Float, Int, Progress
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.families.finite_state.suffixes import Nodes, Suffixes
from posteer.methods.answers import StopReason
from posteer.methods.bounds.odds import SLACK, Odds, whole_values
from posteer.tokens.conditions import AllowedPrompts

MOST_HELD = 2**26
"""Numbers that open nodes may hold."""

MOST_AT_ONCE = 4096

FAINTEST = 1e-150
"""Chance of a node under a latent, against the latent it is likeliest under, down to which it is
split: further on numbers would end."""


@dataclass(frozen=True)
class Limits:
    """A search stops once the bound is within `gap` of the best, or after so many nodes or
    seconds."""

    gap: float
    nodes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Proven:
    """The best prompt, its J, and what no prompt exceeds; `nodes` were bounded for it."""

    prompt: Int[Tensor, "m"]
    value: float
    bound: float
    nodes: int
    stop_reason: StopReason


@dataclass
class _Open:
    """Nodes that may still hold a better prompt."""

    nodes: Nodes
    tokens: Int[Tensor, "K m"]
    depth: Int[Tensor, "K"]
    bound: Float[Tensor, "K"]

    def select(self, rows: Tensor) -> _Open:
        return _Open(self.nodes.select(rows), self.tokens[rows], self.depth[rows], self.bound[rows])

    def joined(self, others: list[_Open]) -> _Open:
        every = [self, *others]
        return _Open(
            Nodes(*(torch.cat([getattr(one.nodes, name) for one in every]) for name in FIELDS)),
            torch.cat([one.tokens for one in every]),
            torch.cat([one.depth for one in every]),
            torch.cat([one.bound for one in every]),
        )


FIELDS = ("contexts", "chance", "gain")


class BranchAndBound:
    """One search over prompts of a length."""

    def __init__(
        self,
        suffixes: Suffixes,
        log_weights: Float[Tensor, "J"],
        length: int,
        allowed: AllowedPrompts | None,
        limits: Limits,
        progress: Progress | None = None,
    ) -> None:
        self.suffixes, self.log_weights, self.length = suffixes, log_weights, length
        self.allowed, self.limits, self.progress = allowed, limits, progress
        self.odds = Odds(suffixes, log_weights, length)
        vocab = suffixes.vocab_size
        every = torch.ones(length, vocab, dtype=torch.bool)
        self.mask = every if allowed is None else allowed.token_mask(length)
        self.nodes = 0

    def run(self, prompt: Int[Tensor, "m"], value: float) -> Proven:
        """From a prompt that is known, and its J, to a proof of how good it is."""
        self.prompt, self.value = prompt, value
        started = time.perf_counter()
        first = self._roots()
        width = first.nodes.chance.shape[1] * first.nodes.chance.shape[2]
        at_once = max(1, min(MOST_AT_ONCE, NUMBERS_AT_ONCE // (width * len(self.log_weights))))
        frontier, reason = first, StopReason.PROVEN
        try:
            while len(frontier.bound):
                bound = float(frontier.bound.max())
                if bound - self.value <= self.limits.gap:
                    break
                full = len(frontier.bound) * width > MOST_HELD
                if self.nodes >= self.limits.nodes or full or _faint(frontier.nodes):
                    reason = StopReason.NODE_LIMIT
                    break
                if time.perf_counter() - started > self.limits.seconds:
                    reason = StopReason.TIME_LIMIT
                    break
                if self.progress is not None:
                    done = min(self.nodes, self.limits.nodes)
                    self.progress("bounding prompts", done, self.limits.nodes)
                frontier = self.split(frontier, at_once)
        except KeyboardInterrupt:
            reason = StopReason.INTERRUPTED
        left = float(frontier.bound.max()) if len(frontier.bound) else self.value
        return Proven(self.prompt, self.value, max(left, self.value), self.nodes, reason)

    def _roots(self) -> _Open:
        nodes, memory, vocab = self.suffixes.roots(), self.suffixes.memory, self.suffixes.vocab_size
        tokens = torch.zeros(len(nodes), self.length, dtype=torch.long)
        places = vocab ** torch.arange(memory - 1, -1, -1)
        tokens[:, self.length - memory :] = nodes.contexts[:, None] // places % vocab
        own = torch.arange(self.length - memory, self.length)
        permitted = self.mask[own, tokens[:, own]].all(-1)
        depth = torch.full((len(nodes),), memory)
        most = torch.full((len(nodes),), torch.inf, dtype=torch.float64)
        return self._bounded(_Open(nodes, tokens, depth, most).select(permitted))

    def split(self, frontier: _Open, at_once: int) -> _Open:
        """The most promising nodes replaced by what they are made of."""
        order = frontier.bound.argsort(descending=True)
        chosen, rest = frontier.select(order[:at_once]), frontier.select(order[at_once:])
        children = []
        for token in range(self.suffixes.vocab_size):
            place = self.length - chosen.depth - 1
            parents = chosen.select(self.mask[place, token])
            if not len(parents.bound):
                continue
            depth, tokens = parents.depth + 1, parents.tokens.clone()
            tokens[torch.arange(len(tokens)), self.length - depth] = token
            nodes = self.suffixes.before(parents.nodes, token)
            children.append(self._bounded(_Open(nodes, tokens, depth, parents.bound)))
        return self._above(rest.joined(children))

    def _bounded(self, grown: _Open) -> _Open:
        """Nodes with bounds of their own, no larger than those they had; whole prompts are tried
        instead, and what is not better than the best is left out."""
        self.nodes += len(grown.bound)
        whole = grown.depth == self.length
        if bool(whole.any()):
            self._try(grown.select(whole))
        inner = grown.select(~whole)
        bounds = inner.bound.clone()
        for depth in inner.depth.unique().tolist():
            rows = (inner.depth == depth).nonzero()[:, 0]
            some = inner.nodes.select(rows)
            most = torch.minimum(inner.bound[rows], _largest(some))
            most = most.clamp(min=self.value)
            bounds[rows] = self.odds.bounds(some, self.length - depth, self.value, most)
        slack = SLACK * bounds.abs().clamp(min=1.0)
        inner.bound = torch.minimum(inner.bound, bounds + slack)
        return self._above(inner)

    def _above(self, some: _Open) -> _Open:
        return some.select(some.bound > self.value + 2 * SLACK * max(1.0, abs(self.value)))

    def _try(self, whole: _Open) -> None:
        values = whole_values(self.suffixes, whole.nodes, self.log_weights)
        if self.allowed is not None:
            values = values.masked_fill(~self._allows(whole.tokens), -torch.inf)
        best = int(values.argmax())
        if float(values[best]) > self.value:
            self.value, self.prompt = float(values[best]), whole.tokens[best]

    def _allows(self, tokens: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        assert self.allowed is not None
        return self.allowed.allows(tokens)


def _largest(nodes: Nodes) -> Float[Tensor, "K"]:
    """The largest mean utility of any latent in any state that is left open."""
    ratio = nodes.gain / nodes.chance
    return ratio.masked_fill(nodes.chance <= 0, -torch.inf).amax((1, 2))


def _faint(nodes: Nodes) -> bool:
    """Whether some latent is all but ruled out by the end of a prompt."""
    largest = nodes.chance.amax(-1)
    return bool(((largest > 0) & (largest < FAINTEST)).any())
