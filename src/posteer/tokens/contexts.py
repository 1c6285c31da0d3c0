"""Contexts: the k-grams that tokens move between, and tables over them.

A context is one of `C = V**order` k-grams, numbered in base V with the oldest token as the most
significant digit (order 0 has the single context 0). Emitting `v` from context `c` leads to
`next_context[c, v]`. A table `[C, V]` whose rows are next-token laws is a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.core.rounding import close_to, rounding_of


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


def sound_rows(table: Tensor, what: str) -> Float[Tensor, "*B V"]:
    """Laws of any floats in float64, rows that rounding moved normalised; refused where a row is no
    law. What is sound stays as it is, to the bit."""
    require(table.is_floating_point(), f"{what} of {table.dtype}: expected floats")
    wide = table.double()
    checked = validated_kernel(wide, what, rounding_of(table.dtype))
    off = (wide.sum(-1, keepdim=True) - 1).abs() > close_to(wide.dtype)
    return torch.where(off, checked, wide) if bool(off.any()) else wide


def all_sequences(vocab_size: int, length: int) -> Int[Tensor, "K N"]:
    """Every sequence of `length` tokens, in lexicographic order."""
    places = vocab_size ** torch.arange(length - 1, -1, -1)
    return torch.arange(vocab_size**length)[:, None] // places % vocab_size


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
