"""How good a given prompt is on a model, alone and among all prompts of its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posteer.api.judging import Judge
from posteer.core.device import undisturbed
from posteer.core.limits import MOST_HORIZON, MOST_SEED, MOST_TOKENS
from posteer.core.showing import Watch, watched
from posteer.core.spec import within
from posteer.core.userfiles import leaving
from posteer.goals.utilities import open_goal
from posteer.models.conditioned import condition
from posteer.models.registry import open_model
from posteer.results import Judgement
from posteer.tokens.prompts import parse_context, parse_prompt


@undisturbed()
@watched
def evaluate(
    model: Any,
    utility: Any,
    prompt: str | Sequence[int] | Any,
    *,
    horizon: int | Any = 4,
    seed: int | Any = 0,
    context: str | Sequence[int] | Any = (),
    rank: bool | None = None,
    device: str | Any = "auto",
    alphabet: str | Sequence[str | int] | Any = None,
    text: str | Any = "",
    progress: Watch = None,
) -> Judgement:
    """How good a given prompt is on a model, alone and among all prompts of its length.

    >>> evaluate("exact:urn", "dyck", "010101").rank
    1

    Args:
        model: a name such as `urn` or `exact:urn`, a folder, `./file.py:name`, or an object.
        utility: a name such as `dyck`, `./file.py:function`, or a function of a continuation.
        prompt: its tokens as text (`010101`; separated by commas past ten symbols) or as a list.
        horizon: how many tokens of the continuation are judged.
        seed: seed of sampled continuations, where they are too many to list.
        context: tokens that the model has read before the prompt.
        rank: whether it is ranked among all prompts; by default where that is exact or cheap.
        device: where a network runs: auto, cpu or cuda.
        alphabet: tokens that a language model is steered over; of any other model their names.
        text: what a language model reads before everything.
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
    """
    horizon = within(horizon, "horizon", 1, MOST_HORIZON)
    opened = open_model(model, device, alphabet=alphabet, text=text)
    observed = parse_context(context, opened.vocabulary)
    opened = condition(opened, observed)
    goal = open_goal(utility, opened)
    tokens = parse_prompt(prompt, opened.vocabulary)
    within(len(tokens), "length of the prompt", 1, MOST_TOKENS)
    seed = within(seed, "seed", -MOST_SEED, MOST_SEED)
    judge = Judge(opened, len(tokens), horizon, rank=rank)
    with leaving(opened.name):
        (judged,), asked = judge.judge([goal], tokens[None], [seed], progress)
    return Judgement(
        model=opened.name,
        utility=goal.name,
        horizon=horizon,
        prompt=tokens.tolist(),
        context=list(observed),
        judged=judged,
        judging_tokens=asked,
        text=opened.text,
        vocabulary=opened.vocabulary,
    )
