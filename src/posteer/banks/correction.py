"""What a model says, less what the posterior mixture over its latents says.

A model that is no exact filter departs from the mixture in ways that histories share. The departure
of its log-laws is taken as a Gaussian process over histories (`histories.Likeness`): where nothing
was read the mixture stands, elsewhere it is corrected by what the model answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from posteer.banks.histories import Likeness, Points, padded
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.shapes import Float, Int

Mixture = Callable[[Int[Tensor, "K T"]], Float[Tensor, "K V"]]
"""Log-laws of the next token after histories of one length."""

TRIED = tuple(
    Likeness(linear=0.5, local=0.3, endings=endings, reach=reach, noise=noise)
    for endings, reach, noise in product((0.1, 0.3, 1.0), (0.7, 0.85), (0.01, 0.05))
)
TRUSTS = (0.0, 0.5, 1.0)
"""Covariances, and shares of the mixture's log-law to start from, of which the likeliest are taken:
0 leaves all to what was read, 1 corrects the mixture itself."""

ENOUGH = 400
"""Readings that a covariance is chosen on."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Histories of any lengths up to one, and the model's log-law of the next token after each."""

    tokens: Int[Tensor, "K W"]
    log_laws: Float[Tensor, "K V"]

    def __len__(self) -> int:
        return len(self.tokens)

    def every(self, n: int) -> Readings:
        """Each n-th of them."""
        return Readings(self.tokens[::n], self.log_laws[::n])

    def join(self, more: Readings) -> Readings:
        """Both, each history once."""
        width = max(self.tokens.shape[1], more.tokens.shape[1])
        tokens = torch.cat([padded(self.tokens, width), padded(more.tokens, width)])
        log_laws = torch.cat([self.log_laws, more.log_laws])
        _, where = tokens.unique(dim=0, return_inverse=True)
        first = torch.full((int(where.max()) + 1,), len(tokens), dtype=torch.long)
        first.scatter_reduce_(0, where, torch.arange(len(tokens)), "amin")
        kept = first.sort().values
        return Readings(tokens[kept], log_laws[kept])


def along(
    tokens: Int[Tensor, "P T"], log_laws: Float[Tensor, "P T1 V"], lengths: range
) -> Readings:
    """All beginnings of some sequences, of the lengths that are wanted, each once."""
    width = tokens.shape[1]
    parts = [
        Readings(padded(tokens[:, :length], width), log_laws[:, length].double())
        for length in lengths
        if length <= width
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = Readings(
            torch.cat([whole.tokens, part.tokens]), torch.cat([whole.log_laws, part.log_laws])
        )
    return whole.join(Readings(whole.tokens[:0], whole.log_laws[:0]))


def centred(log_laws: Float[Tensor, "K V"]) -> Float[Tensor, "K V"]:
    """Log-laws up to what they are normalised by."""
    return log_laws - log_laws.mean(-1, keepdim=True)


class Correction:
    """The mixture, and the departure from it that readings of the model teach."""

    def __init__(
        self,
        mixture: Mixture,
        readings: Readings,
        settings: tuple[Likeness, float] | None = None,
    ) -> None:
        self.mixture, self.readings = mixture, readings
        self.vocab_size = readings.log_laws.shape[1]
        self.points = Points.of(readings.tokens, self.vocab_size)
        spread = self.points.features.std(0) if len(readings) > 1 else torch.ones(())
        self.scale = spread.clamp(min=0.05)
        said, expected = centred(readings.log_laws), self._mixed(readings.tokens)
        self.likeness, self.trust = settings or self._likeliest(said, expected)
        self.departures = said - self.trust * expected

    def with_more(self, more: Readings) -> Correction:
        """Corrected by further answers of the model, by the same covariance."""
        settings = self.likeness, self.trust
        return Correction(self.mixture, self.readings.join(more), settings)

    def log_laws(self, histories: Int[Tensor, "K W"]) -> Float[Tensor, "K V"]:
        """What is expected of the model after histories (shorter ones padded in front)."""
        expected = self.trust * self._mixed(histories)
        return (expected + self._between(histories) @ self._weights).log_softmax(-1)

    def covariances(self, groups: Int[Tensor, "B G W"]) -> Float[Tensor, "B G G"]:
        """Of the departures after the histories of each group, given all readings; what no other
        history tells of one is part of its own variance."""
        size = groups.shape[1]
        known = torch.linalg.solve_triangular(
            self._root, self._between(groups.flatten(0, 1)).T, upper=False
        )
        parts = known.view(-1, len(groups), size).transpose(0, 1)
        points = [self._points(group) for group in groups]
        prior = torch.stack([self.likeness.between(one, one, self.scale) for one in points])
        own = self.likeness.noise * torch.eye(size, dtype=torch.float64)
        return prior + own - parts.transpose(1, 2) @ parts

    @property
    def log_evidence(self) -> float:
        """Of all readings, by the covariance."""
        return _log_evidence(self._root, self.departures)

    @cached_property
    def _root(self) -> Float[Tensor, "K K"]:
        return _root(self.likeness, self.points, self.scale)

    @cached_property
    def _weights(self) -> Float[Tensor, "K V"]:
        return torch.cholesky_solve(self.departures, self._root)

    def _likeliest(
        self, said: Float[Tensor, "K V"], expected: Float[Tensor, "K V"]
    ) -> tuple[Likeness, float]:
        rows = torch.arange(len(self.points))
        rows = rows[:: max(1, len(rows) // ENOUGH)]
        some = self.points.select(rows)
        evidence = {}
        for one in TRIED:
            root = _root(one, some, self.scale)
            for trust in TRUSTS:
                departures = said[rows] - trust * expected[rows]
                evidence[one, trust] = _log_evidence(root, departures)
        return max(evidence, key=evidence.__getitem__)

    def _points(self, histories: Int[Tensor, "K W"]) -> Points:
        width = max(self.points.tokens.shape[1], histories.shape[1])
        return Points.of(padded(histories, width), self.vocab_size)

    def _between(self, histories: Int[Tensor, "K W"]) -> Float[Tensor, "K J"]:
        mine, asked = self.points, self._points(histories)
        mine = mine.wider(asked.tokens.shape[1])
        size = max(1, NUMBERS_AT_ONCE // max(1, len(mine)))
        parts = [
            self.likeness.between(asked.select(rows), mine, self.scale)
            for rows in torch.arange(len(asked)).split(size)
        ]
        return torch.cat(parts)

    def _mixed(self, histories: Int[Tensor, "K W"]) -> Float[Tensor, "K V"]:
        """The mixture's centred log-laws, histories of one length at a time."""
        lengths = (histories >= 0).sum(1)
        found = torch.zeros(len(histories), self.vocab_size, dtype=torch.float64)
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            own = histories[rows, histories.shape[1] - length :]
            found[rows] = centred(self.mixture(own))
        return found


def _root(likeness: Likeness, points: Points, scale: Float[Tensor, "F"]) -> Float[Tensor, "K K"]:
    covariance = likeness.between(points, points, scale)
    covariance.diagonal().add_(likeness.noise)
    return torch.linalg.cholesky(covariance)


def _log_evidence(root: Float[Tensor, "K K"], departures: Float[Tensor, "K V"]) -> float:
    """Up to a constant; every token's departures share the covariance."""
    misfit = (torch.linalg.solve_triangular(root, departures, upper=False) ** 2).sum()
    return float(-0.5 * misfit - departures.shape[1] * root.diagonal().log().sum())
