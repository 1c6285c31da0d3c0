"""The law of context trees: who splits, and what a leaf emits.

A node is what was read last, up to `depth` tokens; its children know one older token. A node above
`depth` splits with probability `split`, at `depth` none does. Each leaf has a law of its own,
Dirichlet with equal concentrations (1/2 is Krichevsky and Trofimov's). The first `depth` tokens of
a sequence are uniform and say nothing, as those of the Markov priors.

Contexts are numbered as in `tokens.contexts`: base V, the newest token last. The node of depth d
above a context is its number modulo V**d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from posteer.core import Float

LOG_NUMBERS = 39
"""Base-2 logarithm of how many edges a tree may have: times the latents of a bank, they are
numbered within 64 bits."""

MOST_VOCAB = 2**19


@dataclass(frozen=True)
class TreeFamily:
    """Context trees over a vocabulary."""

    vocab_size: int
    depth: int

    @property
    def name(self) -> str:
        return "context-tree"

    @property
    def order(self) -> int:
        return self.depth


@dataclass(frozen=True)
class TreeLaw:
    """A law of context trees with their leaves."""

    family: TreeFamily
    split: float
    concentration: float

    @property
    def log_leaf(self) -> float:
        """Of a node above the greatest depth, not to split."""
        return math.log1p(-self.split) if self.split < 1 else -math.inf

    @property
    def log_split(self) -> float:
        return math.log(self.split) if self.split > 0 else -math.inf

    @property
    def log_odds(self) -> float:
        """Of being a leaf, for a node that was never met."""
        return self.log_leaf - self.log_split

    def leaf_mean(self, counts: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """The mean law of leaves that emitted these counts."""
        weights = counts + self.concentration
        return weights / weights.sum(-1, keepdim=True)
