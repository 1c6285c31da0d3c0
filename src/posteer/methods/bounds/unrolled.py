"""The continuations of a prompt as layers of moments, each of which asks one row of the kernel.

A moment is a context, a state of the utility and what the continuation has shown of the kernel so
far; moments that agree in all of it are one. What is to come is left out where it no longer
matters which tokens come. Where moments grow too many they forget what they have seen, and only
know how long ago that was.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.core.limits import ENUMERABLE_MEANS, NUMBERS_AT_ONCE
from posteer.goals.protocol import FiniteStateForm, Utility
from posteer.tokens.contexts import ContextSpace, all_sequences

MOST_MOMENTS = 2**11
"""Moments of a layer that still tell what they have seen."""

SAME = 1e-13
"""Utilities that differ by less, relative to their size, are taken for the larger one."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The moments of one step, and where tokens lead from them.

    `seen[i, v]`: how often the continuation went on with `v` in the row before, as far as that is
    known; the row may have been visited `forgotten` times more. Token `v` earns `reward[i, v]` and
    leads to moment `after[i, v]` of the next layer; one past its last has nothing to come.
    """

    rows: Int[Tensor, "n"]
    seen: Float[Tensor, "n V"]
    forgotten: int
    reward: Float[Tensor, "n V"]
    after: Int[Tensor, "n V"]


class Unroller:
    """Unrolls continuations of `horizon` tokens behind any last context of a prompt."""

    def __init__(self, space: ContextSpace, utility: Utility, horizon: int) -> None:
        self.space, self.utility, self.horizon = space, utility, horizon
        self.tail = ContextSpace(space.vocab_size, max(space.order, utility.order))
        self.form = utility.finite_state(space.vocab_size, horizon)
        few = self.form is None or self.form.step.numel() * horizon <= NUMBERS_AT_ONCE
        self._ahead = None if self.form is None or not few else self._to_come(self.form)

    @property
    def possible(self) -> bool:
        """Whether the utility is an automaton of some use, or can be made one."""
        if self.form is not None:
            return self._ahead is not None
        return self.space.vocab_size**self.horizon <= ENUMERABLE_MEANS

    def layers(self, last: int) -> list[Layer] | None:
        """What may follow a prompt that ends in a context of the tail; None if it is too much."""
        form, ahead = self.form, self._ahead
        if form is None or ahead is None:
            form = self._tree(last)
            ahead = self._to_come(form)
        vocab = self.space.vocab_size
        contexts, states = torch.tensor([last]), torch.tensor([form.start])
        history, forgotten = torch.zeros(1, 0, dtype=torch.long), 0
        layers: list[Layer] = []
        entries = vocab
        for step in range(self.horizon):
            rows = contexts % self.space.n_contexts
            edges = rows[:, None] * vocab + torch.arange(vocab)
            seen = (history[:, :, None] == edges[:, None]).sum(1).double()
            reward = self._reward(form)[states, self._goal_context(form, contexts)].clone()
            next_contexts = self.tail.next_context[contexts].flatten()
            next_states = form.step[states].flatten()
            least, most = (
                of[self.horizon - step - 1][self._goal_context(form, next_contexts), next_states]
                for of in ahead
            )
            settled = most - least <= SAME * most.abs()
            reward += torch.where(settled, most, 0.0).view_as(reward)
            live = (~settled).nonzero().flatten()
            if not len(live):
                after = torch.zeros(reward.shape, dtype=torch.long)
                return [*layers, Layer(rows, seen, forgotten, reward, after)]
            past = history.repeat_interleave(vocab, 0)[live]
            past = torch.cat([past, edges.flatten()[live, None]], 1).sort(1).values
            ends = torch.stack([next_contexts[live], next_states[live]], 1)
            keys, which = torch.cat([ends, past], 1).unique(dim=0, return_inverse=True)
            told = forgotten
            if len(keys) > MOST_MOMENTS:
                keys, which = ends.unique(dim=0, return_inverse=True)
                forgotten = step + 1
            entries += len(keys) * vocab
            if entries > NUMBERS_AT_ONCE:
                return None
            after = torch.full((len(settled),), len(keys))
            after[live] = which
            layers.append(Layer(rows, seen, told, reward, after.view_as(reward)))
            contexts, states, history = keys[:, 0], keys[:, 1], keys[:, 2:]
        raise AssertionError("the last tokens settle everything")

    def _reward(self, form: FiniteStateForm) -> Float[Tensor, "S C V"]:
        return form.reward.expand(len(form.final), -1, self.space.vocab_size)

    def _goal_context(self, form: FiniteStateForm, contexts: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        return contexts % form.reward.shape[1]  # its own contexts are suffixes of the tail's

    def _to_come(
        self, form: FiniteStateForm
    ) -> tuple[list[Float[Tensor, "C S"]], list[Float[Tensor, "C S"]]]:
        """The least and the most that may still be earned in so many steps, by goal context."""
        vocab, n_goal = self.space.vocab_size, form.reward.shape[1]
        following = torch.arange(n_goal)[:, None] * vocab + torch.arange(vocab)
        following = following % n_goal
        reward = self._reward(form).transpose(0, 1)
        least = [form.final.expand(n_goal, -1)]
        most = [least[0]]
        for _ in range(self.horizon - 1):
            least.append((reward + least[-1][following[:, None], form.step]).amin(-1))
            most.append((reward + most[-1][following[:, None], form.step]).amax(-1))
        return least, most

    def _tree(self, last: int) -> FiniteStateForm:
        """A utility that is no automaton as one whose states are all beginnings."""
        vocab, horizon = self.space.vocab_size, self.horizon
        sizes = torch.tensor([vocab**length for length in range(horizon + 1)])
        offsets = sizes.cumsum(0) - sizes
        n_states = int(sizes.sum())
        step = torch.zeros(n_states, vocab, dtype=torch.long)
        for length in range(horizon):
            own = torch.arange(int(sizes[length]))
            following = own[:, None] * vocab + torch.arange(vocab) + offsets[length + 1]
            step[int(offsets[length]) + own] = following
        continuations = all_sequences(vocab, horizon)
        context = torch.tensor(last % vocab**self.utility.order).expand(len(continuations))
        final = torch.zeros(n_states, dtype=torch.float64)
        final[int(offsets[-1]) :] = self.utility(continuations, context).double()
        return FiniteStateForm(0, step, torch.zeros(1, 1, 1, dtype=torch.float64), final)
