"""All continuations of a prompt in one pass of a transformer.

The continuations of `horizon` tokens form a tree; a leaf is never read, so its inner nodes are
`V + .. + V^(horizon - 1)` tokens. They are appended to the prompt behind a mask: a node sees the
prompt and its own ancestors. The prompt is computed once, not once per continuation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from posteer.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class ContinuationTree:
    """The inner nodes, level by level, children of one node side by side."""

    vocab_size: int
    horizon: int
    tokens: Int[Tensor, "n"]
    depths: Int[Tensor, "n"]
    sees: Bool[Tensor, "n n"]

    def __len__(self) -> int:
        return len(self.tokens)

    def mask(self, prefix: int, device: torch.device) -> Bool[Tensor, "T T"]:
        """Who may attend to whom: a prefix of so many tokens (BOS too), then the nodes."""
        total = prefix + len(self)
        mask = torch.zeros(total, total, dtype=torch.bool, device=device)
        mask[:prefix, :prefix] = torch.ones(prefix, prefix, dtype=torch.bool, device=device).tril()
        mask[prefix:, :prefix] = True
        mask[prefix:, prefix:] = self.sees.to(device)
        return mask

    def join(self, laws: Float[Tensor, "B n1 V"]) -> Float[Tensor, "B Y"]:
        """Log-probabilities of whole continuations from the laws after the prompt and each node."""
        total, at = laws[:, 0], 1
        for depth in range(1, self.horizon):
            n = self.vocab_size**depth
            total = (total[..., None] + laws[:, at : at + n]).flatten(1)
            at += n
        return total


def tree_size(vocab_size: int, horizon: int) -> int:
    """How many tokens of continuations must be read after a prompt."""
    return sum(vocab_size**depth for depth in range(1, horizon))


@cache
def continuation_tree(vocab_size: int, horizon: int) -> ContinuationTree:
    tokens, depths, parents = [], [], []
    before, first = [-1], 0
    for depth in range(1, horizon):
        level = [(parent, token) for parent in before for token in range(vocab_size)]
        tokens += [token for _, token in level]
        parents += [parent for parent, _ in level]
        depths += [depth] * len(level)
        before, first = list(range(first, first + len(level))), first + len(level)
    sees = torch.eye(len(tokens), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] |= sees[parent]
    return ContinuationTree(
        vocab_size,
        horizon,
        torch.tensor(tokens, dtype=torch.long),
        torch.tensor(depths, dtype=torch.long),
        sees,
    )
