"""Allowed prompts at random, and all of them where they can be listed.

Where positions and banned n-grams are all there is, draws are uniform at any length: completions of
every context are counted backwards, tokens drawn forwards by those counts. Bounds and predicates
are left to a walk that mends what they refuse.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from posteer.core import Bool, Float, InputError, Int, require
from posteer.core.limits import LISTED_PROMPTS
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace

MOST_CONTEXTS = 4096
"""Contexts that banned n-grams may need; longer ones are left to mending."""

MENDING_STARTS = 10
MENDING_CHANGES = 1024
"""How often a prompt that is not allowed is mended anew, and changes looked at in each step."""


@lru_cache(maxsize=8)
def list_allowed(allowed: AllowedPrompts, length: int) -> Int[Tensor, "K m"]:
    """Every allowed prompt of a length, in lexicographic order; refused if there is none."""
    vocab = allowed.vocab_size
    every = ContextSpace(vocab, length).decode(torch.arange(vocab**length))
    mask = allowed.token_mask(length)
    every = every[mask[torch.arange(length), every].all(-1)]
    listed = every[allowed.allows(every)]
    require(len(listed) > 0, f"no allowed prompt of {length} tokens exists")
    return listed


def draw_allowed(
    allowed: AllowedPrompts, length: int, n: int, generator: torch.Generator
) -> Int[Tensor, "n m"]:
    """So many allowed prompts, uniform unless some had to be mended; refused if none is found."""
    if allowed.vocab_size**length <= LISTED_PROMPTS:
        listed = list_allowed(allowed, length)
        return listed[torch.randint(len(listed), (n,), generator=generator)]
    drawn = _spelled(allowed, length, n, generator)
    for row in (~allowed.allows(drawn)).nonzero().flatten().tolist():
        drawn[row] = _mended(allowed, drawn[row], generator)
    return drawn


def _spelled(
    allowed: AllowedPrompts, length: int, n: int, generator: torch.Generator
) -> Int[Tensor, "n m"]:
    """Uniform over prompts that keep to their positions and hold no banned n-gram.

    With `ways[t](c)` the prompts that can follow context c after t tokens, token v is drawn with
    probability `ways[t + 1](c v) / ways[t](c)`.
    """
    mask = allowed.token_mask(length)
    order = max((len(gram) - 1 for gram in allowed.banned), default=0)
    if allowed.vocab_size**order > MOST_CONTEXTS or order > length:
        return torch.multinomial(mask.double(), n, replacement=True, generator=generator).T.clone()
    space = ContextSpace(allowed.vocab_size, order)
    steps = [_log_steps(allowed, space, row) for row in mask[order:]]
    ways = [torch.zeros(space.n_contexts, dtype=torch.float64)]
    for step in reversed(steps):
        ways.append((step + ways[-1][space.next_context]).logsumexp(-1))
    ways.reverse()
    firsts = space.decode(torch.arange(space.n_contexts))
    possible = mask[:order][torch.arange(order), firsts].all(-1)
    possible &= torch.tensor([not _holds_banned(allowed, first) for first in firsts.tolist()])
    starts = ways[0].masked_fill(~possible, -torch.inf)
    require(bool((starts > -torch.inf).any()), f"no allowed prompt of {length} tokens exists")
    context = torch.multinomial(starts.softmax(0), n, replacement=True, generator=generator)
    tokens = list(firsts[context].unbind(-1))
    for step, after in zip(steps, ways[1:], strict=True):
        law = (step[context] + after[space.next_context[context]]).softmax(-1)
        tokens.append(torch.multinomial(law, 1, generator=generator)[:, 0])
        context = space.next_context[context, tokens[-1]]
    return torch.stack(tokens, -1)


def _log_steps(
    allowed: AllowedPrompts, space: ContextSpace, mask: Bool[Tensor, "V"]
) -> Float[Tensor, "C V"]:
    """0 for each token that may follow each context at a place, else -inf."""
    contexts = space.decode(torch.arange(space.n_contexts))
    log_steps = torch.zeros(space.n_contexts, space.vocab_size, dtype=torch.float64)
    log_steps[:, ~mask] = -torch.inf
    for *body, token in allowed.banned:
        tail = contexts[:, space.order - len(body) :]
        ending = (tail == torch.tensor(body, dtype=torch.long)).all(-1)
        log_steps[ending, token] = -torch.inf
    return log_steps


def _holds_banned(allowed: AllowedPrompts, tokens: list[int]) -> bool:
    return any(
        tuple(tokens[at : at + len(gram)]) == gram
        for gram in allowed.banned
        for at in range(len(tokens) - len(gram) + 1)
    )


def _mended(
    allowed: AllowedPrompts, prompt: Int[Tensor, "m"], generator: torch.Generator
) -> Int[Tensor, "m"]:
    """A walk towards fewer violations, by one token changed or two exchanged; begun anew when it
    has taken too long."""
    length = len(prompt)
    mask = allowed.token_mask(length)
    for _ in range(MENDING_STARTS):
        broken = int(allowed.violations(prompt[None]))
        for _ in range(4 * length):
            if broken == 0:
                return prompt
            near = _neighbours(prompt, mask, generator)
            faults = allowed.violations(near)
            least = (faults == faults.min()).nonzero().flatten()
            pick = least[torch.randint(len(least), (1,), generator=generator)]
            prompt, broken = near[pick][0], int(faults[pick])
        prompt = _spelled(allowed, length, 1, generator)[0]
    raise InputError(f"no allowed prompt of {length} tokens was found")


def _neighbours(
    prompt: Int[Tensor, "m"], mask: Bool[Tensor, "m V"], generator: torch.Generator
) -> Int[Tensor, "K m"]:
    """Prompts with one token changed to one that may stand there, or two tokens exchanged."""
    changes = mask.nonzero()
    if len(changes) > MENDING_CHANGES:
        changes = changes[torch.randperm(len(changes), generator=generator)[:MENDING_CHANGES]]
    changed = prompt.repeat(len(changes), 1)
    changed[torch.arange(len(changes)), changes[:, 0]] = changes[:, 1]
    pairs = torch.randint(len(prompt), (len(changes), 2), generator=generator)
    exchanged = prompt.repeat(len(pairs), 1)
    rows = torch.arange(len(pairs))
    exchanged[rows, pairs[:, 0]] = prompt[pairs[:, 1]]
    exchanged[rows, pairs[:, 1]] = prompt[pairs[:, 0]]
    return torch.cat([changed, exchanged])
