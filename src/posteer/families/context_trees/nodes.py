"""What whole histories say of the nodes they met, all histories at once, from the leaves up.

With `KT(s)` the closed-form marginal of what followed node s, `g` the chance to split and the
product over children,

    P(s) = (1 - g) KT(s) + g prod P(children of s),    P(s) = KT(s) at the greatest depth;

a node that was never met has P = 1, and P of the root is the evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.families.context_trees.law import TreeFamily, TreeLaw


@dataclass(frozen=True, eq=False)
class Level:
    """The nodes of one depth that K histories met: `keys` are `history * V**depth + context`,
    ascending. Token `token[e]` followed node `owner[e]` `times[e]` times. `log_leaf` and
    `log_split` are the two terms of P."""

    keys: Int[Tensor, "n"]
    owner: Int[Tensor, "e"]
    token: Int[Tensor, "e"]
    times: Float[Tensor, "e"]
    log_leaf: Float[Tensor, "n"]
    log_split: Float[Tensor, "n"]

    @property
    def log_weighted(self) -> Float[Tensor, "n"]:
        return torch.logaddexp(self.log_leaf, self.log_split)

    @property
    def log_odds(self) -> Float[Tensor, "n"]:
        """Of being a leaf, given that the tree has the node."""
        return self.log_leaf - self.log_split

    def counts(self, vocab_size: int) -> Float[Tensor, "n V"]:
        """How often each token followed each node."""
        table = self.times.new_zeros(len(self.keys), vocab_size)
        table[self.owner, self.token] = self.times
        return table


def parents(family: TreeFamily, keys: Int[Tensor, "n"], depth: int) -> Int[Tensor, "n"]:
    """The nodes above nodes of a depth: the oldest token is forgotten."""
    above = family.vocab_size ** (depth - 1)
    return keys // (above * family.vocab_size) * above + keys % above


def levels_of(law: TreeLaw, histories: Int[Tensor, "K T"]) -> list[Level]:
    """All nodes that were met, by depth; every root is among them."""
    family = law.family
    vocab, depth = family.vocab_size, family.depth
    rows = torch.arange(len(histories))[:, None]
    length = histories.shape[1] - depth
    followed = histories[:, depth:].flatten()
    met = (rows + torch.zeros(1, max(length, 0), dtype=torch.long)).flatten()
    nodes = [met]
    for d in range(1, depth + 1):
        older = histories[:, depth - d : depth - d + max(length, 0)].flatten()
        before, power = nodes[-1], vocab ** (d - 1)
        nodes.append(before // power * (power * vocab) + older * power + before % power)
    found: list[Level] = []
    for d in range(depth, -1, -1):
        keys = nodes[d].unique() if d else rows[:, 0]
        below = None
        if d < depth:
            child = found[-1]
            below = torch.zeros(len(keys), dtype=torch.float64)
            owner = torch.searchsorted(keys, parents(family, child.keys, d + 1))
            below.index_add_(0, owner, child.log_weighted)
        found.append(_level(law, keys, nodes[d], followed, below))
    return found[::-1]


def _level(
    law: TreeLaw,
    keys: Int[Tensor, "n"],
    nodes: Int[Tensor, "t"],
    followed: Int[Tensor, "t"],
    below: Float[Tensor, "n"] | None,
) -> Level:
    vocab, concentration = law.family.vocab_size, law.concentration
    edges, times = (nodes * vocab + followed).unique(return_counts=True)
    owner = torch.searchsorted(keys, edges // vocab)
    times = times.double()
    visits = torch.zeros(len(keys), dtype=torch.float64).index_add_(0, owner, times)
    rows = math.lgamma(vocab * concentration) - torch.lgamma(vocab * concentration + visits)
    entries = torch.lgamma(concentration + times) - math.lgamma(concentration)
    marginal = rows.index_add(0, owner, entries)
    if below is None:
        never = torch.full_like(marginal, -math.inf)
        return Level(keys, owner, edges % vocab, times, marginal, never)
    leaf, split = law.log_leaf + marginal, law.log_split + below
    return Level(keys, owner, edges % vocab, times, leaf, split)
