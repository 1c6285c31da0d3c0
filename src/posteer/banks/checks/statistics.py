"""The few tests the checks need, on torch alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95 % interval."""

    value: float
    low: float
    high: float


def two_sample_ks(first: Float[Tensor, "n"], second: Float[Tensor, "k"]) -> tuple[float, float]:
    """The Kolmogorov-Smirnov distance and its asymptotic p-value.

    With ties the p-value is conservative: alarms are rarer than it says.
    """
    first, second = first.sort().values, second.sort().values
    at = torch.cat([first, second])
    below_first = torch.searchsorted(first, at, right=True).double() / len(first)
    below_second = torch.searchsorted(second, at, right=True).double() / len(second)
    distance = float((below_first - below_second).abs().max())
    size = len(first) * len(second) / (len(first) + len(second))
    return distance, kolmogorov_tail(distance * (math.sqrt(size) + 0.12 + 0.11 / math.sqrt(size)))


def kolmogorov_tail(x: float) -> float:
    """P(K > x) for Kolmogorov's limit."""
    if x < 0.2:
        return 1.0
    terms = ((-1) ** (j - 1) * math.exp(-2 * j * j * x * x) for j in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms)))


def wasserstein(first: Float[Tensor, "n"], second: Float[Tensor, "k"]) -> float:
    """W1 on the line: the area between the two distribution functions."""
    first, second = first.sort().values, second.sort().values
    at = torch.cat([first, second]).sort().values
    below_first = torch.searchsorted(first, at[:-1], right=True).double() / len(first)
    below_second = torch.searchsorted(second, at[:-1], right=True).double() / len(second)
    return float(((below_first - below_second).abs() * at.diff()).sum())


def normal_tail(z: float) -> float:
    """Two-sided p-value of a standard normal."""
    return math.erfc(abs(z) / math.sqrt(2))


def upper_tail(z: float) -> float:
    """One-sided p-value of a standard normal."""
    return math.erfc(z / math.sqrt(2)) / 2


def normal_quantile(p: float) -> float:
    """The z below which a standard normal is with probability `p`."""
    return float(torch.special.ndtri(torch.tensor(p, dtype=torch.float64)))


def student_tail(t: Float[Tensor, "*n"], degrees: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Two-sided p-values of Student's t, by Wallace's normal deviate."""
    deviate = (degrees * (t.square() / degrees).log1p()).sqrt()
    return torch.special.erfc(deviate * (8 * degrees + 1) / (8 * degrees + 3) / math.sqrt(2))


def effective_size(values: Float[Tensor, "n"]) -> float:
    """How many values the variance rests on: few where all but rare surprises are alike, and then
    a normal interval is not to be trusted."""
    squares = values.square()
    total = float(squares.square().sum())
    return float(squares.sum()) ** 2 / total if total > 0 else 0.0


def mean_interval(values: Float[Tensor, "n"]) -> Interval:
    """Mean with a normal 95 % interval."""
    mean = float(values.mean())
    error = 1.96 * float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Interval(mean, mean - error, mean + error)


def uniformity(ranks: Int[Tensor, "n"], n_ranks: int, n_bins: int) -> float:
    """Chi-square p-value for ranks uniform on 0 .. n_ranks - 1, in equal bins."""
    bins = ranks * n_bins // n_ranks
    seen = torch.bincount(bins, minlength=n_bins).double()
    expected = len(ranks) / n_bins
    statistic = ((seen - expected) ** 2 / expected).sum()
    shape = torch.tensor((n_bins - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(shape, statistic / 2))


def least_noncentrality(bins: int, level: float, chance: float) -> float:
    """Of a chi-square with so many bins, that which is seen at `level` with a `chance`."""
    shape = (bins - 1) / 2
    critical = _bisect(lambda x: -_gamma_tail(shape, x), -level, 0.0, 1e4)

    def power(noncentrality: float) -> float:
        half, total, weight = noncentrality / 2, 0.0, math.exp(-noncentrality / 2)
        for j in range(int(half + 10 * math.sqrt(half) + 30)):
            total += weight * _gamma_tail(shape + j, critical)
            weight *= half / (j + 1)
        return total

    return _bisect(power, chance, 0.0, 500.0)


def _gamma_tail(shape: float, x: float) -> float:
    at = torch.tensor([shape, x / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(at[0], at[1]))


def _bisect(rising: Callable[[float], float], goal: float, low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < goal else (low, middle)
    return high


def bonferroni(p_values: list[float]) -> float:
    """The smallest p-value times their number, at most 1: valid however they depend."""
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0
