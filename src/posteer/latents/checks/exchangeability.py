"""Does the order of the past matter where it should not?

Two blocks of a sequence that start in the same context and end in the same context can trade places
without changing any transition count. A Bayes filter of that order gives both sequences the same
probability and predicts the same next token after either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.kernels import ContextSpace
from posteer.latents.checks.statistics import Interval, mean_interval
from posteer.latents.checks.tracing import trace
from posteer.models.base import SequenceModel
from posteer.randomness import numpy_stream, torch_stream
from posteer.shapes import Int

ROUNDING = 1e-9
"""Nats below which a difference is floating-point noise of exact arithmetic."""


@dataclass(frozen=True)
class ExchangeabilityCheck:
    """Rollouts of the model against themselves with blocks swapped.

    `gap` is the mean of log P(sequence) - log P(swapped) in nats a sequence: a Kullback-Leibler
    divergence, so 0 for an exchangeable model and positive otherwise; `p_value` is one-sided.
    `size` is the mean absolute difference, `largest` the largest; `next_token` the mean total
    variation between the laws that follow.
    """

    sequences: int
    length: int
    swaps: int
    gap: Interval
    size: float
    largest: float
    next_token: float
    p_value: float
    differences: list[float]


def check_exchangeability(
    model: SequenceModel, *, rollouts: int, length: int, seed: int, swaps: int = 8
) -> ExchangeabilityCheck:
    generator, stream = torch_stream(seed, "swap-check"), numpy_stream(seed, "swap-check")
    differences, variations = [], []
    size = max(1, model.batch_limit(length))
    for start in range(0, rollouts, size):
        n = min(size, rollouts - start)
        empty = torch.zeros(n, 0, dtype=torch.long)
        own = trace(model, empty, length, generator).tokens
        swapped = torch.stack([swap_blocks(model.space, row, stream, swaps) for row in own])
        first, second = model.log_predictive(own), model.log_predictive(swapped)
        difference = _log_probability(first, own) - _log_probability(second, swapped)
        differences.append(difference)
        variations.append((first[:, -1].exp() - second[:, -1].exp()).abs().sum(-1).cpu() / 2)
    nats = torch.cat(differences)
    gap = mean_interval(nats)
    error = float(nats.std()) / math.sqrt(len(nats))
    rounding = float(nats.abs().max()) < ROUNDING
    p_value = 1.0 if rounding else 0.5 * math.erfc(gap.value / error / math.sqrt(2))
    return ExchangeabilityCheck(
        sequences=rollouts,
        length=length,
        swaps=swaps,
        gap=gap,
        size=float(nats.abs().mean()),
        largest=float(nats.abs().max()),
        next_token=float(torch.cat(variations).mean()),
        p_value=p_value,
        differences=nats.tolist(),
    )


def _log_probability(laws: Tensor, tokens: Int[Tensor, "B T"]) -> Tensor:
    laws = laws[:, :-1].double().cpu()
    return laws.gather(-1, tokens[..., None].cpu()).squeeze(-1).sum(-1)


def swap_blocks(
    space: ContextSpace, tokens: Int[Tensor, "T"], stream: np.random.Generator, swaps: int
) -> Int[Tensor, "T"]:
    """The sequence after some random block swaps, or as many as could be found."""
    row = tokens.numpy().copy()
    for _ in range(swaps):
        contexts = space.contexts_of(torch.from_numpy(row)).numpy()
        n = len(contexts)  # contexts[i] stands before row[order + i]
        for _ in range(20):
            i, j, p, q = np.sort(stream.integers(0, n, 4))
            if i < j <= p < q and contexts[i] == contexts[p] and contexts[j] == contexts[q]:
                at = space.order
                left, middle = row[at + i : at + j], row[at + j : at + p]
                right = row[at + p : at + q]
                row = np.concatenate([row[: at + i], right, middle, left, row[at + q :]])
                break
    return torch.from_numpy(row)
