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


@dataclass(frozen=True, eq=False)
class _Group:
    """Prompts that attend together. `paths[r]` are the nodes that prompt r is made of, whoever they
    belong to, and its continuations'; `sees` says which of them those that ask attend to."""

    asking: slice | Int[Tensor, "R Q"]
    paths: Int[Tensor, "R T"]
    sees: Bool[Tensor, "Q T"]


@dataclass(frozen=True, eq=False)
class _Askers:
    """Rows of a matrix that attend, in groups; `answers[n]` is where the n-th finds its own among
    all that were given, None where they are given in order."""

    groups: list[_Group]
    answers: Int[Tensor, "N"] | None = None


@dataclass(frozen=True, eq=False)
class Packed:
    """The nodes of prompts and of their continuations. `last` are the last of each prompt and all
    of its continuations; of them, `ends[b]` are those of prompt b."""

    tokens: Int[Tensor, "N"]
    places: Int[Tensor, "N"]
    all: _Askers
    last: Int[Tensor, "E"]
    at_last: _Askers
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
    order = common.argsort(stable=True)
    n_own = mine.sum(1)
    first = torch.zeros_like(n_own)
    first[order] = n_own[order].cumsum(0) - n_own[order]
    nodes = first[owner] + at - common[owner]
    tokens, places = torch.empty_like(nodes[mine]), torch.empty_like(nodes[mine])
    tokens[nodes[mine]] = whole[mine]
    places[nodes[mine]] = depths.expand(n_tops, -1)[mine]

    n_ends = len(at) - length + 1
    last = nodes[order, length - 1 :].flatten()
    ends = order.argsort()[where, None] * n_ends + torch.arange(n_ends, device=device)
    if at_once:
        answers = torch.empty_like(tokens)
        answers[nodes[mine]] = mine.flatten().nonzero()[:, 0]
        every = _Askers([_Group(nodes, nodes, sees)], answers)
        at_last = _Askers([_Group(slice(0, len(last)), nodes[order], sees[length - 1 :])])
    else:
        every, at_last = _by_place(nodes[order], common[order], sees, length)
    return Packed(tokens, places, every, last, at_last, ends)


def _by_place(
    paths: Int[Tensor, "U T"], common: Int[Tensor, "U"], sees: Bool[Tensor, "T T"], length: int
) -> tuple[_Askers, _Askers]:
    """Groups of prompts whose first `common` tokens belong to others; their own nodes, and the last
    of them, stand together."""
    n_nodes = paths.shape[1]
    every, at_last = _Askers([]), _Askers([])
    done = begin = begin_last = 0
    for shared, rows in zip(*common.unique(return_counts=True), strict=True):
        some = paths[done : done + int(rows)]
        end = begin + len(some) * (n_nodes - int(shared))
        end_last = begin_last + len(some) * (n_nodes - length + 1)
        every.groups.append(_Group(slice(begin, end), some, sees[int(shared) :]))
        at_last.groups.append(_Group(slice(begin_last, end_last), some, sees[length - 1 :]))
        done, begin, begin_last = done + len(some), end, end_last
    return every, at_last


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
        x = _read(block, x, x, packed.all)
    assert isinstance(top, Block)
    x = _read(top, x, x[:, packed.last], packed.at_last)
    laws = network.head(network.norm(x))[0].float().log_softmax(-1)
    return continuation_tree(vocab, horizon).join(laws[packed.ends])


def _read(
    block: Block, x: Float[Tensor, "1 N W"], rows: Float[Tensor, "1 A W"], askers: _Askers
) -> Float[Tensor, "1 A W"]:
    """A layer, of the rows that ask: all of them, or some."""
    seen = block.attention_norm(x)
    asking = seen if rows is x else block.attention_norm(rows)
    return block.feed(rows + _attend(block.attention, asking, seen, askers))


def _attend(
    attention: Attention, asking: Float[Tensor, "1 A W"], seen: Float[Tensor, "1 N W"], by: _Askers
) -> Float[Tensor, "1 A W"]:
    queries, known = attention.ask(asking)[0], attention.show(seen)[0]
    found = []
    for group in by.groups:
        query = queries[group.asking].view(len(group.paths), len(group.sees), -1)
        key, value = known[group.paths].unflatten(-1, (2, attention.heads, -1)).unbind(-3)
        mixed = functional.scaled_dot_product_attention(
            query.unflatten(-1, (attention.heads, -1)).transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=group.sees,
        )
        found.append(mixed.transpose(1, 2).flatten(2).flatten(0, 1))
    answers = torch.cat(found)
    return attention.out((answers if by.answers is None else answers[by.answers])[None])
