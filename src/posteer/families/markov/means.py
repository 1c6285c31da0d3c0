"""mu: the exact mean utility of a kernel's continuations, at any horizon."""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.core import Float, require
from posteer.core.limits import ENUMERABLE_MEANS, NUMBERS_AT_ONCE, NUMBERS_IN_PASSING
from posteer.goals.protocol import FiniteStateForm, Utility
from posteer.tokens.contexts import ContextSpace, all_sequences, continuation_log_probabilities


def has_exact_mean(
    utility: Utility, vocab_size: int, horizon: int, by_automaton: bool = True
) -> bool:
    """Whether the mean utility of a latent can be computed, by automaton or by enumeration; latents
    that can only be asked are enumerated."""
    form = utility.finite_state(vocab_size, horizon) if by_automaton else None
    return form is not None or vocab_size**horizon <= ENUMERABLE_MEANS


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
        part = max(1, NUMBERS_IN_PASSING // (space.n_contexts * space.vocab_size * len(form.final)))
        return torch.cat(
            [
                _mean_by_states(form, utility.order, space, some, horizon)
                for some in kernels.split(part)
            ]
        )
    require(
        space.vocab_size**horizon <= ENUMERABLE_MEANS,
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
    """Backward induction: value[l, c, s] is the expected utility still to come.

    Contexts that differ in their oldest token alone lead to the same ones: they share a product.
    """
    device, vocab, n_states = kernels.device, space.vocab_size, len(form.final)
    contexts = torch.arange(space.n_contexts, device=device)
    reward = form.reward.to(kernels).expand(n_states, -1, vocab)
    if reward.shape[1] > 1:  # the utility's own contexts are suffixes of the space's
        reward = reward[:, contexts % vocab**reward_order]
    reward = reward.expand(n_states, space.n_contexts, vocab)
    earned = torch.einsum("lcv,scv->lcs", kernels, reward)
    alike = max(1, space.n_contexts // vocab)
    rows = kernels.unflatten(1, (-1, alike)).transpose(1, 2)  # [L, alike, oldest, V]
    step = form.step.to(device).T.expand(len(kernels), alike, vocab, n_states)
    value = form.final.to(kernels).expand(len(kernels), space.n_contexts, n_states)
    for _ in range(horizon):
        following = value.expand(-1, alike * vocab, -1).unflatten(1, (alike, vocab)).gather(3, step)
        value = earned + (rows @ following).transpose(1, 2).flatten(1, 2)
    return value[:, :, form.start]


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
            for part in kernels.split(max(1, NUMBERS_AT_ONCE // values.numel()))
        ]
    )
