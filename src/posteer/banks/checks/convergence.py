"""Do the frequencies of a rollout settle, and as fast as they should?"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.checks.reference import Reference
from posteer.banks.checks.statistics import Interval
from posteer.banks.drawn import LatentBank
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Int


@dataclass(frozen=True)
class ConvergenceCheck:
    """How far frequencies still move when a rollout is doubled.

    `moves[i]` is the root mean square change from `lengths[i]` to twice that, each row weighted by
    its visits, which makes up for rows seldom seen. `slope` is its exponent in the length: -1/2 if
    rollouts settle on a latent at the rate of counting, less where rows are first visited late.
    `exact` and `exact_slope` are those of exact rollouts of the same lengths, where known.
    """

    lengths: list[int]
    moves: list[float]
    slope: Interval
    exact: list[float] | None
    exact_slope: float | None


def check_convergence(
    bank: LatentBank, exact: Reference | None, seed: int, repeats: int = 200
) -> ConvergenceCheck | None:
    """None for a bank without earlier counts."""
    if bank.counts is None or len(bank.snapshots) < 2:
        return None
    counts = {**bank.snapshots, int(bank.origin.rollout_length or 0): bank.counts}
    lengths = sorted(counts)
    squares, seen = _moves(counts)
    generator = torch_stream(seed, "convergence-check")
    slopes = []
    for _ in range(repeats):
        rows = torch.randint(len(bank), (len(bank),), generator=generator)
        slopes.append(_slope(lengths, squares[rows], seen[rows]))
    found = torch.tensor(slopes, dtype=torch.float32)
    low, high = found.quantile(torch.tensor([0.025, 0.975], dtype=torch.float32)).tolist()
    known = None if exact is None else _moves(exact.counts)
    return ConvergenceCheck(
        lengths=lengths[:-1],
        moves=_root_mean(squares, seen),
        slope=Interval(_slope(lengths, squares, seen), low, high),
        exact=None if known is None else _root_mean(*known),
        exact_slope=None if known is None else _slope(lengths, *known),
    )


def _moves(counts: dict[int, Int[Tensor, "L C V"]]) -> tuple[Tensor, Tensor]:
    """Squared changes of the frequencies per rollout and doubling, weighted by visits; visits."""
    squares, seen = [], []
    ordered = [counts[length].double() for length in sorted(counts)]
    for earlier, later in itertools.pairwise(ordered):
        visits = earlier.sum(-1)
        before = earlier / visits.clamp(min=1)[..., None]
        after = later / later.sum(-1, keepdim=True).clamp(min=1)
        change = (after - before).square().mean(-1)
        squares.append((change * visits).sum(-1))
        seen.append(visits.sum(-1))
    return torch.stack(squares, 1), torch.stack(seen, 1)


def _root_mean(squares: Tensor, seen: Tensor) -> list[float]:
    return (squares.sum(0) / seen.sum(0).clamp(min=1)).sqrt().tolist()


def _slope(lengths: list[int], squares: Tensor, seen: Tensor) -> float:
    """Least squares of log move on log length."""
    moves = _root_mean(squares, seen)
    if min(moves) <= 0:
        return math.nan
    x = torch.tensor(lengths[:-1], dtype=torch.float64).log()
    y = torch.tensor(moves, dtype=torch.float64).log()
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())
