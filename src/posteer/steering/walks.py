"""Walks on the de Bruijn graph: which edge counts a prompt can have, and a prompt that has them.

A prompt of length m is a walk over contexts; its transition counts are the edge multiplicities of
an Eulerian path. Order 0 has one node with V loops, on which every count table is a walk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.kernels import ContextSpace
from posteer.shapes import Bool, Int


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
