"""k-Markov kernels over contexts: tensor algebra with one code path for every vocabulary and order.

A context is one of `C = V**order` k-grams, numbered in base V with the oldest token as the most
significant digit (order 0 has the single context 0). A kernel is a `[C, V]` table whose rows are
next-token laws. Emitting `v` from context `c` leads to `next_context[c, v]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.tokens.contexts import ContextSpace


def log_likelihood(
    counts: Float[Tensor, "K C V"], kernels: Float[Tensor, "L C V"]
) -> Float[Tensor, "K L"]:
    """`sum_cv T[c, v] log kernel[c, v]`, with `0 log 0 = 0` and `-inf` for impossible counts."""
    flat_counts, flat_kernels = counts.flatten(1), kernels.flatten(1)
    possible = flat_kernels > 0
    logs = torch.where(possible, flat_kernels, 1.0).log()
    value = flat_counts @ logs.T
    if not bool(possible.all()):
        impossible = flat_counts @ (~possible).to(flat_counts.dtype).T
        value = value.masked_fill(impossible > 0, -torch.inf)
    return value


def lift(space: ContextSpace, kernels: Float[Tensor, "*B C V"], order: int) -> Tensor:
    """The same kernels read at a higher order: each context looks up its own suffix."""
    suffixes = torch.arange(space.vocab_size**order, device=kernels.device) % space.n_contexts
    return kernels[..., suffixes, :]


def push(
    space: ContextSpace, law: Float[Tensor, "*B C"], transitions: Float[Tensor, "*B C V"]
) -> Float[Tensor, "*B C"]:
    """One step of a law over contexts along `transitions`."""
    flow = (law[..., None] * transitions).flatten(-2)
    return flow[..., space.incoming.to(flow.device)].sum(-1)


def chain_matrix(
    space: ContextSpace, transitions: Float[Tensor, "*B C V"]
) -> Float[Tensor, "*B C C"]:
    """T_A: the context-to-context matrix of a kernel (sums tokens that lead to one context)."""
    matrix = transitions.new_zeros(*transitions.shape[:-1], space.n_contexts)
    index = space.next_context.to(transitions.device).expand(transitions.shape)
    return matrix.scatter_add(-1, index, transitions)


def final_context(
    space: ContextSpace,
    transitions: Float[Tensor, "*B C V"],
    initial: Float[Tensor, "*B C"],
    steps: int,
) -> Float[Tensor, "*B C"]:
    """nu: the law of the context after `steps` tokens, `initial T_A^steps`."""
    power = torch.linalg.matrix_power(chain_matrix(space, transitions), steps)
    return (initial[..., None, :] @ power).squeeze(-2)


def expected_visits(
    space: ContextSpace,
    transitions: Float[Tensor, "*B C V"],
    initial: Float[Tensor, "*B C"],
    steps: int,
) -> Float[Tensor, "*B C"]:
    """How often each context is expected to emit one of `steps` tokens."""
    law, visits = initial, torch.zeros_like(initial)
    for _ in range(steps):
        visits = visits + law
        law = push(space, law, transitions)
    return visits


def sample_chains(
    space: ContextSpace,
    kernels: Float[Tensor, "B C V"],
    contexts: Int[Tensor, "B"],
    length: int,
    generator: torch.Generator,
) -> Int[Tensor, "B T"]:
    """`length` tokens from each kernel, starting in the given contexts, with no loop over tokens.

    A uniform draw at time t decides the token from *every* context, hence a map from contexts to
    contexts; maps compose associatively, so all prefixes come from log2(length) compositions.
    """
    n, device = len(kernels), kernels.device
    uniform = torch.rand(n, length, 1, dtype=kernels.dtype, device=device, generator=generator)
    token_from = torch.zeros(n, length, space.n_contexts, dtype=torch.long, device=device)
    for edge in kernels.cumsum(-1)[..., :-1].unbind(-1):
        token_from += uniform >= edge[:, None]
    every = torch.arange(space.n_contexts, device=device)
    reached = space.next_context.to(device)[every, token_from]
    offset = 1
    while offset < length and space.n_contexts > 1:
        later = reached[:, offset:].gather(-1, reached[:, :-offset])
        reached = torch.cat([reached[:, :offset], later], 1)
        offset *= 2
    before = contexts[:, None, None].expand(n, length, 1)
    if length > 1:
        after = reached[:, :-1].gather(-1, before[:, 1:])
        before = torch.cat([before[:, :1], after], 1)
    return token_from.gather(-1, before).squeeze(-1)
