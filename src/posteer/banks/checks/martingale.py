"""Does the model expect to change its mind?

Under exact Bayes the probability of a token after a context is a martingale over the visits to that
context: today's prediction is the mean of tomorrow's. Rollouts of the model itself are stopped at
their 1st, 2nd, 4th, 8th .. visit; a drift between stops, or one that follows how extreme the
prediction is, is incoherence. Drift away from the middle piles the implied prior up at the corners.

Some rollouts do not come back, and what they would have come back with must not be left out. Where
rows are independent a rollout can be led to the context at its end: what it is led by tells nothing
about the row. Elsewhere the lost change is allowed to be anything it can be, which costs power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.checks.statistics import Interval, bonferroni, effective_size, normal_tail
from posteer.banks.checks.tracing import Trace, trace
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Bool, Float, Int
from posteer.families.markov.family import markov_space
from posteer.models.protocol import Model
from posteer.tokens.contexts import ContextSpace


@dataclass(frozen=True)
class Drift:
    """Between two visits to a context, of one token's probability.

    `mean` is the drift; `outward` its slope on the distance from uniform: 0.01 means that a
    prediction 0.4 above uniform is expected to end 0.404 above it. `error` is the standard error of
    `mean`, `slack` what else it may be off by.
    """

    context: int
    token: int
    from_visit: int
    to_visit: int
    rollouts: int
    mean: Interval
    outward: Interval
    error: float
    slack: float
    p_value: float


@dataclass(frozen=True)
class MartingaleCheck:
    """All drifts; `p_value` is corrected for their number."""

    rollouts: int
    length: int
    drifts: list[Drift]
    p_value: float


def check_martingale(
    model: Model, *, rollouts: int, length: int, seed: int, independent_rows: bool
) -> MartingaleCheck:
    """`independent_rows`: whether a step from one context tells nothing about another's row."""
    space = markov_space(model.family, "the martingale check")
    generator = torch_stream(seed, "martingale-check")
    laws: list[list[Tensor]] = [[] for _ in range(space.n_contexts)]
    for n in _parts(rollouts, model.batch_limit(length + space.order) // 2):
        empty = torch.zeros(n, 0, dtype=torch.long)
        traced = trace(model, empty, length, generator)
        contexts = space.contexts_of(traced.tokens)
        for context in range(space.n_contexts):
            laws[context].append(
                _at_visits(model, space, traced, contexts, context, independent_rows)
            )
    drifts = [
        drift
        for context in range(space.n_contexts)
        for drift in _drifts(torch.cat(laws[context]), context, careful=not independent_rows)
    ]
    p_values = [drift.p_value for drift in drifts]
    return MartingaleCheck(rollouts, length, drifts, bonferroni(p_values))


def _parts(total: int, size: int) -> list[int]:
    size = max(1, size)
    return [min(size, total - start) for start in range(0, total, size)]


def _at_visits(
    model: Model,
    space: ContextSpace,
    traced: Trace,
    contexts: Int[Tensor, "B n"],
    context: int,
    lead: bool,
) -> Float[Tensor, "B S V"]:
    """The law at visit 1, 2, 4, .. to a context; nan from the first visit that never came on.

    With `lead` the first missing visit of a rollout is that at its end.
    """
    n, length = traced.tokens.shape
    visited = contexts[:, :-1] == context  # before each token from the order-th on
    nth = visited.cumsum(1) * visited
    nowhere = torch.full_like(traced.laws[:, 0], math.nan)
    at_end = _led_to(model, space, traced, contexts[:, -1], context) if lead else nowhere
    stops = []
    filled = torch.zeros(n, dtype=torch.bool)
    for visit in (2**i for i in range(length.bit_length())):
        found = nth == visit
        came = found.any(1)
        when = found.int().argmax(1) + space.order
        law = traced.laws[torch.arange(n), when]
        law = torch.where(came[:, None], law, torch.where(filled[:, None], math.nan, at_end))
        stops.append(law)
        filled |= ~came
    return torch.stack(stops, 1)


def _led_to(
    model: Model, space: ContextSpace, traced: Trace, last: Int[Tensor, "B"], context: int
) -> Float[Tensor, "B V"]:
    """The law on arrival at a context from the end of each rollout.

    A rollout that arrives early is not led on: a step from the context would be an observation of
    the very row that is asked for.
    """
    n = len(last)
    state = traced.state.select(torch.arange(n))
    law = state.log_probs.double().exp().cpu()
    arrived = last == context
    for token in space.decode(torch.tensor(context)).tolist():
        now, state = model.advance(state, torch.full((n,), token))
        last = space.next_context[last, token]
        fresh = ~arrived & (last == context)
        law = torch.where(fresh[:, None], now.double().exp().cpu(), law)
        arrived |= fresh
    return law


def _drifts(
    laws: Float[Tensor, "B S V"], context: int, careful: bool, least: int = 30
) -> list[Drift]:
    drifts = []
    for stop in range(laws.shape[1] - 1):
        for token in range(1, laws.shape[2]):
            before, after = laws[:, stop, token], laws[:, stop + 1, token]
            here = ~before.isnan()
            before, change = before[here], (after - before)[here]
            lost = change.isnan()
            change = change.masked_fill(lost, 0.0)
            steady = float(change.std()) < 1e-9 if len(change) > 1 else False
            if len(change) < least or (effective_size(change) < least and not steady):
                continue
            away = before - 1 / laws.shape[2]
            mean, mean_z = _estimate(change, torch.ones_like(change), lost, careful)
            outward, outward_z = _estimate(change, away, lost, careful)
            error = float(change.std()) / math.sqrt(len(change))
            drifts.append(
                Drift(
                    context=context,
                    token=token,
                    from_visit=2**stop,
                    to_visit=2 ** (stop + 1),
                    rollouts=len(change),
                    mean=mean,
                    outward=outward,
                    error=error,
                    slack=mean.high - mean.value - 1.96 * error,
                    p_value=bonferroni([normal_tail(mean_z), normal_tail(outward_z)]),
                )
            )
    return drifts


UNSEEN = 7.0
"""A jump met by none of n rollouts has a chance below 7 / n, but for once in a thousand times."""


def _estimate(
    change: Float[Tensor, "n"], along: Float[Tensor, "n"], lost: Bool[Tensor, "n"], careful: bool
) -> tuple[Interval, float]:
    """The coefficient of `change` on `along` with its interval, and its z-score.

    A lost change may have been anything up to 1 in size, so it is taken to be what brings the
    coefficient nearest to zero. `careful` also allows for a jump of size 1 that nobody met: nothing
    bounds how suddenly the posterior of an unknown prior can turn.
    """
    scale = float(along.square().sum())
    if scale < 1e-4 * len(along):  # all predictions near uniform still: no direction to drift in
        return Interval(0.0, 0.0, 0.0), 0.0
    value, error = _regress(change, along, scale)
    slack = UNSEEN * float(along.abs().max()) / scale if careful else 0.0
    worst = torch.where(lost, -math.copysign(1.0, value) * along.sign(), change)
    least, least_error = _regress(worst, along, scale)
    excess = max(0.0, math.copysign(1.0, value) * least - slack)
    z = 0.0 if excess < 1e-9 else excess / max(least_error, 1e-12)
    reach = 1.96 * error + float(along[lost].abs().sum()) / scale + slack
    return Interval(value, value - reach, value + reach), z


def _regress(
    change: Float[Tensor, "n"], along: Float[Tensor, "n"], scale: float
) -> tuple[float, float]:
    value = float((change * along).sum()) / scale
    residual = (change - value * along) * along
    return value, float(residual.square().sum().sqrt()) / scale
