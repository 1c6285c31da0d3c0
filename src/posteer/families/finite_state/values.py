"""The mean utility of what follows a state, by induction over (state, automaton, last tokens).

Without an automaton all continuations are enumerated, as an automaton whose state is what was
emitted would be.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from posteer.core import Float, require
from posteer.core.limits import ENUMERABLE_MEANS, MOST_TABLE_NUMBERS
from posteer.goals.protocol import FiniteStateForm, Utility
from posteer.tokens.contexts import ContextSpace, all_sequences

Back = Callable[[int, Float[Tensor, "... L S"]], Float[Tensor, "... L S"]]
"""One step backwards along a token: `sum_s' T_v[s, s'] value[s']` for every latent and state."""


def require_room(numbers: int, what: str) -> None:
    """Refuse tables of latents that memory would not hold."""
    most = MOST_TABLE_NUMBERS
    require(numbers <= most, f"{what}: tables of {numbers:,} numbers: expected at most {most:,}")


def values_of_states(
    utility: Utility,
    vocab_size: int,
    horizon: int,
    back: Back,
    ones: Float[Tensor, "L S"],
) -> Float[Tensor, "C L S"]:
    """mu(latent; state), for each context that the utility reads before the continuation."""
    space = ContextSpace(vocab_size, utility.order)
    form = utility.finite_state(vocab_size, horizon)
    if form is not None:
        return _by_automaton(form, space, horizon, back, ones)
    n_continuations = vocab_size**horizon
    require(
        n_continuations <= ENUMERABLE_MEANS,
        f"{utility.name} has no exact mean at horizon {horizon}: {vocab_size}**{horizon} "
        "continuations are too many to enumerate",
    )
    return _by_enumeration(utility, space, horizon, back, ones)


def _by_automaton(
    form: FiniteStateForm,
    space: ContextSpace,
    horizon: int,
    back: Back,
    ones: Float[Tensor, "L S"],
) -> Float[Tensor, "C L S"]:
    """value[q, c] is what is still to come in automaton state q after last tokens c."""
    n_states, n_contexts, vocab = len(form.final), space.n_contexts, space.vocab_size
    reward = form.reward.expand(n_states, n_contexts, vocab)
    value = form.final[:, None, None, None] * ones.expand(n_states, n_contexts, *ones.shape)
    for _ in range(horizon):
        total = torch.zeros_like(value)
        for token in range(vocab):
            following = value[form.step[:, token]][:, space.next_context[:, token]]
            gain = reward[:, :, token, None, None] * ones + following
            total += back(token, gain)
        value = total
    return value[form.start]


def _by_enumeration(
    utility: Utility,
    space: ContextSpace,
    horizon: int,
    back: Back,
    ones: Float[Tensor, "L S"],
) -> Float[Tensor, "C L S"]:
    """The utility of every continuation, then one token of it after another taken back."""
    continuations = all_sequences(space.vocab_size, horizon)
    contexts = torch.arange(space.n_contexts)[:, None].expand(-1, len(continuations))
    values = utility(continuations.expand(space.n_contexts, -1, -1), contexts).double()
    value = values[..., None, None].to(ones.device) * ones
    for _ in range(horizon):
        by_token = value.unflatten(1, (-1, space.vocab_size))
        value = torch.stack(
            [back(token, by_token[:, :, token]) for token in range(space.vocab_size)]
        ).sum(0)
    return value[:, 0]
