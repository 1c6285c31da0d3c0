"""What a model should be asked about: prompts of the best classes, allowed ones and alike first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from posteer.core import Int
from posteer.families.markov.prompt_classes import ClassProblem, with_head
from posteer.families.markov.walks import every_walk
from posteer.methods.climbing.search import BestClasses
from posteer.tokens.contexts import count_transitions

NEAR = 5.0
"""Standard errors behind the best up to which a class is worth asking the model about."""

MOST_ALIKE = 1000
"""Prompts of one class that are looked through for allowed ones."""


def candidates_of(asked: ClassProblem, found: BestClasses) -> Int[Tensor, "K m"]:
    """What a model should be asked about: classes that errors cannot tell from the best, then, in
    turn, other prompts of those classes, which a model may yet tell apart, then other classes.

    The least prompt of the best class comes first; the others begin like it as far as they can.
    """
    errors = found.scores.standard_error
    doubt = NEAR * torch.hypot(errors[0], errors).nan_to_num(nan=torch.inf)
    is_near = found.scores.value[0] - found.scores.value <= doubt
    wanted = len(found.prompts)
    first = next(_alike(asked, found.prompts[0]))
    chosen: list[tuple[int, ...]] = []
    alike = [_alike(asked, prompt, first) for prompt in found.prompts[is_near]]
    while alike and len(chosen) < wanted:
        for others in list(alike):
            prompt = next(others, None)
            if prompt is None:
                alike.remove(others)
            elif len(chosen) < wanted:
                chosen.append(prompt)
    farther = found.prompts[~is_near][: wanted - len(chosen)]
    return torch.tensor(chosen + [next(_alike(asked, prompt, first)) for prompt in farther])


def _alike(
    asked: ClassProblem, prompt: Int[Tensor, "m"], model: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Allowed prompts with the same counts and ends, those that begin like a `model` first; or only
    this one where none is found in time."""
    ends, head, own = asked.ends, asked.head, tuple(prompt.tolist())
    walk = with_head(head, prompt[None])
    met = False
    counts_tell = asked.allowed is None or asked.decided  # else most prompts of a class may be bad
    if walk.shape[1] > ends.order and counts_tell:
        counts = count_transitions(ends, walk)[0].long()
        first = walk[0, : ends.order]
        like = (*head, *model)[ends.order :]
        walks = every_walk(ends, counts, int(ends.encode(first)), like)
        for tokens in islice(walks, MOST_ALIKE):
            found = torch.cat([first, torch.tensor(tokens)])[len(head) :]
            if asked.allowed is None or bool(asked.allowed.allows(found[None])):
                met = True
                yield tuple(found.tolist())
    if not met:
        yield own
