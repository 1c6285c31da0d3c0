"""k-Markov kernels over contexts: tensor algebra with one code path for every vocabulary and order.

A context is one of `C = V**order` k-grams, numbered in base V with the oldest token as the most
significant digit (order 0 has the single context 0). A kernel is a `[C, V]` table whose rows are
next-token laws. Emitting `v` from context `c` leads to `next_context[c, v]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from posteer.errors import require
from posteer.shapes import Float, Int


@dataclass(frozen=True)
class ContextSpace:
    """The contexts of a vocabulary and an order, and how tokens move between them.

    >>> space = ContextSpace(vocab_size=2, order=2)
    >>> space.next_context.tolist()
    [[0, 1], [2, 3], [0, 1], [2, 3]]
    """

    vocab_size: int
    order: int

    def __post_init__(self) -> None:
        require(self.vocab_size >= 2, f"vocabulary of {self.vocab_size}: expected at least 2")
        require(self.order >= 0, f"order {self.order}: expected at least 0")
        require(
            self.order <= 22 and self.vocab_size ** (self.order + 1) <= 2**22,
            f"vocabulary {self.vocab_size} at order {self.order} needs a table of "
            f"{self.vocab_size}**{self.order + 1} entries: expected at most 2**22",
        )

    @property
    def n_contexts(self) -> int:
        return self.vocab_size**self.order

    @cached_property
    def next_context(self) -> Int[Tensor, "C V"]:
        """The suffix map: `(c * V + v) mod C` drops the oldest token and appends `v`."""
        contexts = torch.arange(self.n_contexts)[:, None]
        return (contexts * self.vocab_size + torch.arange(self.vocab_size)) % self.n_contexts

    @cached_property
    def incoming(self) -> Int[Tensor, "C V"]:
        """The V edges into each context, as flat indices `c * V + v`."""
        return self.next_context.flatten().argsort(stable=True).view(self.n_contexts, -1)

    def encode(self, tokens: Int[Tensor, "*B k"]) -> Int[Tensor, "*B"]:
        """The context of exactly `order` tokens."""
        context = tokens.new_zeros(tokens.shape[:-1])
        for token in tokens.unbind(-1):
            context = context * self.vocab_size + token
        return context

    def decode(self, contexts: Int[Tensor, "*B"]) -> Int[Tensor, "*B k"]:
        """The `order` tokens of each context, oldest first."""
        digits = [contexts // self.vocab_size**i % self.vocab_size for i in range(self.order)]
        if not digits:
            return contexts.new_zeros(*contexts.shape, 0)
        return torch.stack(digits[::-1], -1)

    def suffix(self, tokens: Int[Tensor, "*B T"]) -> Int[Tensor, "*B"]:
        """suf_k: the context that the last `order` tokens form."""
        return self.encode(tokens[..., tokens.shape[-1] - self.order :])

    def contexts_of(self, tokens: Int[Tensor, "*B T"]) -> Int[Tensor, "*B n"]:
        """The context before each of the tokens `order+1 .. T`, and after the last one."""
        n_windows = tokens.shape[-1] - self.order + 1
        context = tokens.new_zeros(*tokens.shape[:-1], n_windows)
        for offset in range(self.order):
            context = context * self.vocab_size + tokens[..., offset : offset + n_windows]
        return context


def space_of_table(n_rows: int, n_columns: int, what: str) -> ContextSpace:
    """The space in which a table of this shape is a kernel."""
    require(n_columns >= 2, f"{what}: rows of {n_columns} entries, expected at least 2")
    order, rows = 0, n_rows
    while rows > 1 and rows % n_columns == 0:
        rows //= n_columns
        order += 1
    require(
        rows == 1,
        f"{what}: {n_rows} rows of {n_columns} entries, expected a power of {n_columns} rows",
    )
    return ContextSpace(n_columns, order)


def count_transitions(space: ContextSpace, tokens: Int[Tensor, "*B T"]) -> Float[Tensor, "*B C V"]:
    """T(y): how often each token follows each context; the first `order` tokens only set it."""
    contexts = space.contexts_of(tokens)[..., :-1]
    edges = contexts * space.vocab_size + tokens[..., space.order :]
    counts = torch.zeros(
        *tokens.shape[:-1],
        space.n_contexts * space.vocab_size,
        dtype=torch.float64,
        device=tokens.device,
    )
    counts.scatter_add_(-1, edges, torch.ones_like(edges, dtype=torch.float64))
    return counts.unflatten(-1, (space.n_contexts, space.vocab_size))


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


def validated_kernel(
    table: Float[Tensor, "*B V"], what: str, tolerance: float = 1e-6
) -> Float[Tensor, "*B V"]:
    """The table with rows normalised to rounding, or a refusal if a row is not a distribution."""
    sums = table.sum(-1, keepdim=True)
    good = bool(torch.isfinite(table).all()) and bool((table >= 0).all())
    if not good or bool(((sums - 1).abs() > tolerance).any()):
        rows = table.reshape(-1, table.shape[-1])
        row_sums = rows.sum(-1)
        bad_rows = (~torch.isfinite(rows).all(-1)) | (rows < 0).any(-1)
        bad_rows |= ~((row_sums - 1).abs() <= tolerance)
        worst = [round(value, 6) for value in rows[bad_rows][0].tolist()]
        require(False, f"{what}: row {worst} is not a distribution (entries >= 0 that sum to 1)")
    return table / sums
