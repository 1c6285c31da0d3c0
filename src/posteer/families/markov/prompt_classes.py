"""Classes of prompts that no model of a process can tell apart.

Exact Bayes sees a prompt through its transition counts and last context, so prompts that agree in
first context, counts and last context are one class. Classes are grown token by token and merged
as they meet: polynomially many in the length where prompts are exponentially many.

Behind a context that was read before, a prompt is taken with its head, the end of that context:
its first context begins with the head, and only transitions into its own tokens count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.core.limits import ENUMERABLE_CLASSES
from posteer.core.shapes import Bool, Int
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

MOST_EDGES = 128
"""Edges of the de Bruijn graph up to which its cycles are the moves; past it, tokens are."""

MOST_CELLS = 2**26
"""Counts of all classes that are held at once while they are grown: a quarter of a gibibyte."""

MOST_ENDS = 4096
"""First or last contexts that a class may tell apart; longer fixed ends are left to prompts."""


@dataclass(frozen=True, eq=False)
class PromptClasses:
    """The classes of one length, how many prompts each holds, and a way back to one of them."""

    counts: Int[Tensor, "K C V"]
    last: Int[Tensor, "K"]
    sizes: list[int]
    first: Int[Tensor, "F k"]
    history: list[tuple[np.ndarray, np.ndarray]]
    wide: ContextSpace
    head: int = 0

    def __len__(self) -> int:
        return len(self.last)

    @property
    def starts(self) -> Int[Tensor, "K"]:
        """The first context of each class."""
        rows = np.arange(len(self))
        for parents, _ in reversed(self.history):
            rows = parents[rows]
        return self.wide.encode(self.first)[torch.from_numpy(rows)]

    def prompt(self, row: int) -> Int[Tensor, "m"]:
        """One prompt of a class, read backwards off the expansion that found it."""
        tokens: list[int] = []
        for parents, emitted in reversed(self.history):
            tokens.append(int(emitted[row]))
            row = int(parents[row])
        walk = torch.cat([self.first[row], torch.tensor(tokens[::-1], dtype=torch.long)])
        return walk[self.head :]


def prompt_classes(
    space: ContextSpace,
    length: int,
    context_order: int,
    limit: int = ENUMERABLE_CLASSES,
    head: tuple[int, ...] = (),
) -> PromptClasses | None:
    """All classes at `length`, or None past `limit` of them or past what memory should hold.

    Counts are of `space`'s order; first and last contexts are `context_order >= order` tokens, for
    utilities that read further back than the model's latents do. First contexts begin with `head`.
    """
    wide = ContextSpace(space.vocab_size, context_order)
    free = context_order - len(head)
    n_edges = space.n_contexts * space.vocab_size
    firsts = space.vocab_size**free
    if firsts > limit or firsts * n_edges > MOST_CELLS or len(head) + length < context_order:
        return None
    vocab = space.vocab_size
    first = with_head(head, all_sequences(vocab, free))
    # columns: the counts, the first context, the last context
    rows = np.zeros((len(first), n_edges + 2), dtype=np.uint32)
    rows[:, :n_edges] = transitions_behind(space, head, first).flatten(1).numpy()
    rows[:, -1] = rows[:, -2] = wide.encode(first).numpy()
    sizes = np.ones(len(first), dtype=np.int64 if vocab**length < 2**63 else object)
    next_context = wide.next_context.numpy()
    history: list[tuple[np.ndarray, np.ndarray]] = []
    steps = len(head) + length - context_order
    for _ in range(steps):
        if len(rows) * vocab * (n_edges + 2) > MOST_CELLS:
            return None
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
    whole = [int(n) for n in sizes]
    return PromptClasses(counts, last_contexts, whole, first, history, wide, len(head))


def with_head(head: tuple[int, ...], prompts: Int[Tensor, "K m"]) -> Int[Tensor, "K n"]:
    """Prompts with what stands before them."""
    if not head:
        return prompts
    return torch.cat([torch.tensor(head).expand(len(prompts), -1), prompts], 1)


def transitions_behind(
    space: ContextSpace, head: tuple[int, ...], walks: Int[Tensor, "K n"]
) -> Int[Tensor, "K C V"]:
    """Transition counts of walks that begin with the head, less those within it."""
    counts = count_transitions(space, walks)
    if len(head) > space.order:
        counts = counts - count_transitions(space, torch.tensor(head))
    return counts.long()


def _projected(space: ContextSpace, n_classes: int, step: int, steps: int) -> float:
    """How many classes there may be at the end: counts have C (V - 1) free directions."""
    if step < 8:
        return 0.0
    return n_classes * (steps / step) ** (space.n_contexts * (space.vocab_size - 1)) / 4


@dataclass(frozen=True, eq=False)
class ClassProblem:
    """Prompts of `length` for a model of `space`; the goal reads `goal_order` tokens of them.

    `context` is what the model has read before, of which only the `head` matters here: a prompt
    with its head in front is a walk over contexts as any other, whose beginning is given.
    """

    space: ContextSpace
    length: int
    goal_order: int = 0
    allowed: AllowedPrompts | None = None
    context: tuple[int, ...] = ()

    @property
    def order(self) -> int:
        return max(self.space.order, self.goal_order)

    @property
    def head(self) -> tuple[int, ...]:
        """As much of the context as the latents or the goal can look back to."""
        return self.context[-self.order :] if self.order else ()

    @property
    def steps(self) -> int:
        """Transitions of a prompt with its head, past the first context: the n of eq. W."""
        return len(self.head) + self.length - self.order

    @property
    def first_contexts(self) -> Bool[Tensor, "C"] | None:
        """The first contexts that the head and what is allowed leave; None if all."""
        if not self.head and self.allowed is None:
            return None
        space = ContextSpace(self.space.vocab_size, self.order)
        return begins_as(space, self.head, self.length, self.allowed)

    @property
    def tail(self) -> ContextSpace:
        """The space of what latents and goal read of a prompt's end: all that J sees beside the
        counts, where `ends` may reach further to tell what is allowed."""
        return ContextSpace(self.space.vocab_size, self.order)

    @property
    def ends(self) -> ContextSpace:
        """The space of first and last contexts, wide enough for all that is asked of them."""
        order = self.order
        if self.allowed is not None and self.decided:
            order = self.allowed.context_order(order, len(self.head))
        return ContextSpace(self.space.vocab_size, order)

    @property
    def decided(self) -> bool:
        """Whether counts and ends, if not too long, tell what is allowed."""
        if self.allowed is None:
            return True
        order = self.allowed.context_order(self.space.order, len(self.head))
        fits = order <= len(self.head) + self.length or not self.head
        n_ends = self.space.vocab_size**order
        return fits and self.allowed.decided_by_counts(self.space.order) and n_ends <= MOST_ENDS

    @property
    def by_classes(self) -> bool:
        """Whether classes tell what is allowed, on a graph small enough to know its cycles."""
        edges = self.ends.n_contexts * self.ends.vocab_size
        long = len(self.head) + self.length > self.ends.order
        return self.decided and long and edges <= MOST_EDGES

    def enumerate(self, limit: int = ENUMERABLE_CLASSES) -> PromptClasses | None:
        """All classes, or None where there are more than `limit` or they cannot tell."""
        if not self.decided:
            return None
        return prompt_classes(self.space, self.length, self.ends.order, limit, self.head)

    def allowed_rows(self, classes: PromptClasses) -> Int[Tensor, "K"]:
        """The classes whose prompts are allowed."""
        if self.allowed is None:
            return torch.arange(len(classes))
        broken = self.violations(classes.counts, classes.starts, classes.last)
        return (broken == 0).nonzero().flatten()

    def violations(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> Int[Tensor, "K"]:
        """How far classes are from allowed; one whose first context is not behind the head is
        none of this problem's, and as far as can be."""
        broken = torch.zeros_like(first)
        if self.allowed is not None:
            broken = self.allowed.class_violations(
                self.space, counts, self.ends, first, last, len(self.head)
            )
        if not self.head:
            return broken
        behind = begins_as(self.ends, self.head, self.length)[first]
        return torch.where(behind, broken, 2**30)

    def describe(
        self, prompts: Int[Tensor, "K m"]
    ) -> tuple[Int[Tensor, "K C V"], Int[Tensor, "K"], Int[Tensor, "K"]]:
        """Counts, first and last context of each prompt."""
        walks, ends = with_head(self.head, prompts), self.ends
        counts = transitions_behind(self.space, self.head, walks)
        return counts, ends.encode(walks[:, : ends.order]), ends.suffix(walks)

    def few_prompts(self, limit: int) -> bool:
        """Whether all prompts are to be tried, where classes cannot tell what is allowed."""
        return not self.by_classes and self.space.vocab_size**self.length <= limit

    def mask(self) -> Bool[Tensor, "m V"]:
        """Which tokens may stand where."""
        if self.allowed is None:
            return torch.ones(self.length, self.space.vocab_size, dtype=torch.bool)
        return self.allowed.token_mask(self.length)


def begins_as(
    space: ContextSpace,
    head: tuple[int, ...],
    length: int,
    allowed: AllowedPrompts | None = None,
) -> Bool[Tensor, "C"]:
    """First contexts that begin with the head and go on with tokens allowed in their places."""
    tokens = space.decode(torch.arange(space.n_contexts))
    good = torch.ones(space.n_contexts, dtype=torch.bool)
    for place, token in enumerate(head):
        good &= tokens[:, place] == token
    if allowed is not None:
        mask = allowed.token_mask(length)
        for place in range(len(head), space.order):
            good &= mask[place - len(head)][tokens[:, place]]
    return good
