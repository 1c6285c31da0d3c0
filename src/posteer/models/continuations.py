"""The law of all continuations of a prompt, on any model.

Continuations are enumerated level by level, so that they share the prefix tree and each node is
read once; a transformer reads the whole tree in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.core.device import free_cached, is_out_of_memory
from posteer.core.shapes import Float, Int
from posteer.models.protocol import Can, Model
from posteer.models.trees import prompt_tree_size, tree_size
from posteer.tokens.contexts import all_sequences

NODES_IN_ONE_PASS = 256
"""Nodes of a continuation tree up to which a transformer reads it behind one mask."""

TOKENS_ON_A_CPU, TOKENS_ON_A_GPU = 2**13, 2**15
"""Tokens in one such pass: what a layer makes of them stays in a CPU's cache; on a GPU activations
take a hundred megabytes or so."""

NODES_OF_ONE_TREE = 2048
"""Tokens of several prompts and their continuations up to which they are read behind one mask."""

LEAVES_AT_ONCE = 2**20
"""Prompts x continuations that are enumerated together."""


def tokens_at_once(model: Model) -> int:
    """How many tokens a model should read in one pass."""
    return TOKENS_ON_A_CPU if model.device.type == "cpu" else TOKENS_ON_A_GPU


def read_prompts(model: Model, prompts: Int[Tensor, "B m"]) -> Any:
    """The state after each prompt."""
    state = model.start(len(prompts))
    for token in prompts.unbind(-1):
        _, state = model.advance(state, token)
    return state


def continuation_laws(
    model: Model, prompts: Int[Tensor, "B m"], horizon: int
) -> Float[Tensor, "B Y"]:
    """Log-probabilities of all continuations of each prompt, in float64.

    A transformer reads a prompt and the tree of its continuations in one pass; any other model is
    led through the tree level by level. Both read each node once.
    """
    length, vocab = prompts.shape[1], model.vocab_size
    n_nodes = tree_size(vocab, horizon)
    in_one_pass = Can.READ_TREES in model.can and n_nodes <= NODES_IN_ONE_PASS
    if in_one_pass:
        part = max(1, tokens_at_once(model) // (len(model.context) + length + n_nodes + 1))
        part = min(part, model.batch_limit(length + n_nodes))
    else:
        limit = min(model.batch_limit(length + horizon), LEAVES_AT_ONCE)
        part = max(1, limit // vocab ** (horizon - 1))

    def laws_of(some: Int[Tensor, "b m"]) -> Float[Tensor, "b Y"]:
        if in_one_pass:
            return model.continuation_log_probs(some, horizon)
        return laws_by_levels(model, read_prompts(model, some), len(some), horizon)

    return _in_parts(model, prompts, part, laws_of)


def _in_parts(
    model: Model,
    rows: Int[Tensor, "B n"],
    part: int,
    laws_of: Callable[[Tensor], Float[Tensor, "K Y"]],
) -> Float[Tensor, "K Y"]:
    """What is asked of a model about so many rows at a time, of half as many where memory ends."""
    laws, at, part = [], 0, min(part, len(rows))
    while at < len(rows):
        some = rows[at : at + part]
        try:
            with model.attempt():
                law = laws_of(some)
        except RuntimeError as error:
            if part == 1 or not is_out_of_memory(error):
                raise
            part = (part + 1) // 2
            free_cached()
            continue
        laws.append(law.double().cpu())
        model.check_laws()
        at += len(some)
    return torch.cat(laws)


def shared_laws(model: Model, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
    """As `continuation_laws`, what prompts begin with in common being read once."""
    vocab = model.vocab_size
    if Can.READ_TREES in model.can:
        size = len(model.context) + prompt_tree_size(prompts, vocab, horizon)
        if size > NODES_OF_ONE_TREE:
            return continuation_laws(model, prompts, horizon)
        law = model.shared_log_probs(prompts, horizon).double().cpu()
        model.check_laws()
        return law
    distinct, where = prompts.unique(dim=0, return_inverse=True)
    state, node = model.start(1), torch.zeros(len(distinct), dtype=torch.long)
    for tokens in distinct.unbind(-1):
        step, node = torch.stack([node, tokens], -1).unique(dim=0, return_inverse=True)
        _, state = model.advance(state.select(step[:, 0]), step[:, 1])
    limit = min(model.batch_limit(prompts.shape[1] + horizon), LEAVES_AT_ONCE)
    laws = [
        laws_by_levels(model, state.select(part), len(part), horizon).double().cpu()
        for part in node.split(max(1, limit // vocab ** (horizon - 1)))
    ]
    model.check_laws()
    return torch.cat(laws)[where]


@dataclass(frozen=True)
class ProductOfPrompts:
    """All prompts of a length as all beginnings with all ends, so that the tree behind a beginning
    is about as large as is read behind one mask."""

    firsts: Int[Tensor, "P k"]
    lasts: Int[Tensor, "S n"]

    @staticmethod
    def of(vocab_size: int, length: int, horizon: int) -> ProductOfPrompts:
        last = 1
        while last < length and _ends(vocab_size, last + 1, horizon) <= NODES_IN_ONE_PASS:
            last += 1
        first = length - last
        return ProductOfPrompts(all_sequences(vocab_size, first), all_sequences(vocab_size, last))


def _ends(vocab_size: int, length: int, horizon: int) -> int:
    """Nodes of the tree of all ends of a length, and of their continuations."""
    return tree_size(vocab_size, length + horizon)


def product_laws(model: Model, prompts: ProductOfPrompts, horizon: int) -> Float[Tensor, "K Y"]:
    """Log-probabilities of all continuations of all prompts, in lexicographic order."""
    nodes = _ends(model.vocab_size, prompts.lasts.shape[1], horizon)
    width = len(model.context) + prompts.firsts.shape[1] + nodes
    part = max(1, min(tokens_at_once(model) // width, model.batch_limit(width)))

    def laws_of(firsts: Int[Tensor, "b k"]) -> Float[Tensor, "K Y"]:
        return model.product_log_probs(firsts, prompts.lasts, horizon)

    return _in_parts(model, prompts.firsts, part, laws_of)


def laws_by_levels(model: Model, state: Any, n_prompts: int, horizon: int) -> Float[Tensor, "B Y"]:
    """Expand all continuations of all histories one level at a time, each node read once."""
    vocab = model.vocab_size
    log_probability = state.log_probs
    for depth in range(1, horizon):
        n_nodes = n_prompts * vocab ** (depth - 1)
        children = torch.arange(n_nodes).repeat_interleave(vocab)
        law, state = model.advance(state.select(children), torch.arange(vocab).repeat(n_nodes))
        log_probability = (log_probability.flatten()[:, None] + law).view(n_prompts, -1)
    return log_probability


def log_probs_along(
    model: Model, state: Any, continuations: Int[Tensor, "B N"]
) -> Float[Tensor, "B"]:
    """How likely given continuations of histories are, in float64."""
    total = torch.zeros(len(continuations), dtype=torch.float64)
    law = state.log_probs
    for at, tokens in enumerate(continuations.unbind(-1)):
        own = tokens[:, None].to(law.device)
        total = total + law.gather(1, own)[:, 0].double().cpu()
        if at + 1 < continuations.shape[1]:
            law, state = model.advance(state, tokens)
    model.check_laws()
    return total


def roll_out_from(
    model: Model, state: Any, horizon: int, generator: torch.Generator
) -> Int[Tensor, "B N"]:
    """One continuation of each history, drawn."""
    law, tokens = state.log_probs, []
    for t in range(horizon):
        uniform = torch.rand(len(law), 1, dtype=torch.float64, generator=generator)
        token = (uniform >= law.double().exp().cumsum(-1)[:, :-1].cpu()).sum(-1)
        tokens.append(token)
        if t + 1 < horizon:
            law, state = model.advance(state, token)
    model.check_laws()
    return torch.stack(tokens, -1)
