"""Means, variances and covariances of a bank's frequencies against those of exact rollouts.

A distance between whole laws sees anything, but little of it: means and variances see a wrong
concentration with a third of the rollouts, and covariances are all that shows rows to be tied.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.checks.statistics import student_tail
from posteer.core.shapes import Bool, Float, Int

LEAST = 30
"""Rollouts that must have visited the rows, on both sides, and that a variance must rest on."""

KEPT = 16
"""Moments that are kept in a report, the most suspicious."""


MOST = 512
"""Entries that are compared with each other."""


@dataclass(frozen=True)
class Moment:
    """Of one entry (`other` is None: its mean) or of two, which may be the same: a (co)variance.

    An entry is (context, token). `error` is the standard error of `value - exact`.
    """

    entry: tuple[int, int]
    other: tuple[int, int] | None
    value: float
    exact: float
    error: float
    p_value: float


@dataclass(frozen=True)
class MomentCheck:
    """The `KEPT` least likely of `compared` moments, and the variance that is known best for its
    size; `p_value` is corrected for their number."""

    compared: int
    suspicious: list[Moment]
    sharpest: Moment | None
    p_value: float


def check_moments(
    own: Int[Tensor, "L C V"], exact: Int[Tensor, "K C V"], centre: Float[Tensor, "C V"]
) -> MomentCheck:
    """Over rollouts that visited the rows, around the prior's own mean: the same on both sides."""
    entries = _entries(exact)
    ours, theirs = (_moments(counts, centre, entries) for counts in (own, exact))
    error = (ours.squared_error + theirs.squared_error).sqrt()
    smaller = torch.minimum(ours.seen, theirs.seen)
    p_values = student_tail((ours.mean - theirs.mean) / error, smaller - 1)
    told = ours.told & theirs.told
    told[0, 0] = False
    pairs = told.triu().nonzero()
    order = p_values[pairs[:, 0], pairs[:, 1]].argsort(stable=True)
    names: list[tuple[int, int] | None] = [None, *map(tuple, entries.tolist())]

    def moment(pair: Tensor) -> Moment:
        at, beside = pair.tolist()
        first, second = (names[beside], names[at])
        assert first is not None
        figures = (x[at, beside].item() for x in (ours.mean, theirs.mean, error, p_values))
        return Moment(first, second, *figures)

    found = [moment(pair) for pair in pairs[order][:KEPT]]
    relative = (error / theirs.mean).diagonal()
    spread = told.diagonal() & (theirs.mean.diagonal() > 0)
    sharpest = int(relative.masked_fill(~spread, torch.inf).argmin())
    return MomentCheck(
        compared=len(pairs),
        suspicious=found,
        sharpest=moment(torch.tensor([sharpest, sharpest])) if bool(spread.any()) else None,
        p_value=min(1.0, len(pairs) * found[0].p_value) if found else 1.0,
    )


def _entries(counts: Int[Tensor, "K C V"]) -> Int[Tensor, "E 2"]:
    """(context, token) of every entry but the first of each row; of the rows most visited if they
    are more than `MOST`."""
    rows = (counts.sum(-1) > 0).sum(0).argsort(descending=True, stable=True)
    tokens = counts.shape[2] - 1
    kept = rows[: max(1, MOST // tokens)].sort().values
    return torch.cartesian_prod(kept, torch.arange(1, tokens + 1)).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Of products of two entries, the first being the constant 1: their mean, over how many
    rollouts, the square of its standard error, and whether that can be trusted."""

    mean: Float[Tensor, "E E"]
    seen: Float[Tensor, "E E"]
    squared_error: Float[Tensor, "E E"]
    told: Bool[Tensor, "E E"]


def _moments(
    counts: Int[Tensor, "L C V"], centre: Float[Tensor, "C V"], entries: Int[Tensor, "E 2"]
) -> _Moments:
    contexts, tokens = entries.unbind(-1)
    visits = counts.sum(-1)[:, contexts]
    away = counts[:, contexts, tokens].double() / visits.clamp(min=1) - centre[contexts, tokens]
    came = torch.cat([torch.ones(len(counts), 1), (visits > 0).double()], 1).double()
    away = torch.cat([torch.ones(len(counts), 1), away], 1) * came
    seen = came.T @ came
    raw = [(away**k).T @ (away**k) / seen.clamp(min=1) for k in (1, 2, 3, 4)]
    mean = raw[0]
    variance = (raw[1] - mean**2).clamp(min=0)
    fourth = raw[3] - 4 * mean * raw[2] + 6 * mean**2 * raw[1] - 3 * mean**4
    rests_on = seen * variance**2 / fourth.clamp(min=1e-300)
    return _Moments(
        mean=mean,
        seen=seen,
        squared_error=variance / (seen - 1).clamp(min=1),
        told=(seen >= LEAST) & (variance > 1e-12) & (rests_on >= LEAST),
    )
