"""Classes of prompts that no model of a process can tell apart.

Exact Bayes sees a prompt through its transition counts and last context, so prompts that agree in
first context, counts and last context are one class. Classes are grown token by token and merged
as they meet: polynomially many in the length where prompts are exponentially many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.kernels import ContextSpace, count_transitions
from posteer.shapes import Int
from posteer.utilities.base import all_sequences

ENUMERABLE_CLASSES = 50_000


@dataclass(frozen=True, eq=False)
class PromptClasses:
    """The classes of one length, how many prompts each holds, and a way back to one of them."""

    counts: Int[Tensor, "K C V"]
    last: Int[Tensor, "K"]
    sizes: list[int]
    first: Int[Tensor, "F k"]
    history: list[tuple[np.ndarray, np.ndarray]]

    def __len__(self) -> int:
        return len(self.last)

    @property
    def starts(self) -> Int[Tensor, "K"]:
        """The first context of each class."""
        rows = np.arange(len(self))
        for parents, _ in reversed(self.history):
            rows = parents[rows]
        return torch.from_numpy(rows)

    def prompt(self, row: int) -> Int[Tensor, "m"]:
        """One prompt of a class, read backwards off the expansion that found it."""
        tokens: list[int] = []
        for parents, emitted in reversed(self.history):
            tokens.append(int(emitted[row]))
            row = int(parents[row])
        return torch.cat([self.first[row], torch.tensor(tokens[::-1], dtype=torch.long)])


def prompt_classes(
    space: ContextSpace, length: int, context_order: int, limit: int = ENUMERABLE_CLASSES
) -> PromptClasses | None:
    """All classes at `length`, or None past `limit` of them.

    Counts are of `space`'s order; first and last contexts are `context_order >= order` tokens, for
    utilities that read further back than the model's latents do.
    """
    wide = ContextSpace(space.vocab_size, context_order)
    if wide.n_contexts > limit or length < context_order:
        return None
    vocab, n_edges = space.vocab_size, space.n_contexts * space.vocab_size
    first = all_sequences(vocab, context_order)
    # columns: the counts, the first context, the last context
    rows = np.zeros((len(first), n_edges + 2), dtype=np.uint32)
    rows[:, :n_edges] = count_transitions(space, first).flatten(1).numpy()
    rows[:, -1] = rows[:, -2] = np.arange(len(first))
    sizes = np.ones(len(first), dtype=np.int64 if vocab**length < 2**63 else object)
    next_context = wide.next_context.numpy()
    history: list[tuple[np.ndarray, np.ndarray]] = []
    steps = length - context_order
    for _ in range(steps):
        if len(rows) > limit or _projected(space, len(rows), len(history) + 1, steps) > 4 * limit:
            return None
        parents = np.repeat(np.arange(len(rows)), vocab)
        emitted = np.tile(np.arange(vocab), len(rows))
        children = rows[parents]
        last = children[:, -1].astype(np.int64)
        edges = (last % space.n_contexts) * vocab + emitted
        children[np.arange(len(children)), edges] += 1
        children[:, -1] = next_context[last, emitted]
        keys = children.view(np.dtype((np.void, children.dtype.itemsize * children.shape[1])))
        _, representative, group = np.unique(keys.ravel(), return_index=True, return_inverse=True)
        merged = np.zeros(len(representative), dtype=sizes.dtype)
        np.add.at(merged, group, sizes[parents])
        rows, sizes = children[representative], merged
        history.append((parents[representative], emitted[representative]))
    if len(rows) > limit:
        return None
    shape = (space.n_contexts, vocab)
    counts = torch.from_numpy(rows[:, :n_edges].astype(np.int64)).unflatten(1, shape)
    last_contexts = torch.from_numpy(rows[:, -1].astype(np.int64))
    return PromptClasses(counts, last_contexts, [int(n) for n in sizes], first, history)


def _projected(space: ContextSpace, n_classes: int, step: int, steps: int) -> float:
    """How many classes there may be at the end: counts have C (V - 1) free directions."""
    if step < 8:
        return 0.0
    return n_classes * (steps / step) ** (space.n_contexts * (space.vocab_size - 1)) / 4
