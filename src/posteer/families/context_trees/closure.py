"""Context trees as machines: leaves that tell, with the next token, which leaf comes next.

From leaf u token v leads to a leaf of the same tree if whatever splits is still a split when its
newest token is forgotten. Splits that lack this are added, one depth after another; the leaves they
divide keep their laws. All trees together are then one machine of which each has its own states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.families.context_trees.law import TreeFamily
from posteer.families.context_trees.nodes import parents
from posteer.families.finite_state.unifilar import UnifilarLatents
from posteer.goals.protocol import Utility


def descend(
    family: TreeFamily, below: Int[Tensor, "N"], nodes: Int[Tensor, "..."], contexts: Tensor
) -> Int[Tensor, "..."]:
    """The row of the leaf that each context has under each node; the two broadcast."""
    nodes, contexts = torch.broadcast_tensors(nodes, contexts)
    for _ in range(family.depth):
        first = below[nodes]
        nodes = torch.where(first >= 0, first + contexts % family.vocab_size, nodes)
        contexts = contexts // family.vocab_size
    return -1 - below[nodes]


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees by their roots; `below` and `laws` as the latents have them."""

    family: TreeFamily
    roots: Int[Tensor, "R"]
    below: Int[Tensor, "N"]
    laws: Float[Tensor, "M V"]

    def split(self, n_parts: int) -> list[Trees]:
        return [replace(self, roots=some) for some in self.roots.chunk(n_parts)]


@dataclass(frozen=True, eq=False)
class TreeValues:
    """The mean utility of what follows each leaf of closed trees, by the last tokens that the
    utility reads; tree i has node i as its root."""

    family: TreeFamily
    n_trees: int
    below: Int[Tensor, "N"]
    values: Float[Tensor, "C S"]

    def after(self, contexts: Int[Tensor, "U"], last: Int[Tensor, "U"]) -> Float[Tensor, "U R"]:
        """By every tree after each context."""
        roots = torch.arange(self.n_trees)
        return self.values[
            last[:, None], descend(self.family, self.below, roots, contexts[:, None])
        ]


def tree_values(trees: Trees, utility: Utility, horizon: int) -> Iterator[TreeValues]:
    """For as many trees at once as keep to the working set."""
    vocab, n_trees = trees.family.vocab_size, len(trees.roots)
    form = utility.finite_state(vocab, horizon)
    remembered = vocab**horizon if form is None else len(form.final)
    numbers = len(trees.below) * max(vocab, remembered * vocab**utility.order)
    for some in trees.split(max(1, min(n_trees, numbers // NUMBERS_AT_ONCE))):
        below, machine = closed(some)
        values = machine.values(utility, horizon)[:, 0]
        yield TreeValues(trees.family, len(some.roots), below, values)


def closed(trees: Trees) -> tuple[Int[Tensor, "N"], UnifilarLatents]:
    """The nodes of the closed trees, and all of them as one machine."""
    family = trees.family
    splits = _closed_splits(family, _splits(trees))
    below, tree, contexts = _as_pointers(family, len(trees.roots), splits)
    leaf = below < 0
    below[leaf] = -1 - torch.arange(int(leaf.sum()))
    tree, contexts = tree[leaf], contexts[leaf]
    emission = trees.laws[descend(family, trees.below, trees.roots[tree], contexts)]
    longer = contexts[:, None] * family.vocab_size + torch.arange(family.vocab_size)
    following = descend(family, below, tree[:, None], longer)
    return below, UnifilarLatents(_by_token(emission)[None], _by_token(following))


def _by_token(table: Tensor) -> Tensor:
    """The same table, the column of each token in one piece: values are worked out by tokens."""
    return table.T.contiguous().T


def _children(family: TreeFamily, keys: Int[Tensor, "n"], depth: int) -> Int[Tensor, "n V"]:
    """The keys `tree * V**depth + context` of the nodes below nodes of a depth."""
    power = family.vocab_size**depth
    older = torch.arange(family.vocab_size) * power
    return (keys // power * (power * family.vocab_size) + keys % power)[:, None] + older


def _splits(trees: Trees) -> list[Tensor]:
    """The nodes of each depth that split."""
    family, nodes = trees.family, trees.roots
    keys, found = torch.arange(len(nodes)), []
    for depth in range(family.depth):
        first = trees.below[nodes]
        inner = first >= 0
        found.append(keys[inner])
        nodes = (first[inner][:, None] + torch.arange(family.vocab_size)).flatten()
        keys = _children(family, keys[inner], depth).flatten()
    return found


def _closed_splits(family: TreeFamily, splits: list[Tensor]) -> list[Tensor]:
    """With whatever a split leaves when its oldest or its newest token is forgotten."""
    closed = list(splits)
    for depth in range(len(splits) - 1, 0, -1):
        keys = closed[depth]
        shorter = [closed[depth - 1], parents(family, keys, depth), keys // family.vocab_size]
        closed[depth - 1] = torch.cat(shorter).unique()
    return [keys.unique() for keys in closed]


def _as_pointers(
    family: TreeFamily, n_trees: int, splits: list[Tensor]
) -> tuple[Int[Tensor, "N"], Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Each node's first child or -1, its tree and its context."""
    vocab = family.vocab_size
    keys = torch.arange(n_trees)
    tree, contexts, first = [keys], [torch.zeros_like(keys)], 0
    below = torch.full((n_trees + vocab * sum(map(len, splits)),), -1)
    for depth, inner in enumerate(splits):
        where = inner
        if depth:
            row = torch.searchsorted(splits[depth - 1], parents(family, inner, depth))
            where = first + row * vocab + inner // vocab ** (depth - 1) % vocab
        first += len(keys)
        below[where] = first + vocab * torch.arange(len(inner))
        keys = _children(family, inner, depth).flatten()
        power = vocab ** (depth + 1)
        tree.append(keys // power)
        contexts.append(keys % power)
    return below, torch.cat(tree), torch.cat(contexts)
