"""Context-tree weighting: exact Bayes over all trees up to a depth, by name `context-tree`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, integer, number, require
from posteer.core.limits import NUMBERS_IN_PASSING
from posteer.families.context_trees.belief import TreeBelief, start
from posteer.families.context_trees.growing import grow
from posteer.families.context_trees.latents import TreeLatents
from posteer.families.context_trees.law import LOG_NUMBERS, MOST_VOCAB, TreeFamily, TreeLaw
from posteer.families.context_trees.nodes import levels_of
from posteer.families.context_trees.posterior import PosteriorTree, posterior_tree
from posteer.families.markov.dirichlet import checked


@dataclass(frozen=True, eq=False)
class ContextTreePrior:
    """A law of context trees, after a context if there is one.

    >>> from posteer.families.registry import open_process
    >>> tree = open_process("context-tree(vocab=2,depth=2)").posterior_tree([0, 1] * 10)
    >>> [(list(leaf), round(float(law[1]), 2)) for leaf, law in tree.best_leaves.items()]
    [([0], 0.95), ([1], 0.05)]
    """

    law: TreeLaw
    context: tuple[int, ...] = ()

    @property
    def family(self) -> TreeFamily:
        return self.law.family

    @property
    def spec(self) -> str:
        law, family = self.law, self.family
        return (
            f"context-tree(vocab={family.vocab_size},depth={family.depth},split={law.split},"
            f"concentration={law.concentration})"
        )

    def width(self, n_tokens: int) -> int:
        """Numbers that the belief of a history takes, and the step that makes the next."""
        tokens = len(self.context) + n_tokens
        return (self.family.depth + 4) * (tokens + 2 * self.family.vocab_size)

    def sample(self, n: int, stream: np.random.Generator) -> TreeLatents:
        met = levels_of(self.law, torch.tensor([self.context], dtype=torch.long))
        return grow(self.law, met, n, stream, self.context)

    @cached_property
    def _known(self) -> TreeBelief:
        belief = start(self.law, 1)
        for token in self.context:
            belief = belief.observe(torch.tensor([token]))
        return belief

    def start(self, batch: int) -> TreeBelief:
        return self._known.select(torch.zeros(batch, dtype=torch.long))

    def observe(self, belief: TreeBelief, tokens: Int[Tensor, "B"]) -> TreeBelief:
        return belief.observe(tokens)

    def evidence(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """Given the first `depth` tokens, of which no tree says anything."""
        parts = prompts.split(max(1, NUMBERS_IN_PASSING // self.width(prompts.shape[1])))
        head = torch.tensor([self.context], dtype=torch.long)
        known = levels_of(self.law, head)[0].log_weighted
        whole = (torch.cat([head.expand(len(some), -1), some], 1) for some in parts)
        return torch.cat([levels_of(self.law, some)[0].log_weighted for some in whole]) - known

    def after(self, tokens: tuple[int, ...]) -> ContextTreePrior:
        return replace(self, context=(*self.context, *tokens))

    def posterior_tree(self, tokens: Sequence[int] = ()) -> PosteriorTree:
        """The posterior of the tree after the context and these tokens."""
        read = torch.tensor([[*self.context, *tokens]], dtype=torch.long)
        fits = bool(((read >= 0) & (read < self.family.vocab_size)).all())
        require(fits, f"tokens: expected 0 to {self.family.vocab_size - 1}")
        return posterior_tree(self.law, levels_of(self.law, read))


def from_spec(spec: Spec) -> ContextTreePrior:
    """`context-tree(vocab=2,depth=3,split=0.5,concentration=0.5)`."""
    given = spec.take(vocab=2, depth=3, split=0.5, concentration=0.5)
    vocab = integer(given["vocab"], "context-tree: vocab")
    depth = integer(given["depth"], "context-tree: depth")
    split = number(given["split"], "context-tree: split")
    concentration = number(given["concentration"], "context-tree: concentration")
    fits = 2 <= vocab <= MOST_VOCAB
    require(fits, f"context-tree: vocabulary of {vocab}: expected 2 to {MOST_VOCAB}")
    require(depth >= 0, f"context-tree: depth {depth}: expected at least 0")
    most = int(LOG_NUMBERS / math.log2(vocab)) - 1
    require(
        depth <= most, f"context-tree: depth {depth} over {vocab} tokens: expected at most {most}"
    )
    require(0 <= split <= 1, f"context-tree: split {split:g}: expected 0 to 1")
    checked(torch.tensor([concentration], dtype=torch.float64), "context-tree")
    return ContextTreePrior(TreeLaw(TreeFamily(vocab, depth), split, concentration))
