"""Latents that predict a model's own rollouts best, chosen without looking at any utility.

A filter's rollout settles on a latent, so the longer it is the better; a model that drifts forgets.
One half of the rollouts makes latents, the other is predicted by their posterior mixture, and the
halves change places. Order, how much of each rollout is counted, what is added to counts, and the
power of the likelihood by which latents are weighed are those that predict best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.family import MarkovFamily, MarkovLatents
from posteer.tokens.contexts import ContextSpace, count_transitions

ORDERS = range(4)
LARGEST_TABLE = 2**8
"""Probabilities of a kernel up to which an order is tried."""

SMOOTHINGS, FIRST_SMOOTHING = (0.1, 0.25, 0.5, 1.0, 2.0), 0.5
"""Counts that each token of a row begins with, and those that orders and lengths are tried with."""

TEMPERS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
SHORTEST = 8
"""Tokens of a rollout that are counted at the least."""

PREDICTED = 48
"""Tokens of each held-out rollout that are predicted: prompts are seldom longer."""

ROLLOUTS = 192
"""Rollouts that the choice is made on, in two halves."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How latents are read off rollouts, and weighed: `w ~ p**temper`."""

    order: int
    length: int
    smoothing: float
    temper: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The fit that predicts best: nats per token and their standard error over rollouts. With
    temper 1, what the best fit of each order, length and smoothing reaches; last, by temper."""

    fit: Fit
    log_likelihood: float
    error: float
    rollouts: int
    by_order: dict[float, float]
    by_length: dict[float, float]
    by_smoothing: dict[float, float]
    by_temper: dict[float, float]


def latents_by(fit: Fit, sequences: Int[Tensor, "L T"], vocab_size: int) -> MarkovLatents:
    """One latent a rollout: smoothed frequencies of its first tokens."""
    space = ContextSpace(vocab_size, fit.order)
    counts = count_transitions(space, sequences[:, : fit.length].long()) + fit.smoothing
    return MarkovLatents(space, counts / counts.sum(-1, keepdim=True))


def mixture_log_laws(
    latents: MarkovLatents, histories: Int[Tensor, "K T"], temper: float
) -> Float[Tensor, "K V"]:
    """The posterior mixture's next-token log-law after each history; uniform where that is shorter
    than the order.

    >>> kernels = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]]]).double()
    >>> coins = MarkovLatents(ContextSpace(2, 0), kernels)
    >>> mixture_log_laws(coins, torch.tensor([[0, 0]]), 1.0)[0].exp().tolist()[0] > 0.88
    True
    """
    vocab = latents.space.vocab_size
    if histories.shape[1] < latents.space.order:
        return torch.full((len(histories), vocab), -math.log(vocab), dtype=torch.float64)
    by_context = latents.kernels.double().log().permute(1, 0, 2)
    parts = []
    for some in histories.split(max(1, NUMBERS_AT_ONCE // (len(latents) * vocab))):
        log_weights = (temper * latents.log_likelihood(some)).log_softmax(-1)
        next_token = by_context[latents.space.suffix(some)]
        parts.append((log_weights[..., None] + next_token).logsumexp(1))
    return torch.cat(parts)


def predicted(
    latents: MarkovLatents,
    sequences: Int[Tensor, "M T"],
    tempers: tuple[float, ...] = (1.0,),
    skip: int | None = None,
) -> dict[float, Float[Tensor, "M n"]]:
    """`log p(x_t | x_<t)` of the posterior mixture along sequences, from token `skip` on, for each
    power of the likelihood."""
    space = latents.space
    skip = space.order if skip is None else skip
    log_kernels = latents.kernels.double().log().flatten(1)
    parts: dict[float, list[Tensor]] = {temper: [] for temper in tempers}
    size = max(1, NUMBERS_AT_ONCE // (len(latents) * sequences.shape[1]))
    for some in sequences.long().split(size):
        edges = space.contexts_of(some)[:, : some.shape[1] - space.order] * space.vocab_size
        edges = edges + some[:, space.order :]
        each = log_kernels.T[edges]
        before = each.cumsum(1) - each
        each, before = each[:, skip - space.order :], before[:, skip - space.order :]
        for temper in tempers:
            weights = (temper * before).log_softmax(-1)
            parts[temper].append((weights + each).logsumexp(-1))
    return {temper: torch.cat(part) for temper, part in parts.items()}


def tune(sequences: Int[Tensor, "L T"], vocab_size: int, seed: int = 0) -> Tuning:
    """The fit by which either half of the rollouts predicts the other best.

    Order and length are chosen first, then smoothing, then temper. Of lengths that cannot be told
    from the best, by a standard error, the longest is taken: of a filter that is right.
    """
    shuffled = torch.randperm(len(sequences), generator=torch_stream(seed, "tuning-halves"))
    kept = sequences[shuffled[:ROLLOUTS]]
    halves = (kept[::2], kept[1::2])
    width = sequences.shape[1]
    orders = [k for k in ORDERS if vocab_size ** (k + 1) <= LARGEST_TABLE and k < width // 2]
    skip = max(orders)

    def scores(fit: Fit, tempers: tuple[float, ...] = (1.0,)) -> Scores:
        found: dict[float, list[Tensor]] = {temper: [] for temper in tempers}
        for fitted, judged in (halves, halves[::-1]):
            latents = latents_by(fit, fitted, vocab_size)
            logs = predicted(latents, judged[:, :PREDICTED], tempers, skip)
            for temper, one in logs.items():
                found[temper].append(one.mean(1))
        return {replace(fit, temper=temper): torch.cat(one) for temper, one in found.items()}

    by_length: Scores = {}
    for order, length in product(orders, lengths_of(width)):
        by_length |= scores(Fit(order=order, length=length, smoothing=FIRST_SMOOTHING))
    best = _longest(by_length, _best(by_length))
    by_smoothing: Scores = {}
    for smoothing in SMOOTHINGS:
        by_smoothing |= scores(replace(best, smoothing=smoothing))
    by_temper = scores(_best(by_smoothing), TEMPERS)
    best = _best(by_temper)
    each = by_temper[best]
    return Tuning(
        fit=best,
        log_likelihood=float(each.mean()),
        error=float(each.std()) / len(each) ** 0.5,
        rollouts=len(each),
        by_order=_best_by(by_length, "order"),
        by_length=_best_by(by_length, "length"),
        by_smoothing=_best_by(by_smoothing, "smoothing"),
        by_temper=_best_by(by_temper, "temper"),
    )


Scores = dict[Fit, Float[Tensor, "M"]]
"""What each fit makes of every rollout, in nats per token."""


def _best(found: Scores) -> Fit:
    return max(found, key=lambda fit: float(found[fit].mean()))


def _longest(found: Scores, best: Fit) -> Fit:
    """The longest of the same order that is behind by no more than a standard error."""
    longer = [fit for fit in found if fit.order == best.order and fit.length > best.length]
    for fit in sorted(longer, key=lambda fit: -fit.length):
        behind = found[best] - found[fit]
        if float(behind.mean()) <= float(behind.std()) / len(behind) ** 0.5:
            return fit
    return best


def lengths_of(width: int) -> list[int]:
    """Lengths of which each is half as long again, or a third, as the one before."""
    steps = sorted({n << k for n in (SHORTEST, SHORTEST * 3 // 2) for k in range(20)})
    return [*(n for n in steps if n < width), width]


def tuned(bank: LatentBank, seed: int = 0) -> tuple[LatentBank, Tuning]:
    """A bank that keeps its rollouts, with the latents that predict best."""
    assert bank.sequences is not None, "the bank keeps no tokens"
    vocab = bank.latents.family.vocab_size
    found = tune(bank.sequences, vocab, seed)
    return fitted_by(found.fit, bank), found


def fitted_by(fit: Fit, bank: LatentBank) -> LatentBank:
    """The bank with latents read off its rollouts by another fit."""
    assert bank.sequences is not None, "the bank keeps no tokens"
    latents = latents_by(fit, bank.sequences, bank.latents.family.vocab_size)
    counts = count_transitions(latents.space, bank.sequences[:, : fit.length].long())
    return replace(
        bank,
        latents=latents,
        origin=replace(bank.origin, family=MarkovFamily(latents.space).text),
        counts=counts.to(torch.int32),
        snapshots={},
        temper=fit.temper,
        smoothing=fit.smoothing,
    )


def _best_by(found: Scores, name: str) -> dict[float, float]:
    """For each value of one setting the best that any of the others make of it."""
    best: dict[float, float] = {}
    for fit, values in found.items():
        key = float(getattr(fit, name))
        best[key] = max(float(values.mean()), best.get(key, -math.inf))
    return best
