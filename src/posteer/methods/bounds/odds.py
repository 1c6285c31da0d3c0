"""How far the weights of latents can come apart over prompts that are not known."""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.core import Float
from posteer.families.finite_state.suffixes import Nodes, Suffixes

MOST_NUMBERS = 2**25
"""Of tables of odds; past it they are kept for all contexts together, then not at all."""

LARGEST_LOG = 300.0
HALVINGS = 30
SLACK = 1e-12


class Odds:
    """`of(n)[c, i, j]` bounds `log (w_i p_i / w_j p_j)` of n tokens and then the context c.

    Exact over contexts where tokens tell the state, since a step then depends on its context
    alone; else each step is the worst that its context leaves open.
    """

    def __init__(self, suffixes: Suffixes, log_weights: Float[Tensor, "J"], length: int) -> None:
        self.suffixes = suffixes
        n_contexts, n_latents = suffixes.log_start.shape
        vocab, steps = suffixes.vocab_size, length - suffixes.memory
        logs = suffixes.log_start + log_weights
        self.possible = [logs > -torch.inf]
        size = n_contexts * n_latents**2
        self.by_context = size * (steps + 1) <= MOST_NUMBERS
        self.kept: list[Tensor] | None = None
        fits = size * vocab <= MOST_NUMBERS and n_latents**2 * (steps + 1) <= MOST_NUMBERS
        table = _difference(logs[:, :, None], logs[:, None, :]) if fits else None
        if table is not None:
            step = _difference(suffixes.high[..., :, None], suffixes.low[..., None, :])
            same = torch.eye(n_latents, dtype=torch.bool)
            self.kept = [self._all_together(table)]
        self._logs, self._steps = logs, steps
        self.mixed: list[tuple[Tensor, list[Tensor]]] = []
        moves = suffixes.high > -torch.inf
        for _ in range(steps):
            arrived = (self.possible[-1][:, None] & moves).reshape(vocab, -1, n_latents)
            self.possible.append(arrived.any(0).reshape(n_contexts, n_latents))
            if table is not None and self.kept is not None:
                further = _sum(table[:, None], step).reshape(vocab, -1, n_latents, n_latents)
                table = further.amax(0).masked_fill(same, 0.0)
                self.kept.append(self._all_together(table))

    def _all_together(self, table: Float[Tensor, "C J J"]) -> Tensor:
        return table if self.by_context else table.amax(0, keepdim=True)

    def against(self, shares: Float[Tensor, "J"]) -> None:
        """Bound `log w_j p_j - sum_i shares_i log w_i p_i` too: single odds are each at their
        largest for prompts of their own, a mixture of them is not.

        By the inequality of means, `sum_i x_i >= prod_i (x_i / shares_i) ** shares_i`. Left out
        where the tables would not fit.
        """
        suffixes = self.suffixes
        n_contexts, n_latents = self._logs.shape
        if self._logs.numel() * (self._steps + 1) * (len(self.mixed) + 1) > MOST_NUMBERS:
            return
        table = _against(self._logs, self._logs, shares)
        step = _against(suffixes.high, suffixes.low, shares)
        kept = [table]
        for _ in range(self._steps):
            further = _sum(table[:, None], step).reshape(suffixes.vocab_size, -1, n_latents)
            table = further.amax(0).reshape(n_contexts, n_latents)
            kept.append(table)
        self.mixed.append((shares, kept))

    def bounds(
        self,
        nodes: Nodes,
        left: int,
        least: float,
        most: Float[Tensor, "K"],
    ) -> Float[Tensor, "K"]:
        """The largest J of any prompt that ends in each node, `left` tokens before it not known.

        By halving: a level is a bound where no weights within the odds give more. Nodes that are
        not above `least` are said to be there.
        """
        possible = self.possible[left][nodes.contexts]
        odds = None
        if self.kept is not None:
            rows = nodes.contexts if self.by_context else torch.zeros_like(nodes.contexts)
            odds = self.kept[left][rows]
        low, high = torch.full_like(most, least), most.clone()
        above = self._exceeded(nodes, low, left, possible, odds)
        high = torch.where(above, high, low)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            over = self._exceeded(nodes, middle, left, possible, odds)
            low, high = torch.where(over, middle, low), torch.where(over, high, middle)
        return high

    def _exceeded(
        self,
        nodes: Nodes,
        level: Float[Tensor, "K"],
        left: int,
        possible: Tensor,
        odds: Tensor | None,
    ) -> Tensor:
        """Whether weights within the odds give more than a level."""
        value = self.suffixes.most(nodes, level, left)
        value = value.masked_fill(~possible, -torch.inf)
        some = (value > 0).any(-1)
        for shares, kept in self.mixed:
            some &= _outweighed(value, shares, kept[left][nodes.contexts])
        if odds is None:
            return some
        value = value.nan_to_num(neginf=0.0)
        scale = value.abs().amax(-1, keepdim=True).clamp(min=1e-300)
        gains, losses = (value / scale).clamp(min=0), (value / scale).clamp(max=0)
        upper = odds.clamp(-LARGEST_LOG, LARGEST_LOG).exp()
        lower = (-odds).clamp(max=LARGEST_LOG).exp().transpose(1, 2)
        lower = torch.minimum(lower, upper)
        # with latent j's weight as the unit, the others lie between lower[:, j] and upper[:, j]
        total = torch.einsum("kij,ki->kj", upper, gains) + torch.einsum("kij,ki->kj", lower, losses)
        # a latent that is always far less likely than another is no unit: numbers would end
        unit = possible & (odds >= -LARGEST_LOG / 2).all(-1)
        total = total.masked_fill(~unit, torch.inf)
        return some & (total > 0).all(-1)


def _against(one: Tensor, others: Tensor, shares: Float[Tensor, "J"]) -> Tensor:
    """`one_j - sum_i shares_i others_i`."""
    mixed = torch.where(shares > 0, shares * others, 0.0).sum(-1, keepdim=True)
    return _difference(one, mixed)


def _outweighed(
    value: Float[Tensor, "K J"], shares: Float[Tensor, "J"], table: Float[Tensor, "K J"]
) -> Tensor:
    """Whether gains may exceed losses, these being at least what the shares make of them; true
    where not all that have a share lose."""
    held = shares > 0
    loses = ((value[:, held] < 0) & (value[:, held] > -torch.inf)).all(-1)
    losses = torch.where(held & (value < 0), -value, 1.0).clamp(max=1e300).log()
    least = (torch.where(held, shares * (losses - shares.clamp(min=1e-300).log()), 0.0)).sum(-1)
    gains = value.clamp(min=1e-300).log() + table - least[:, None]
    # odds are infinite where a latent with a share may be impossible: only who gains has a say
    gains = gains.masked_fill(value <= 0, -torch.inf)
    return ~loses | (gains.logsumexp(-1) > 0)


def _difference(one: Tensor, other: Tensor) -> Tensor:
    """`one - other` of logs: what is impossible stays so, whatever the other is."""
    return torch.where(one.isneginf(), -torch.inf, one - other)


def _sum(odds: Tensor, step: Tensor) -> Tensor:
    return torch.where(odds.isneginf() | step.isneginf(), -torch.inf, odds + step)


def whole_values(
    suffixes: Suffixes, nodes: Nodes, log_weights: Float[Tensor, "J"]
) -> Float[Tensor, "K"]:
    """J of nodes that are whole prompts; `-inf` where they are impossible."""
    gain, chance = suffixes.whole(nodes)
    joint = chance.log() + log_weights
    means = torch.where(chance > 0, gain / chance, 0.0)
    value = (joint.softmax(-1) * means).sum(-1)
    return torch.where(joint.isneginf().all(-1), -torch.inf, value)
