"""Draws of context trees, from the roots down: nodes that were met split by their odds."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.context_trees.latents import TreeLatents
from posteer.families.context_trees.law import TreeLaw
from posteer.families.context_trees.nodes import Level
from posteer.families.markov.dirichlet import sample_rows

MOST_NUMBERS = 2**27
"""Of all leaves of all trees that are drawn at once."""


def grow(
    law: TreeLaw, met: list[Level], n: int, stream: np.random.Generator, head: tuple[int, ...]
) -> TreeLatents:
    """Trees of the posterior after the one history whose nodes are given."""
    vocab, depth = law.family.vocab_size, law.family.depth
    contexts = torch.zeros(n, dtype=torch.long)
    below: list[Tensor] = []
    laws: list[Tensor] = []
    n_nodes, n_leaves = n, 0
    for d, level in enumerate(met):
        log_odds, counts = _found(law, level, contexts, math.inf if d == depth else law.log_odds)
        splits = torch.from_numpy(stream.random(len(contexts))) < (-log_odds).sigmoid()
        laws.append(sample_rows(counts[~splits] + law.concentration, stream))
        pointers = torch.empty_like(contexts)
        pointers[splits] = n_nodes + vocab * torch.arange(int(splits.sum()))
        pointers[~splits] = -1 - n_leaves - torch.arange(len(laws[-1]))
        below.append(pointers)
        n_leaves += len(laws[-1])
        n_nodes += vocab * int(splits.sum())
        require(
            n_nodes * vocab <= MOST_NUMBERS,
            f"context-tree: {n} trees of more than {n_nodes // n} nodes each do not fit: expected "
            f"at most {MOST_NUMBERS // vocab} nodes in all: draw fewer, or lower split",
        )
        older = torch.arange(vocab) * vocab**d
        contexts = (contexts[splits][:, None] + older).flatten()
    return TreeLatents(law.family, torch.arange(n), torch.cat(below), torch.cat(laws), head)


def _found(
    law: TreeLaw, level: Level, contexts: Int[Tensor, "F"], unmet: float
) -> tuple[Float[Tensor, "F"], Float[Tensor, "F V"]]:
    """Log odds to be a leaf, and counts, of nodes that were met or not."""
    place = torch.searchsorted(level.keys, contexts)
    known = torch.cat([level.keys, level.keys.new_full((1,), -1)])
    place = torch.where(known[place] == contexts, place, len(level.keys))
    counts = level.counts(law.family.vocab_size)
    empty = counts.new_zeros(1, law.family.vocab_size)
    log_odds = torch.cat([level.log_odds, counts.new_full((1,), unmet)])
    return log_odds[place], torch.cat([counts, empty])[place]
