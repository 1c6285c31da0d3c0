"""What a utility is, and the one dynamic programme that takes its exact mean under any kernel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.errors import require
from posteer.kernels import ContextSpace
from posteer.shapes import Float, Int

ENUMERABLE_CONTINUATIONS = 4096
"""Continuation sets up to this size are enumerated; past it utilities without a finite-state
form are estimated by rollouts."""


@dataclass(frozen=True)
class FiniteStateForm:
    """A utility as an automaton that reads a continuation and collects rewards.

    `step[s, v]` is the state after token `v`; `reward[s, c, v]` is earned by emitting `v` from
    context `c` in state `s` (axes of size 1 broadcast); `final[s]` is earned at the end.
    """

    start: int
    step: Int[Tensor, "S V"]
    reward: Float[Tensor, "#S #C #V"]
    final: Float[Tensor, "S"]


@runtime_checkable
class Utility(Protocol):
    """What to elicit. `context` is the prompt's last `order` tokens as a context number."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int:
        """How many of the prompt's last tokens the utility reads."""

    def __call__(
        self, continuations: Int[Tensor, "*B N"], contexts: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]: ...

    def finite_state(self, vocab_size: int, horizon: int) -> FiniteStateForm | None:
        """The automaton for continuations of `horizon` tokens, if there is a small one."""


def all_sequences(vocab_size: int, length: int) -> Int[Tensor, "K N"]:
    """Every sequence of `length` tokens, in lexicographic order."""
    if length == 0:
        return torch.zeros(1, 0, dtype=torch.long)
    return torch.tensor(list(product(range(vocab_size), repeat=length)), dtype=torch.long)


def has_exact_mean(utility: Utility, vocab_size: int, horizon: int) -> bool:
    """Whether `utility_of_kernels` can be computed, by automaton or by enumeration."""
    form = utility.finite_state(vocab_size, horizon)
    return form is not None or vocab_size**horizon <= ENUMERABLE_CONTINUATIONS


def utility_of_kernels(
    utility: Utility, space: ContextSpace, kernels: Float[Tensor, "L C V"], horizon: int
) -> Float[Tensor, "L C"]:
    """mu(kernel; context): the exact mean utility of each kernel's continuations (eq. mu_kmarkov).

    The space's order must be at least the utility's; lift the kernels first if it is not.
    """
    require(
        space.order >= utility.order,
        f"{utility.name} reads {utility.order} prompt tokens: lift the kernels to that order",
    )
    form = utility.finite_state(space.vocab_size, horizon)
    if form is not None:
        part = max(1, 2**24 // (space.n_contexts * space.vocab_size * len(form.final)))
        return torch.cat(
            [
                _mean_by_states(form, utility.order, space, some, horizon)
                for some in kernels.split(part)
            ]
        )
    require(
        space.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS,
        f"{utility.name} has no exact mean at horizon {horizon}: "
        f"{space.vocab_size}**{horizon} continuations are too many to enumerate",
    )
    return _mean_by_enumeration(utility, space, kernels, horizon)


def _mean_by_states(
    form: FiniteStateForm,
    reward_order: int,
    space: ContextSpace,
    kernels: Float[Tensor, "L C V"],
    horizon: int,
) -> Float[Tensor, "L C"]:
    """Backward induction: value[l, c, s] is the expected utility still to come."""
    device = kernels.device
    contexts = torch.arange(space.n_contexts, device=device)
    n_states = len(form.final)
    reward = form.reward.to(device).expand(n_states, -1, space.vocab_size)
    if reward.shape[1] > 1:  # the utility's own contexts are suffixes of the space's
        reward = reward[:, contexts % space.vocab_size**reward_order]
    reward = reward.expand(n_states, space.n_contexts, space.vocab_size)
    next_context = space.next_context.to(device)
    next_state = form.step.to(device)
    value = form.final.to(device).expand(len(kernels), space.n_contexts, n_states)
    for _ in range(horizon):
        # following[l, c, s, v] = value at (next_context[c, v], next_state[s, v])
        following = value[:, next_context[:, None, :], next_state[None, :, :]]
        gain = reward.transpose(0, 1) + following
        value = (kernels[:, :, None, :] * gain).sum(-1)
    return value[:, :, form.start]


def continuation_log_probabilities(
    space: ContextSpace, kernels: Float[Tensor, "L C V"], continuations: Int[Tensor, "K N"]
) -> Float[Tensor, "L C K"]:
    """log kernel(y_1:N | c) for every latent, starting context and continuation."""
    n_contexts, n_continuations = space.n_contexts, len(continuations)
    context = torch.arange(n_contexts, device=kernels.device)[:, None]
    context = context.expand(n_contexts, n_continuations)
    logs = kernels.log()
    total = kernels.new_zeros(len(kernels), n_contexts, n_continuations)
    for token in continuations.to(kernels.device).unbind(-1):
        total = total + logs[:, context, token]
        context = space.next_context.to(kernels.device)[context, token]
    return total


def _mean_by_enumeration(
    utility: Utility, space: ContextSpace, kernels: Float[Tensor, "L C V"], horizon: int
) -> Float[Tensor, "L C"]:
    continuations = all_sequences(space.vocab_size, horizon)
    contexts = torch.arange(space.n_contexts) % space.vocab_size**utility.order
    values = utility(
        continuations.expand(space.n_contexts, -1, -1),
        contexts[:, None].expand(-1, len(continuations)),
    ).to(kernels.device)
    return torch.cat(
        [
            (continuation_log_probabilities(space, part, continuations).exp() * values).sum(-1)
            for part in kernels.split(max(1, 2**22 // values.numel()))
        ]
    )
