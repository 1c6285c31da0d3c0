"""Does it pay to try all prompts on the model, rather than to work on latents?

Of a bank that is still to be drawn the price is model tokens. Where its size is found out by time,
trying all is timed on a few prompts. Latents of a known prior cost no tokens but operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from posteer.banks.plans import DrawPlan
from posteer.banks.sizing import is_sized, least_of, most_of
from posteer.core.randomness import torch_stream
from posteer.evaluation import tokens_of_landscape
from posteer.families.markov.family import MarkovFamily
from posteer.methods.answers import Because, Reason
from posteer.methods.protocol import Problem
from posteer.models.continuations import continuation_laws
from posteer.models.protocol import Can

TIMED = 8
"""Prompts that the model is asked about to see how fast it is, twice: the first time warms up."""

PASSES = 1000
"""How often estimators pass over a bank's tables until one is chosen and its errors are known."""

DEAR = 2**27
"""Numbers passed over, beyond which working on latents takes seconds."""

FEWEST_LATENTS = 256
"""A budget that does not pay for a bank of so many is better spent on a search."""

Clock = Callable[[], float]


def price_of_all(problems: list[Problem]) -> int | None:
    """Model tokens that trying all prompts takes for every goal; None where they are too many, or
    a budget is less."""
    first = problems[0]
    price = tokens_of_landscape(first.model, first.length, first.horizon, first.allowed)
    budget = first.max_model_tokens
    if price is None or (budget is not None and price > budget):
        return None
    return price * len({id(problem.goal) for problem in problems})


def cheaper_than_bank(
    problems: list[Problem], plan: DrawPlan, clock: Clock | None = time.perf_counter
) -> Reason | None:
    """Why all prompts are tried rather than a bank drawn; None where that is not so. Without a
    clock, as where a bank was drawn already, tokens alone decide."""
    price, base = price_of_all(problems), problems[0].model.base
    if price is None or problems[0].request.save_bank is not None:
        return None
    sized, most = is_sized(base, plan), most_of(base, plan)
    least = (least_of(base, plan, FEWEST_LATENTS) if sized else most).price(base)
    if price <= least:
        return Reason(Because.ALL_CHEAPER, {"tokens": price, "bank": least})
    if clock is None or not sized or price > most.price(base):
        return None
    seconds = seconds_of_all(problems[0], price, clock)
    quick = seconds is not None and seconds <= plan.seconds
    return Reason(Because.ALL_QUICKER, {"tokens": price}) if quick else None


def seconds_of_all(problem: Problem, price: int, clock: Clock) -> float | None:
    """What so many tokens take at the speed of a few prompts; None if a budget has no room."""
    model, budget = problem.model, problem.max_model_tokens
    each = model.tokens_of(problem.length, problem.horizon)
    if budget is not None and price + 2 * TIMED * each > budget:
        return None
    generator = torch_stream(problem.seed, "timed-prompts")
    prompts = torch.randint(problem.vocab_size, (TIMED, problem.length), generator=generator)
    continuation_laws(model, prompts, problem.horizon)
    before, started = replace(model.queries), clock()
    continuation_laws(model, prompts, problem.horizon)
    asked = model.queries.since(before).total
    return (clock() - started) * price / max(asked, 1)


def quicker_than_latents(problems: list[Problem], n_latents: int) -> Reason | None:
    """The same on an exact model, whose prior is known: where estimators pass over large tables."""
    problem, price = problems[0], price_of_all(problems)
    family = problem.family
    if price is None or Can.EXACT not in problem.model.can or not isinstance(family, MarkovFamily):
        return None
    table = family.vocab_size ** (family.order + 1)
    dear = PASSES * n_latents * table > DEAR
    return Reason(Because.ALL_QUICKER, {"tokens": price}) if dear else None
