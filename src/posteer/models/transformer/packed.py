"""Prompts and all their continuations, what prompts begin with in common read once.

A search asks for many prompts that differ from one another late. Their tokens make a tree; its
nodes, of all prompts, stand packed in one matrix, so that everything but attention works on each
node once, at full speed. A node attends to its own path, gathered from the same matrix; prompts
that part from what was before them at the same place do so together. Nothing is masked that would
have been read for nothing, and the cost is that of the nodes; in the last layer, of those alone
that are asked what comes next.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from posteer.core.shapes import Bool, Float, Int
from posteer.models.transformer.network import Attention, Block, Transformer
from posteer.models.trees import continuation_tree, distinct


@dataclass(frozen=True, eq=False)
class _Group:
    """Prompts whose first `common` tokens belong to others; what asks of them stands together, all
    of their own nodes or the last ones.

    `paths[r]` are the nodes that prompt r is made of, whoever they belong to, and its
    continuations'; `sees` says which of them those that ask attend to.
    """

    asking: slice
    paths: Int[Tensor, "R T"]
    sees: Bool[Tensor, "Q T"]


@dataclass(frozen=True, eq=False)
class Packed:
    """The nodes of prompts and of their continuations. `last` are the last of each prompt and all
    of its continuations, which make groups of their own; `ends[b]` are those of prompt b."""

    tokens: Int[Tensor, "N"]
    places: Int[Tensor, "N"]
    groups: list[_Group]
    last: Int[Tensor, "E"]
    last_groups: list[_Group]
    ends: Int[Tensor, "B n1"]


def pack(prompts: Int[Tensor, "B m"], vocab_size: int, horizon: int) -> Packed:
    """The tree of all prompts, BOS first, each with the tree of its continuations."""
    below = continuation_tree(vocab_size, horizon)
    tops, where, common = distinct(functional.pad(prompts, (1, 0), value=vocab_size))
    n_tops, length = tops.shape
    whole = torch.cat([tops, below.tokens.expand(n_tops, -1)], 1)
    depths = torch.cat([torch.arange(length), length - 1 + below.depths])
    sees = below.mask(length, torch.device("cpu"))
    at = torch.arange(whole.shape[1])

    mine = at >= common[:, None]
    owner = torch.where(mine, torch.arange(n_tops)[:, None], -1).cummax(0).values
    order = common.argsort(stable=True)
    n_own = mine.sum(1)
    first = torch.zeros(n_tops, dtype=torch.long)
    first[order] = n_own[order].cumsum(0) - n_own[order]
    nodes = first[owner] + at - common[owner]

    groups, last_groups = [], []
    begin, done, n_ends = 0, 0, len(at) - length + 1
    for shared, rows in zip(*common.unique(return_counts=True), strict=True):
        some = order[done : done + int(rows)]
        end, paths = begin + int(n_own[some].sum()), nodes[some]
        groups.append(_Group(slice(begin, end), paths, sees[int(shared) :]))
        asking = slice(done * n_ends, (done + len(some)) * n_ends)
        last_groups.append(_Group(asking, paths, sees[length - 1 :]))
        begin, done = end, done + len(some)
    tokens, places = torch.empty(begin, dtype=torch.long), torch.empty(begin, dtype=torch.long)
    tokens[nodes[mine]] = whole[mine]
    places[nodes[mine]] = depths.expand(n_tops, -1)[mine]
    last = nodes[order, length - 1 :].flatten()
    ends = order.argsort()[where, None] * n_ends + torch.arange(n_ends)
    return Packed(tokens, places, groups, last, last_groups, ends)


def packed_log_probs(
    network: Transformer, prompts: Int[Tensor, "B m"], horizon: int
) -> Float[Tensor, "B Y"]:
    """Log-probabilities of all continuations of all prompts."""
    device, vocab = network.head.weight.device, network.shape.vocab_size
    if len(prompts) == 0:
        return torch.empty(0, vocab**horizon, device=device)
    packed = pack(prompts.cpu(), vocab, horizon)
    x = network.tokens(packed.tokens.to(device))[None]
    if network.positions is not None:
        network.require_positions(int(packed.places.max()) + 1)
        x = x + network.positions(packed.places.to(device))
    *below, top = network.blocks
    for block in below:
        assert isinstance(block, Block)
        x = _read(block, x, x, packed.groups)
    assert isinstance(top, Block)
    x = _read(top, x, x[:, packed.last.to(device)], packed.last_groups)
    laws = network.head(network.norm(x))[0].float().log_softmax(-1)
    tree = continuation_tree(vocab, horizon)
    return tree.join(laws[packed.ends.to(device)])


def _read(
    block: Block, x: Float[Tensor, "1 N W"], asking: Float[Tensor, "1 A W"], groups: list[_Group]
) -> Float[Tensor, "1 A W"]:
    """A layer, of the nodes that ask: all of them, or some."""
    seen = block.attention_norm(x)
    normed = seen if asking is x else block.attention_norm(asking)
    return block.feed(asking + _attend(block.attention, normed, seen, groups))


def _attend(
    attention: Attention,
    asking: Float[Tensor, "1 A W"],
    x: Float[Tensor, "1 N W"],
    groups: list[_Group],
) -> Float[Tensor, "1 A W"]:
    query, seen = attention.ask(asking)[0], attention.show(x)[0]
    mixed = torch.empty_like(query)
    for group in groups:
        paths = group.paths.to(x.device)
        own = query[group.asking].unflatten(0, (len(paths), -1))
        key, value = seen[paths].unflatten(-1, (2, attention.heads, -1)).unbind(-3)
        found = functional.scaled_dot_product_attention(
            own.unflatten(-1, (attention.heads, -1)).transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=group.sees.to(x.device),
        )
        mixed[group.asking] = found.transpose(1, 2).flatten(2).flatten(0, 1)
    return attention.out(mixed[None])
