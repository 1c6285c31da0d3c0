"""The posterior of the tree itself: how likely each node is in it, a leaf of it, and the best tree.

The best tree maximises the posterior. Where a history never came nothing speaks for or against a
split, and nothing is listed; the best tree's probability counts these parts as the prior likes them
best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float
from posteer.families.context_trees.law import TreeLaw
from posteer.families.context_trees.nodes import Level, parents


@dataclass(frozen=True, eq=False)
class TreeNode:
    """A node that was met; `in_tree` and `leaf` are posterior probabilities, `law` its mean law if
    it is a leaf, `best` whether it is a leaf of the best tree."""

    context: tuple[int, ...]
    counts: Float[Tensor, "V"]
    in_tree: float
    leaf: float
    law: Float[Tensor, "V"]
    best: bool

    @property
    def split(self) -> float:
        """That it is in the tree and splits."""
        return max(self.in_tree - self.leaf, 0.0)


@dataclass(frozen=True, eq=False)
class PosteriorTree:
    """All nodes that a history met, by their tokens, the oldest first."""

    nodes: Mapping[tuple[int, ...], TreeNode]
    log_evidence: float
    log_best: float
    """Log posterior probability of the best tree."""

    @property
    def best_leaves(self) -> dict[tuple[int, ...], Float[Tensor, "V"]]:
        """The leaves of the best tree that were met, with their mean laws."""
        return {context: node.law for context, node in self.nodes.items() if node.best}


def posterior_tree(law: TreeLaw, met: list[Level]) -> PosteriorTree:
    """Of the one history whose nodes are given."""
    best = _best_values(law, met)
    nodes: dict[tuple[int, ...], TreeNode] = {}
    in_tree = torch.ones(1, dtype=torch.float64)
    in_best = torch.ones(1, dtype=torch.bool)
    for depth, level in enumerate(met):
        if depth:
            before = met[depth - 1]
            above = torch.searchsorted(before.keys, parents(law.family, level.keys, depth))
            in_tree = (in_tree * (-before.log_odds).sigmoid())[above]
            in_best = (in_best & (before.log_leaf < best[depth - 1]))[above]
        is_leaf = level.log_leaf >= best[depth]
        counts = level.counts(law.family.vocab_size)
        rows = zip(
            level.keys.tolist(),
            counts,
            in_tree.tolist(),
            (in_tree * level.log_odds.sigmoid()).tolist(),
            law.leaf_mean(counts),
            (in_best & is_leaf).tolist(),
            strict=True,
        )
        for key, *node in rows:
            context = _tokens(key, law.family.vocab_size, depth)
            nodes[context] = TreeNode(context, *node)
    evidence = float(met[0].log_weighted)
    return PosteriorTree(nodes, evidence, float(best[0]) - evidence)


def _best_values(law: TreeLaw, met: list[Level]) -> list[Tensor]:
    """Log of the best tree below each node, with its data."""
    vocab, depth = law.family.vocab_size, law.family.depth
    unmet, values = 0.0, [met[depth].log_leaf]
    for d in range(depth - 1, -1, -1):
        above = torch.searchsorted(met[d].keys, parents(law.family, met[d + 1].keys, d + 1))
        # All children count as never met, and those that were are put right.
        below = torch.full_like(met[d].log_leaf, law.log_split + vocab * unmet)
        below.index_add_(0, above, values[-1] - unmet)
        values.append(torch.maximum(met[d].log_leaf, below))
        unmet = max(law.log_leaf, law.log_split + vocab * unmet)
    return values[::-1]


def _tokens(context: int, vocab: int, depth: int) -> tuple[int, ...]:
    return tuple(context // vocab**at % vocab for at in range(depth - 1, -1, -1))
