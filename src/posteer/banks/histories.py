"""When two histories are alike: the covariance of what a model says after them.

Language models copy what followed the same tokens before, and heed what is recent. So histories are
alike if predictors that do just that agree on them (`experts`: for each order, what followed
earlier occurrences of the last tokens), and if they end alike (`endings`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int

PAD = -1
"""Stands before the first token of a shorter history."""

MOST_EXPERT = 4
"""The longest ending whose earlier occurrences are looked up."""

MOST_LOST = 0.8
"""What is lost of the likeness of two endings by another last token."""

HALF = 0.5
"""Count that every token begins with, as in Krichevsky and Trofimov."""


def padded(histories: Int[Tensor, "K T"], width: int) -> Int[Tensor, "K W"]:
    """Histories aligned at their ends."""
    missing = max(0, width - histories.shape[1])
    return torch.nn.functional.pad(histories, (missing, 0), value=PAD)


def experts(histories: Int[Tensor, "K W"], vocab_size: int) -> Float[Tensor, "K F"]:
    """Centred log-laws of the predictors of orders 0 to `MOST_EXPERT`, and the log of the length.

    >>> experts(torch.tensor([[0, 1, 0, 1, 0]]), 2)[0, 3:5].sign().tolist()
    [-1.0, 1.0]
    """
    width = histories.shape[1]
    known = histories != PAD
    found = [known.sum(1, keepdim=True).double().log1p()]
    follower = torch.nn.functional.one_hot(histories.clamp(min=0), vocab_size).double()
    alike = known.clone()  # whether what stands before a place is what the history ends with
    for order in range(min(MOST_EXPERT, width) + 1):
        if order > 0:
            earlier = torch.nn.functional.pad(histories[:, :-order], (order, 0), value=PAD)
            alike = alike & (earlier == histories[:, [-order]]) & (earlier != PAD)
        counts = (alike[..., None] * follower).sum(1) + HALF
        log_law = counts.log()
        found.append(log_law - log_law.mean(-1, keepdim=True))
    return torch.cat(found, 1)


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """A covariance of histories: a constant, and terms linear and local in what experts say, and
    one of common endings. `noise` is the variance that no history explains of another."""

    linear: float = 1.0
    local: float = 1.0
    endings: float = 1.0
    reach: float = 0.85
    noise: float = 0.05

    def between(
        self, one: Points, other: Points, scale: Float[Tensor, "F"]
    ) -> Float[Tensor, "K J"]:
        """The covariance of two sets of histories, features being divided by `scale`."""
        a, b = one.features / scale, other.features / scale
        size = a.shape[1]
        total = 1 + self.linear * (a @ b.T) / size
        total += self.local * (-(torch.cdist(a, b) ** 2) / (2 * size)).exp()
        return total + self.endings * self._endings(one, other)

    def _endings(self, one: Points, other: Points) -> Float[Tensor, "K J"]:
        """A product over places from the end, of 1 where tokens are the same and of less where they
        are not, the less so the farther the place; as the exponential of one matrix product."""
        width = one.tokens.shape[1]
        places = torch.arange(width - 1, -1, -1, dtype=torch.float64)
        loss = -torch.log1p(-MOST_LOST * self.reach**places)
        same = (one.marks * loss[:, None]).flatten(1) @ other.marks.flatten(1).T
        return (same - loss.sum()).exp()


@dataclass(frozen=True, eq=False)
class Points:
    """Histories aligned at their ends, with what experts say after them."""

    tokens: Int[Tensor, "K W"]
    features: Float[Tensor, "K F"]
    vocab_size: int

    @staticmethod
    def of(histories: Int[Tensor, "K W"], vocab_size: int) -> Points:
        return Points(histories, experts(histories, vocab_size), vocab_size)

    @cached_property
    def marks(self) -> Float[Tensor, "K W S"]:
        """Which token stands where, none being one of them."""
        return torch.nn.functional.one_hot(self.tokens - PAD, self.vocab_size + 1).double()

    def wider(self, width: int) -> Points:
        """The same, aligned for longer ones beside them."""
        return Points(padded(self.tokens, width), self.features, self.vocab_size)

    def __len__(self) -> int:
        return len(self.tokens)

    def select(self, rows: Int[Tensor, "J"]) -> Points:
        return Points(self.tokens[rows], self.features[rows], self.vocab_size)
