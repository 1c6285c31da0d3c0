"""Walks on the de Bruijn graph: which edge counts a prompt can have, and a prompt that has them.

A prompt of length m is a walk over contexts; its transition counts are the edge multiplicities of
an Eulerian path. Order 0 has one node with V loops, on which every count table is a walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from posteer.core.shapes import Bool, Int
from posteer.tokens.contexts import ContextSpace


def largest_remainder(shares: list[float], total: int) -> list[int]:
    """Hamilton's method: round `shares` (summing to `total` up to rounding) to integers that do.

    >>> largest_remainder([2.4, 1.3, 1.3], 5)
    [3, 1, 1]
    """
    floors = [int(share) for share in shares]
    missing = total - sum(floors)
    by_remainder = sorted(range(len(shares)), key=lambda i: floors[i] - shares[i])
    for i in by_remainder[: max(missing, 0)]:
        floors[i] += 1
    for i in reversed(by_remainder):  # only when rounding error pushed the floors past the total
        while sum(floors) > total and floors[i] > 0:
            floors[i] -= 1
    return floors


def may_be_walks(
    space: ContextSpace, counts: Int[Tensor, "K C V"], start: Int[Tensor, "K"]
) -> Bool[Tensor, "K"]:
    """The degree half of Euler's condition: all contexts balance but the two ends."""
    outgoing = counts.sum(-1)
    incoming = counts.flatten(1)[:, space.incoming].sum(-1)
    surplus = outgoing - incoming
    surplus[torch.arange(len(counts)), start] -= 1
    return (surplus <= 0).all(-1) & (surplus.sum(-1) == -1) & (surplus >= -1).all(-1)


def eulerian_walk(space: ContextSpace, counts: Int[Tensor, "C V"], start: int) -> list[int] | None:
    """The tokens of a walk from `start` that uses each edge exactly `counts` times, if any.

    Hierholzer's algorithm: walk until stuck, back up, splice in detours.
    """
    table = counts.tolist()
    remaining = [row[:] for row in table]
    total = sum(map(sum, table))
    next_context = space.next_context.tolist()
    cursor = [0] * space.n_contexts
    stack: list[tuple[int, int | None]] = [(start, None)]
    reversed_tokens: list[int] = []
    reversed_nodes: list[int] = []
    while stack:
        context, arrived_by = stack[-1]
        row = remaining[context]
        while cursor[context] < space.vocab_size and row[cursor[context]] == 0:
            cursor[context] += 1
        if cursor[context] < space.vocab_size:
            token = cursor[context]
            row[token] -= 1
            stack.append((next_context[context][token], token))
        else:
            stack.pop()
            reversed_nodes.append(context)
            if arrived_by is not None:
                reversed_tokens.append(arrived_by)
    tokens, nodes = reversed_tokens[::-1], reversed_nodes[::-1]
    if len(tokens) != total:
        return None
    steps = zip(nodes, tokens, nodes[1:], strict=False)
    if any(next_context[here][token] != there for here, token, there in steps):
        return None  # the splices do not join: no single path uses all edges
    return tokens


def every_walk(
    space: ContextSpace, counts: Int[Tensor, "C V"], start: int, like: Sequence[int] = ()
) -> Iterator[list[int]]:
    """All walks from `start` with these counts: those that keep to the tokens `like` longest come
    first, and else smaller tokens do.

    >>> space = ContextSpace(2, 1)
    >>> list(every_walk(space, torch.tensor([[1, 2], [1, 0]]), 0))
    [[0, 1, 0, 1], [1, 0, 0, 1]]
    >>> next(every_walk(space, torch.tensor([[1, 2], [1, 0]]), 0, like=[1]))
    [1, 0, 0, 1]
    """
    remaining, next_context = counts.tolist(), space.next_context.tolist()
    if not bool(may_be_walks(space, counts[None], torch.tensor([start]))):
        return
    if not _all_reached(remaining, next_context, start):
        return
    total = int(counts.sum())

    def choices() -> list[int]:
        """What to try at this depth, last first."""
        if len(tokens) == total:
            return []
        wanted = like[len(tokens)] if len(tokens) < len(like) else -1
        return sorted(range(space.vocab_size), key=lambda token: (token != wanted, token))[::-1]

    tokens: list[int] = []
    contexts = [start]
    untried = [choices()]
    while untried:
        if not untried[-1]:  # nothing is left to try here: back up
            untried.pop()
            if tokens:
                contexts.pop()
                remaining[contexts[-1]][tokens.pop()] += 1
            continue
        token, here = untried[-1].pop(), contexts[-1]
        if remaining[here][token] == 0:
            continue
        remaining[here][token] -= 1
        there = next_context[here][token]
        if remaining[here][token] or _all_reached(remaining, next_context, there):
            tokens.append(token)
            contexts.append(there)
            untried.append(choices())
            if len(tokens) == total:
                yield tokens.copy()
        else:
            remaining[here][token] += 1


def _all_reached(remaining: list[list[int]], next_context: list[list[int]], start: int) -> bool:
    """Whether every edge left can be walked to; where counts balance, then all can be used up.

    Only an edge that is used up can have been the last way to others.
    """
    seen, front = {start}, [start]
    while front:
        context = front.pop()
        for there, left in zip(next_context[context], remaining[context], strict=True):
            if left and there not in seen:
                seen.add(there)
                front.append(there)
    return all(context in seen or not any(row) for context, row in enumerate(remaining))


def greedy_walk(
    space: ContextSpace, wanted: Int[Tensor, "C V"], start: int, steps: int
) -> list[int]:
    """A walk that follows the wanted counts as far as it can: the edge most in arrears is next."""
    remaining = wanted.tolist()
    next_context = space.next_context.tolist()
    context, tokens = start, []
    for _ in range(steps):
        row = remaining[context]
        token = row.index(max(row))
        row[token] -= 1
        tokens.append(token)
        context = next_context[context][token]
    return tokens
