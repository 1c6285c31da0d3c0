"""How good a given prompt is on a model, alone and among all prompts of its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from posteer.core.device import pick_device
from posteer.core.progress import Progress
from posteer.evaluation import expected_utility, landscape
from posteer.goals.objectives import open_goal
from posteer.goals.protocol import Utility
from posteer.models import SequenceModel, complete, condition, open_model
from posteer.results import Judgement
from posteer.tokens.prompts import parse_context, parse_prompt


def opened_model(model: str | SequenceModel | Any, device: str) -> Any:
    """A model by name, or one that was given, with defaults for what it lacks."""
    return open_model(model, pick_device(device)) if isinstance(model, str) else complete(model)


def judge(
    model: str | SequenceModel | Any,
    utility: str | Utility | Callable[..., float],
    prompt: str | Sequence[int],
    *,
    horizon: int = 4,
    seed: int = 0,
    context: str | Sequence[int] = (),
    device: str = "cpu",
    progress: Progress | None = None,
) -> Judgement:
    """Evaluate a prompt given as text (`010101`) or as tokens, after the tokens of `context`.

    >>> judge("exact:urn", "dyck", "010101").rank
    1
    """
    opened = opened_model(model, device)
    observed = parse_context(context, opened.space.vocab_size)
    opened = condition(opened, observed)
    chosen = open_goal(utility, opened.space)
    vocab_size = opened.space.vocab_size
    tokens = parse_prompt(prompt, vocab_size) if isinstance(prompt, str) else torch.tensor(prompt)
    judged = expected_utility(opened, chosen, tokens[None], horizon, seed=seed)
    among = landscape(opened, chosen, len(tokens), horizon, progress)
    value = float(judged.expected_utility[0])
    return Judgement(
        model=opened.name,
        utility=chosen.name,
        horizon=horizon,
        prompt=tokens.tolist(),
        expected_utility=value,
        standard_error=float(judged.standard_error[0]),
        rank=None if among is None else among.rank(value),
        optimum=None if among is None else among.optimum,
        exact=judged.exact,
        vocab_size=vocab_size,
        n_prompts=None if among is None else among.n_prompts,
        context=list(observed),
    )
