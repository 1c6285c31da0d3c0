"""Does the order of the past matter where it should not?

Two blocks of a sequence that start in the same context and end in the same context can trade places
without changing any transition count. A Bayes filter of that order gives both sequences the same
probability and predicts the same next token after either. There is no chance in that: what exceeds
rounding is a deviation. A trained network has some, so the vote is on its size.

The size that votes is the `lean`, |p - p'| / (p + p') for a sequence and its swap: 0 if order tells
nothing, 1 if one of them is impossible. Half its mean is the total variation between the model and
the nearest law that does not know the order of what was swapped, so the mean of a utility between 0
and 1, however far it reads, differs by no more than that. `MATTERS` allows odds of 55 to 45, which
is 0.05 of such a utility over the whole length; the p-value is for a mean lean below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.banks.checks.statistics import Interval, mean_interval, upper_tail
from posteer.banks.checks.tracing import trace
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.family import markov_space
from posteer.models.protocol import Model
from posteer.tokens.contexts import ContextSpace

TOKENS_AT_ONCE = 2**16

MATTERS = 0.1
"""The mean lean up to which it does not matter for steering that order tells something."""


@dataclass(frozen=True)
class ExchangeabilityCheck:
    """Rollouts of the model against themselves with blocks swapped.

    `size` is the mean absolute change of the log-probability in nats a sequence, over sequences in
    which something could be swapped (`moved` of them; `swaps` a sequence on average); `drift` its
    signed mean; `largest` the largest; `next_token` the mean total variation between the laws that
    follow.
    `impossible` counts swapped sequences of probability zero, which are left out of these means.
    `rounding` is what arithmetic alone may do; `exact` whether nothing exceeds it.
    `lean` is the mean lean, the impossible included, and `p_value` that of one above `threshold`.
    """

    sequences: int
    length: int
    moved: int
    swaps: float
    impossible: int
    size: Interval
    drift: Interval
    largest: float
    next_token: float
    rounding: float
    exact: bool
    differences: list[float]
    lean: Interval
    threshold: float
    p_value: float

    @property
    def told(self) -> bool:
        """Whether enough could be swapped to tell."""
        return self.moved >= self.sequences / 4

    @property
    def verdict(self) -> str:
        """In words, for the report."""
        if not self.told:
            return "too few equal contexts to swap blocks"
        if self.impossible:
            return f"{self.impossible} swapped sequences are impossible"
        if self.exact:
            return "exchangeable to rounding"
        return (
            f"swaps move {self.length} tokens by {self.size.value:.2g} nats "
            f"(lean {self.lean.value:.2g}, matters past {self.threshold:g})"
        )


def check_exchangeability(
    model: Model, *, rollouts: int, length: int, seed: int, swaps: int = 8
) -> ExchangeabilityCheck:
    """Swap blocks of the model's own rollouts and see what that does to their probability."""
    space = markov_space(model.family, "swapping blocks")
    generator, stream = torch_stream(seed, "swap-check"), numpy_stream(seed, "swap-check")
    differences, variations, moved, done = [], [], 0, 0
    size = max(1, min(model.batch_limit(length), TOKENS_AT_ONCE // length))
    epsilon = 0.0
    for start in range(0, rollouts, size):
        n = min(size, rollouts - start)
        empty = torch.zeros(n, 0, dtype=torch.long)
        own = trace(model, empty, length, generator).tokens
        pairs = [swap_blocks(space, row, stream, swaps) for row in own]
        swapped = torch.stack([row for row, _ in pairs])
        changed = (swapped != own).any(1)
        done += sum(count for _, count in pairs)
        moved += int(changed.sum())
        if not bool(changed.any()):
            continue
        own, swapped = own[changed], swapped[changed]
        first, second = model.log_predictive(own), model.log_predictive(swapped)
        epsilon = torch.finfo(first.dtype).eps
        differences.append(_log_probability(first, own) - _log_probability(second, swapped))
        variations.append((first[:, -1].exp() - second[:, -1].exp()).abs().sum(-1).cpu() / 2)
    none = torch.zeros(0, dtype=torch.float64)
    nats = torch.cat([none, *differences])
    possible = nats[torch.isfinite(nats)]
    rounding = 100 * epsilon * length
    leans = (nats.abs() / 2).tanh().nan_to_num(nan=1.0)
    return ExchangeabilityCheck(
        sequences=rollouts,
        length=length,
        moved=moved,
        swaps=done / rollouts,
        impossible=len(nats) - len(possible),
        size=mean_interval(possible.abs()),
        drift=mean_interval(possible),
        largest=float(possible.abs().max()) if len(possible) else math.nan,
        next_token=float(torch.cat([none, *variations]).nanmean()) if variations else math.nan,
        rounding=rounding,
        exact=len(nats) == 0 or bool((nats.abs() <= rounding).all()),
        differences=possible.tolist(),
        lean=mean_interval(leans) if len(leans) else Interval(0.0, 0.0, 0.0),
        threshold=MATTERS,
        p_value=p_value_beyond(leans, MATTERS) if moved >= rollouts / 4 else 1.0,
    )


def p_value_beyond(leans: Float[Tensor, "n"], threshold: float) -> float:
    """The chance of such leans if their mean were at most the threshold.

    Their spread is taken to be at least that of a mean at the threshold: few leans may be alike.
    """
    excess = float(leans.mean()) - threshold
    error = max(float(leans.std()) if len(leans) > 1 else 1.0, threshold) / math.sqrt(len(leans))
    return upper_tail(excess / error)


def _log_probability(laws: Tensor, tokens: Int[Tensor, "B T"]) -> Tensor:
    laws = laws[:, :-1].double().cpu()
    return laws.gather(-1, tokens[..., None].cpu()).squeeze(-1).sum(-1)


def swap_blocks(
    space: ContextSpace, tokens: Int[Tensor, "T"], stream: np.random.Generator, swaps: int
) -> tuple[Int[Tensor, "T"], int]:
    """The sequence after random block swaps, and how many of `swaps` could be made."""
    row, made = tokens.numpy().copy(), 0
    for _ in range(swaps):
        found = _two_blocks(space.contexts_of(torch.from_numpy(row)).numpy(), stream)
        if found is None:
            continue
        i, j, p, q = (at + space.order for at in found)
        row = np.concatenate([row[:i], row[p:q], row[j:p], row[i:j], row[q:]])
        made += 1
    return torch.from_numpy(row), made


def _two_blocks(
    contexts: np.ndarray, stream: np.random.Generator, tries: int = 20
) -> tuple[int, int, int, int] | None:
    """i < j <= p < q with equal contexts at i and p and at j and q, or None if none was found."""
    met = contexts.tolist()
    last = {context: at for at, context in enumerate(met)}
    until = np.array([last[context] for context in met])
    again = np.flatnonzero(until > np.arange(len(until)))
    for _ in range(tries if len(again) else 0):
        i = int(stream.choice(again))
        p = int(stream.choice(np.flatnonzero(contexts[i + 1 :] == contexts[i]) + i + 1))
        ends = until[i + 1 : p + 1] > p
        if not ends.any():
            continue
        j = int(stream.choice(np.flatnonzero(ends) + i + 1))
        q = int(stream.choice(np.flatnonzero(contexts[p + 1 :] == contexts[j]) + p + 1))
        return i, j, p, q
    return None
