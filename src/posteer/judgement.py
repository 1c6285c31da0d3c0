"""How good a given prompt is on a model, alone and among all prompts of its length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from posteer.evaluation import expected_utility, landscape
from posteer.latents.sampling import pick_device
from posteer.models import SequenceModel, complete, condition, open_model
from posteer.objectives import open_goal
from posteer.problem import Progress, parse_context, parse_prompt
from posteer.utilities import Utility


def opened_model(model: str | SequenceModel | Any, device: str) -> Any:
    """A model by name, or one that was given, with defaults for what it lacks."""
    return open_model(model, pick_device(device)) if isinstance(model, str) else complete(model)


def public_record(record: Any) -> dict[str, Any]:
    """What a record shows to machines; conditions that were not given are left out."""
    hidden = {"exact", "vocab_size", "n_prompts", "history", "phases"}
    hidden |= {"surrogate_history", "ess_history"}
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in vars(record).items()
        if key not in hidden and (value or key not in ("context", "allowed"))
    }


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How good a given prompt is, alone and among all prompts of its length."""

    model: str
    utility: str
    horizon: int
    prompt: list[int]
    expected_utility: float
    standard_error: float
    rank: int | None
    optimum: float | None
    exact: bool = field(repr=False)
    vocab_size: int = field(repr=False)
    n_prompts: int | None = field(repr=False)
    context: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The keys promised to machines."""
        return public_record(self)


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
