"""Continuations of a Polya urn: the mean utility after counts, with the kernel integrated out.

Rows with pseudo-counts a emit `y_1 .. y_N` from context c with probability

    prod_t (a[c_t, y_t] + earlier uses of that edge in y) / (A[c_t] + earlier visits in y),

where how often an edge or context was used earlier depends on y and c alone. Those tables are made
once and serve every prompt, component and replicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from posteer.kernels import ContextSpace
from posteer.shapes import Float, Int
from posteer.steering.posteriors.base import NUMBERS_AT_ONCE


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes of the tree of continuations at one depth, in lexicographic order."""

    edge: Int[Tensor, "Y"]
    edge_uses: Float[Tensor, "Y"]
    context: Int[Tensor, "P"]
    context_visits: Float[Tensor, "P"]


@lru_cache(maxsize=64)
def levels(space: ContextSpace, start: int, horizon: int) -> tuple[Level, ...]:
    """The tree below one context; `context` describes the parents of the nodes of a level."""
    vocab = space.vocab_size
    contexts = torch.full((1, 1), start)  # of each parent, along its path
    edges = torch.zeros(1, 0, dtype=torch.long)
    made = []
    for _ in range(horizon):
        token = torch.arange(vocab).repeat(len(contexts))
        here = contexts[:, -1].repeat_interleave(vocab)
        edge = here * vocab + token
        before = edges.repeat_interleave(vocab, 0)
        made.append(
            Level(
                edge,
                (before == edge[:, None]).sum(1).double(),
                contexts[:, -1],
                (contexts[:, :-1] == contexts[:, -1:]).sum(1).double(),
            )
        )
        after = space.next_context[here, token]
        contexts = torch.cat([contexts.repeat_interleave(vocab, 0), after[:, None]], 1)
        edges = torch.cat([before, edge[:, None]], 1)
    return tuple(made)


def urn_means(
    space: ContextSpace,
    pseudo_counts: Float[Tensor, "K M C V"],
    last: Int[Tensor, "K"],
    values: Float[Tensor, "K Y"],
    horizon: int,
) -> Float[Tensor, "K M"]:
    """Mean of `values[k]`, given on all continuations, under M urns for each of K prompts.

    `last` are contexts of `space`. Backwards down the tree: the mean at a node is that of its
    children, so nothing smaller than a conditional probability is ever multiplied.
    """
    n_prompts, n_urns = pseudo_counts.shape[:2]
    means = pseudo_counts.new_empty(n_prompts, n_urns)
    part = max(1, NUMBERS_AT_ONCE // (n_urns * values.shape[1]))
    for start in last.unique().tolist():
        tree = levels(space, start, horizon)
        for rows in (last == start).nonzero()[:, 0].split(part):
            entries, totals = pseudo_counts[rows].flatten(2), pseudo_counts[rows].sum(-1)
            value = values[rows, None].expand(-1, n_urns, -1)
            for level in reversed(tree):
                gain = (entries[..., level.edge] + level.edge_uses) * value
                total = totals[..., level.context] + level.context_visits
                value = gain.unflatten(-1, (-1, space.vocab_size)).sum(-1) / total
            means[rows] = value[..., 0]
    return means
