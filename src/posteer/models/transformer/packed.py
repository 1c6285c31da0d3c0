"""Prompts and all their continuations, what prompts begin with in common read once.

A search asks for many prompts that differ from one another late. Their tokens make a tree; its
nodes, of all prompts, stand packed in one matrix, so that everything but attention works on each
node once, at full speed; in the last layer, on those alone that are asked what comes next. A node
attends to its own path, gathered from the same matrix. On a CPU prompts that part from what was
before them at the same place do so together, and nothing is masked that would have been read for
nothing. A GPU would wait for many small attentions: there every prompt attends whole, in one call.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from posteer.core.shapes import Bool, Float, Int
from posteer.models.transformer.network import Attention, Block, Transformer
from posteer.models.trees import continuation_tree, distinct

ATTENDING_AT_ONCE = 2**17
"""Tokens of prompts that attend in one call: their queries, keys and values are copied for it."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Prompts that attend together. `paths[r]` are the nodes that prompt r is made of, whoever they
    belong to, and its continuations'; `sees` says which of them those that ask attend to, and `own`
    whose answers are new, if not all are."""

    asking: slice | Int[Tensor, "R Q"]
    paths: Int[Tensor, "R T"]
    sees: Bool[Tensor, "Q T"]
    own: Int[Tensor, "A"] | None = None


@dataclass(frozen=True, eq=False)
class Packed:
    """The nodes of prompts and of their continuations, in groups, whose new answers come in order.
    `last` are the last of each prompt and all of its continuations, in groups of their own; of
    them, `ends[b]` are those of prompt b."""

    tokens: Int[Tensor, "N"]
    places: Int[Tensor, "N"]
    groups: list[_Group]
    last: Int[Tensor, "E"]
    last_groups: list[_Group]
    ends: Int[Tensor, "B n1"]


def pack(
    prompts: Int[Tensor, "B m"], vocab_size: int, horizon: int, at_once: bool = False
) -> Packed:
    """The tree of all prompts, BOS first, each with the tree of its continuations. Prompts attend
    by where they part from others, or all at once."""
    device = prompts.device
    below = continuation_tree(vocab_size, horizon)
    tops, where, common = distinct(functional.pad(prompts, (1, 0), value=vocab_size))
    n_tops, length = tops.shape
    whole = torch.cat([tops, below.tokens.to(device).expand(n_tops, -1)], 1)
    depths = torch.cat([torch.arange(length), length - 1 + below.depths]).to(device)
    sees = below.mask(length, device)
    at = torch.arange(whole.shape[1], device=device)

    mine = at >= common[:, None]
    owner = torch.where(mine, torch.arange(n_tops, device=device)[:, None], -1).cummax(0).values
    order = common.argsort(stable=True)  # in which nodes are counted, each prompt's own together
    n_own = len(at) - common
    first = torch.zeros_like(n_own)
    first[order] = n_own[order].cumsum(0) - n_own[order]
    paths = (first[owner] + at - common[owner])[order]
    new = mine[order].flatten().nonzero()[:, 0]

    n_ends = len(at) - length + 1
    ends = order.argsort()[where, None] * n_ends + torch.arange(n_ends, device=device)
    grouped = _whole if at_once else _by_place
    return Packed(
        whole[order].flatten()[new],
        depths[new % len(at)],
        *grouped(paths, common[order], sees, length),
        ends,
    )


def _by_place(
    paths: Int[Tensor, "U T"], common: Int[Tensor, "U"], sees: Bool[Tensor, "T T"], length: int
) -> tuple[list[_Group], Int[Tensor, "E"], list[_Group]]:
    """Groups of prompts whose first `common` tokens belong to others; their own nodes, and the last
    of them, stand together."""
    n_nodes, groups, last_groups = paths.shape[1], [], []
    done = begin = begin_last = 0
    for shared, rows in zip(*common.unique(return_counts=True), strict=True):
        some = paths[done : done + int(rows)]
        end = begin + len(some) * (n_nodes - int(shared))
        end_last = begin_last + len(some) * (n_nodes - length + 1)
        groups.append(_Group(slice(begin, end), some, sees[int(shared) :]))
        last_groups.append(_Group(slice(begin_last, end_last), some, sees[length - 1 :]))
        done, begin, begin_last = done + len(some), end, end_last
    return groups, paths[:, length - 1 :].flatten(), last_groups


def _whole(
    paths: Int[Tensor, "U T"], common: Int[Tensor, "U"], sees: Bool[Tensor, "T T"], length: int
) -> tuple[list[_Group], Int[Tensor, "E"], list[_Group]]:
    """Prompts attend whole, as many in a group as memory is meant for."""
    n_nodes, n_ends = paths.shape[1], paths.shape[1] - length + 1
    together = max(1, ATTENDING_AT_ONCE // n_nodes)
    new = torch.arange(n_nodes, device=paths.device) >= common[:, None]
    groups, last_groups = [], []
    for begin in range(0, len(paths), together):
        some, its = paths[begin : begin + together], new[begin : begin + together]
        groups.append(_Group(some, some, sees, its.flatten().nonzero()[:, 0]))
        asking = slice(begin * n_ends, (begin + len(some)) * n_ends)
        last_groups.append(_Group(asking, some, sees[length - 1 :]))
    return groups, paths[:, length - 1 :].flatten(), last_groups


def packed_log_probs(
    network: Transformer, prompts: Int[Tensor, "B m"], horizon: int, at_once: bool | None = None
) -> Float[Tensor, "B Y"]:
    """Log-probabilities of all continuations of all prompts; unless it is said, a GPU has them
    attend at once."""
    device, vocab = network.head.weight.device, network.shape.vocab_size
    if len(prompts) == 0:
        return torch.empty(0, vocab**horizon, device=device)
    at_once = device.type != "cpu" if at_once is None else at_once
    packed = pack(prompts.to(device), vocab, horizon, at_once)
    x = network.tokens(packed.tokens)[None]
    if network.positions is not None:
        network.require_positions(prompts.shape[1] + horizon)
        x = x + network.positions(packed.places)
    *below, top = network.blocks
    for block in below:
        assert isinstance(block, Block)
        x = _read(block, x, x, packed.groups)
    assert isinstance(top, Block)
    x = _read(top, x, x[:, packed.last], packed.last_groups)
    laws = network.head(network.norm(x))[0].float().log_softmax(-1)
    return continuation_tree(vocab, horizon).join(laws[packed.ends])


def _read(
    block: Block, x: Float[Tensor, "1 N W"], rows: Float[Tensor, "1 A W"], groups: list[_Group]
) -> Float[Tensor, "1 A W"]:
    """A layer, of the rows that ask: all of them, or some."""
    seen = block.attention_norm(x)
    asking = seen if rows is x else block.attention_norm(rows)
    return block.feed(rows + _attend(block.attention, asking, seen, groups))


def _attend(
    attention: Attention,
    asking: Float[Tensor, "1 A W"],
    seen: Float[Tensor, "1 N W"],
    groups: list[_Group],
) -> Float[Tensor, "1 A W"]:
    queries, known = attention.ask(asking)[0], attention.show(seen)[0]
    answers = []
    for group in groups:
        query = queries[group.asking].view(len(group.paths), len(group.sees), -1)
        key, value = known[group.paths].unflatten(-1, (2, attention.heads, -1)).unbind(-3)
        mixed = functional.scaled_dot_product_attention(
            query.unflatten(-1, (attention.heads, -1)).transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=group.sees,
        )
        found = mixed.transpose(1, 2).flatten(2).flatten(0, 1)
        answers.append(found if group.own is None else found[group.own])
    return attention.out(torch.cat(answers)[None])
