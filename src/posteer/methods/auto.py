"""`auto`: which method to use when none is asked for, and why, in one line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posteer.banks import DrawPlan, LatentBank
from posteer.banks.shipped import shipped_bank
from posteer.core.progress import Progress
from posteer.evaluation import ENUMERABLE_CONTINUATIONS
from posteer.families.markov.means import has_exact_mean
from posteer.goals.objectives import ForwardCrossEntropy
from posteer.goals.protocol import Utility
from posteer.methods.answers import Answer
from posteer.methods.protocol import Problem
from posteer.models import Metered, unconditioned

FEW_PROMPTS = 256
"""Prompts that are all tried where nothing but the model can tell them apart."""

SHORTEST_ROLLOUT = 64
"""Tokens a model must be able to read for its rollouts to tell latents apart."""


@dataclass(frozen=True, kw_only=True)
class Auto:
    """Chooses by the problems at hand, says so in its answers, and leaves the rest to the choice.

    `open_method` turns a method's name into a method. `verify` as in `elicit`.
    """

    open_method: Callable[[str], Any]
    bank: LatentBank | None = None
    allow_mismatch: bool = False
    device: str | None = None
    verify: int = 0
    analytic: bool = False
    candidates: int = 0

    def with_candidates(self, n: int) -> Auto:
        """The same, with at least so many candidates in its answers, if its choice has any."""
        return replace(self, candidates=n)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        first = problems[0]
        name, reason = choose_method(
            first.model,
            [problem.utility for problem in problems],
            first.length,
            first.horizon,
            self.bank,
            first.max_model_tokens,
        )
        solver = self.open_method(name)
        if hasattr(solver, "with_candidates"):
            solver = solver.with_candidates(self.candidates)
        given: dict[str, Any] = {}
        if self.bank is not None:
            given = {"bank": self.bank, "allow_mismatch": self.allow_mismatch}
        if self.device is not None and hasattr(solver, "device"):
            given["device"] = self.device
        answers = (replace(solver, **given) if given else solver).solve(problems, progress)
        return [
            replace(answer, choice=f"{name}: {reason}{_how_far(name, answer)}")
            for answer in answers
        ]


def choose_method(
    model: Metered,
    goals: Sequence[Utility | ForwardCrossEntropy],
    length: int,
    horizon: int,
    bank: object = None,
    budget: int | None = None,
) -> tuple[str, str]:
    """A method's name and the reason for it, by what is known of the model and the goals."""
    vocab = model.space.vocab_size
    asked = next((goal for goal in goals if isinstance(goal, ForwardCrossEntropy)), None)
    if asked is not None:
        return _search(model, length, horizon, budget, f"{asked.name} is no expected utility")
    base = unconditioned(model)
    room = math.inf if base.max_length is None else base.max_length + 1 - model.context_tokens
    draw = DrawPlan()
    rollout = int(min(draw.rollout_length, room))
    price = draw.n_samples * (model.context_tokens + rollout - 1)
    shipped = shipped_bank(base.fingerprint) is not None
    known = model.process is not None
    analytic = not (bank is not None or shipped) and known
    settings = ""
    if analytic:
        latents = "latents from its known prior"
    elif bank is not None or shipped:
        latents = "latents from the bank given" if bank is not None else "latents it ships with"
    elif rollout < SHORTEST_ROLLOUT:
        return _search(
            model,
            length,
            horizon,
            budget,
            f"{rollout - 1} tokens are left for it to read, too few to roll out",
        )
    elif budget is not None and price > budget:
        reason = f"{budget:,} model tokens do not pay for a bank ({price:,})"
        return _search(model, length, horizon, budget, reason)
    else:
        latents = f"latents by rolling it out ({price:,} model tokens, once)"
        settings = "" if rollout == draw.rollout_length else f"(rollout-length={rollout})"
    suffix = "-analytic" if analytic else ""
    inexact = [g.name for g in goals if isinstance(g, Utility) and not _exact(g, vocab, horizon)]
    if inexact:
        return (
            f"ppt{suffix}{settings}",
            f"{inexact[0]} has no exact mean at horizon {horizon}; {latents}",
        )
    return f"classes{suffix}{settings}", latents


def _exact(goal: Utility, vocab: int, horizon: int) -> bool:
    return has_exact_mean(goal, vocab, horizon)


def _how_far(name: str, answer: Answer) -> str:
    """Whether a search over classes could try them all."""
    if not name.startswith("classes"):
        return ""
    tried_all = (answer.stop_reason or "").startswith("all")
    return "; few enough classes to try all" if tried_all else "; it climbs: too many to try all"


def _search(
    model: Metered, length: int, horizon: int, budget: int | None, reason: str
) -> tuple[str, str]:
    vocab = model.space.vocab_size
    enumerable = vocab**horizon <= ENUMERABLE_CONTINUATIONS
    n_prompts = vocab ** min(length, 64)
    affordable = budget is None or n_prompts * model.tokens_of(length, horizon) <= budget
    if n_prompts <= FEW_PROMPTS and enumerable and affordable:
        return "exhaustive", f"{reason}, and there are {n_prompts:,} prompts"
    if model.gives_gradients and enumerable:
        return "gcg", f"{reason}, with gradients"
    return "coordinate", f"{reason}, without gradients"
