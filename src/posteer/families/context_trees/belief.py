"""Exact Bayes token by token: what is kept of a history is what was read, and odds along its paths.

The next-token law mixes the leaf means of the nodes above the present context, deepest first,

    p_d = w_d KT_d + (1 - w_d) p_{d+1},    w_d = sigmoid(log odds of node d to be a leaf),

and after token v the odds of node d have changed by KT_d(v) / p_{d+1}(v). The odds of a node are
those of the last step in its context, its counts what followed it: both are found by comparing the
present context with all that came before, which costs no more than copying the history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.families.context_trees.law import TreeLaw


@dataclass(frozen=True, eq=False)
class Path:
    """The nodes above the present context, the root first; D of them may split."""

    log_odds: Float[Tensor, "B D"]
    leaf: Float[Tensor, "B D1 V"]
    mixed: Float[Tensor, "B D1 V"]
    """What each predicts as a leaf, and all in all."""


@dataclass(frozen=True, eq=False)
class TreeBelief:
    """Histories of one length. `log_odds[:, i]` are those of the nodes that the i-th step past the
    first `depth` tokens went through; column 0 is what is thought of nodes never met."""

    law: TreeLaw
    tokens: Int[Tensor, "B T"]
    log_odds: Float[Tensor, "B n D"]

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        family = self.law.family
        if self.tokens.shape[1] < family.depth:  # the random first context of the process
            shape = (len(self.tokens), family.vocab_size)
            return -self.log_odds.new_full(shape, family.vocab_size).log()
        return self.path.mixed[:, 0].log()

    @property
    def n_numbers(self) -> int:
        """How much is kept of all histories together."""
        return self.tokens.numel() + self.log_odds.numel()

    def select(self, rows: Int[Tensor, "K"]) -> TreeBelief:
        return replace(self, tokens=self.tokens[rows], log_odds=self.log_odds[rows])

    def observe(self, tokens: Int[Tensor, "B"]) -> TreeBelief:
        """The belief after one more token of each history."""
        longer = torch.cat([self.tokens, tokens[:, None]], 1)
        if self.tokens.shape[1] < self.law.family.depth:
            return replace(self, tokens=longer)
        path = self.path
        chosen = tokens[:, None, None]
        leaf = path.leaf[:, :-1].take_along_dim(chosen, 2)[..., 0]
        below = path.mixed[:, 1:].take_along_dim(chosen, 2)[..., 0]
        odds = path.log_odds + leaf.log() - below.log()
        return replace(self, tokens=longer, log_odds=torch.cat([self.log_odds, odds[:, None]], 1))

    @cached_property
    def path(self) -> Path:
        depth, length = self.law.family.depth, self.tokens.shape[1]
        batch, vocab = len(self.tokens), self.law.family.vocab_size
        followed, each = self.tokens[:, depth:], torch.arange(batch)
        columns = torch.arange(self.log_odds.shape[1])
        alike = torch.ones(batch, len(columns), dtype=torch.bool)  # column 0: no step at all
        odds, leaf = [], []
        for d in range(depth + 1):
            if d:
                older = self.tokens[:, depth - d : length - d]
                alike[:, 1:] &= older == self.tokens[:, length - d, None]
            counts = torch.zeros(batch, vocab, dtype=torch.float64)
            counts.scatter_add_(1, followed, alike[:, 1:].double())
            leaf.append(self.law.leaf_mean(counts))
            if d < depth:
                last = (alike * columns).amax(1)
                odds.append(self.log_odds[each, last, d])
        mixed = leaf[-1:]
        for log_odds, own in zip(odds[::-1], leaf[-2::-1], strict=True):
            stays = log_odds[:, None]
            mixed.append(stays.sigmoid() * own + (-stays).sigmoid() * mixed[-1])
        held = torch.stack(odds, 1) if odds else self.log_odds[:, 0]
        return Path(held, torch.stack(leaf, 1), torch.stack(mixed[::-1], 1))


def start(law: TreeLaw, batch: int) -> TreeBelief:
    """The belief after reading nothing."""
    odds = torch.full((batch, 1, law.family.depth), law.log_odds, dtype=torch.float64)
    return TreeBelief(law, torch.zeros(batch, 0, dtype=torch.long), odds)
