"""All continuations of a prompt, or of several, in one pass of a transformer.

The continuations of `horizon` tokens form a tree; a leaf is never read, so its inner nodes are
`V + .. + V^(horizon - 1)` tokens. They are appended to the prompt behind a mask: a node sees the
prompt and its own ancestors. The prompt is computed once, not once per continuation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from posteer.core.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class TokenTree(ABC):
    """Nodes that hold a token each, and who their ancestors are."""

    tokens: Int[Tensor, "n"]
    depths: Int[Tensor, "n"]
    sees: Bool[Tensor, "n n"]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def deepest(self) -> int:
        return int(self.depths.max()) if len(self) else 0

    def mask(self, prefix: int, device: torch.device) -> Bool[Tensor, "T T"]:
        """Who may attend to whom: a prefix of so many tokens (BOS too), then the nodes."""
        total = prefix + len(self)
        mask = torch.zeros(total, total, dtype=torch.bool, device=device)
        mask[:prefix, :prefix] = torch.ones(prefix, prefix, dtype=torch.bool, device=device).tril()
        mask[prefix:, :prefix] = True
        mask[prefix:, prefix:] = self.sees.to(device)
        return mask

    @abstractmethod
    def join(self, laws: Float[Tensor, "B n1 V"]) -> Float[Tensor, "K Y"]:
        """Log-probabilities of whole continuations from the laws after the prefix and each node."""


@dataclass(frozen=True, eq=False)
class ContinuationTree(TokenTree):
    """The inner nodes, level by level, children of one node side by side."""

    vocab_size: int
    horizon: int

    def join(self, laws: Float[Tensor, "B n1 V"]) -> Float[Tensor, "K Y"]:
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
    """All continuations of `horizon` tokens as one tree, made once."""
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
        torch.tensor(tokens, dtype=torch.long),
        torch.tensor(depths, dtype=torch.long),
        sees,
        vocab_size,
        horizon,
    )


@dataclass(frozen=True, eq=False)
class PromptTree(TokenTree):
    """Some prompts, what they begin with in common once, and the continuations of each.

    `ends[b]` are the nodes (counted from 1, 0 being the empty prefix) of prompt b's last token and
    of its continuations.
    """

    ends: Int[Tensor, "B n1"]
    below: ContinuationTree

    def join(self, laws: Float[Tensor, "B n1 V"]) -> Float[Tensor, "K Y"]:
        ends = laws[:, self.ends.to(laws.device)]  # of the same prompts behind each of B prefixes
        return self.below.join(ends.flatten(0, 1))


def distinct(
    prompts: Int[Tensor, "B m"],
) -> tuple[Int[Tensor, "U m"], Int[Tensor, "B"], Int[Tensor, "U"]]:
    """Distinct prompts in order, which of them each prompt is, and how many first tokens each of
    them has in common with the one before: it has no more with any earlier one."""
    tops, where = prompts.unique(dim=0, return_inverse=True)
    common = (tops[1:] == tops[:-1]).long().cumprod(1).sum(1)
    return tops, where, torch.cat([common.new_zeros(1), common])


def prompt_tree_size(prompts: Int[Tensor, "B m"], vocab_size: int, horizon: int) -> int:
    """Tokens that are read of prompts and all their continuations, common beginnings once."""
    tops, _, common = distinct(prompts)
    return tops.numel() - int(common.sum()) + len(tops) * tree_size(vocab_size, horizon)


def prompt_tree(prompts: Int[Tensor, "B m"], vocab_size: int, horizon: int) -> PromptTree:
    """The tree that holds all prompts and all their continuations."""
    below = continuation_tree(vocab_size, horizon)
    length, k = prompts.shape[1], len(below)
    sees = torch.eye(prompt_tree_size(prompts, vocab_size, horizon), dtype=torch.bool)
    tokens, depths, ends, path, n = [], [], {}, torch.zeros(0, dtype=torch.long), 0
    tops, _, shared = distinct(prompts)
    for top, common in zip(tops, shared.tolist(), strict=True):
        own = n + torch.arange(length - common)
        path = torch.cat([path[:common], own])
        below_first = n + len(own)
        n = below_first + k
        sees[own[:, None], path] = path <= own[:, None]
        sees[below_first:n, path] = True
        sees[below_first:n, below_first:n] = below.sees
        tokens += [top[common:], below.tokens]
        depths += [torch.arange(common, length) + 1, length + below.depths]
        ends[tuple(top.tolist())] = [int(path[-1]) + 1, *range(below_first + 1, n + 1)]
    return PromptTree(
        torch.cat(tokens),
        torch.cat(depths),
        sees,
        torch.tensor([ends[tuple(prompt)] for prompt in prompts.tolist()]),
        below,
    )


def along_paths(
    first: Float[Tensor, "B V"], after: Float[Tensor, "B P n V"], paths: Int[Tensor, "P n"]
) -> Float[Tensor, "B Y"]:
    """Log-probabilities of continuations: the first token's law, then those along each path."""
    if paths.shape[1] == 0:
        return first
    paths = paths.to(first.device)
    total = first[:, paths[:, 0]]
    for at in range(1, paths.shape[1]):
        own = paths[:, at].expand(len(first), -1)[..., None]
        total = total + after[:, :, at - 1].gather(2, own)[..., 0]
    return (total[..., None] + after[:, :, -1]).flatten(1)
