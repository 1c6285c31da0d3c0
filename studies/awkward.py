"""Priors that a mixture of Dirichlets does not hold, with J known by quadrature.

Each is a sampler of binary kernels and, for the truth, a fine grid of them with weights: sums over
the grid are the trapezoid or midpoint rule in a coordinate in which the prior is smooth, so they
converge faster than any power of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.mixtures import FiniteMixture
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace, count_transitions

Sampler = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Awkward:
    """A law of the chances of a 1 after each context: how to draw them, and a grid of them."""

    name: str
    order: int
    draw: Sampler
    chances: np.ndarray
    weights: np.ndarray

    @property
    def space(self) -> ContextSpace:
        return ContextSpace(2, self.order)

    def expected_utility(
        self, utility: Utility, prompts: Tensor, horizon: int
    ) -> Float[Tensor, "K"]:
        """J of prompts: the grid's posterior mean of each kernel's mean utility."""
        wide = ContextSpace(2, max(self.order, utility.order))
        assert wide == self.space, "a utility that looks further back than the kernels"
        kernels = as_kernels(self.chances)
        means = utility_of_kernels(utility, wide, kernels, horizon)
        counts = count_transitions(self.space, prompts).double()
        logs = torch.special.xlogy(counts[:, None], kernels).sum((-2, -1))
        law = (logs + torch.from_numpy(self.weights).log()).softmax(-1)
        return (law * means.T[wide.suffix(prompts)]).sum(-1)


def as_kernels(chances: np.ndarray) -> Float[Tensor, "L C V"]:
    """Chances of a 1 as rows of laws."""
    return torch.from_numpy(np.stack([1 - chances, chances], -1))


def _product(rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """A grid of all rows together, of grids of each."""
    points = np.meshgrid(*(values for values, _ in rows), indexing="ij")
    weights = np.meshgrid(*(weight for _, weight in rows), indexing="ij")
    return np.stack([p.ravel() for p in points], -1), np.prod([w.ravel() for w in weights], 0)


def _beta(a: float, b: float, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """sin^2 of a uniform angle is smooth at both ends, whatever a and b of halves."""
    angle = (np.arange(n) + 0.5) / n * np.pi / 2
    chance = np.sin(angle) ** 2
    density = np.exp((2 * a - 1) * np.log(np.sin(angle)) + (2 * b - 1) * np.log(np.cos(angle)))
    return chance, density / density.sum()


def _normal(mean: float, spread: float, n: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds on an even grid of eight standard deviations either way."""
    z = np.linspace(-8, 8, n)
    density = np.exp(-(z**2) / 2)
    return _chance(mean + spread * z), density / density.sum()


def _chance(log_odds: np.ndarray) -> np.ndarray:
    chances: np.ndarray = 1 / (1 + np.exp(-log_odds))
    return chances


def _with_atom(
    grid: tuple[np.ndarray, np.ndarray], atom: float, mass: float
) -> tuple[np.ndarray, np.ndarray]:
    return np.append(grid[0], atom), np.append((1 - mass) * grid[1], mass)


def awkward_priors() -> list[Awkward]:
    """Those of the suite."""
    half = _beta(0.5, 0.5)
    spike = _with_atom(half, 0.5, 0.5)
    corner = _with_atom(half, 1.0, 0.5)
    atoms = np.array([[0.1, 0.1], [0.9, 0.1], [0.5, 0.5], [0.2, 0.7]])
    tight = [_product([_beta(30, 10), _beta(10, 30)]), _product([_beta(4, 12), _beta(12, 4)])]

    def spiked(stream: np.random.Generator, n: int) -> np.ndarray:
        slab = stream.beta(0.5, 0.5, size=(n, 1))
        return np.where(stream.random((n, 1)) < 0.5, 0.5, slab)

    def clusters(stream: np.random.Generator, n: int) -> np.ndarray:
        one = np.stack([stream.beta(30, 10, n), stream.beta(10, 30, n)], -1)
        two = np.stack([stream.beta(4, 12, n), stream.beta(12, 4, n)], -1)
        return np.where(stream.random((n, 1)) < 0.5, one, two)

    def certain(stream: np.random.Generator, n: int) -> np.ndarray:
        rows = stream.beta(0.5, 0.5, size=(n, 2))
        rows[:, 0] = np.where(stream.random(n) < 0.5, 1.0, rows[:, 0])
        return rows

    tied, tied_weights = half
    return [
        Awkward("spike-and-slab", 0, spiked, spike[0][:, None], spike[1]),
        Awkward(
            "few-atoms",
            1,
            lambda stream, n: atoms[stream.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])],
            atoms,
            np.array([0.4, 0.3, 0.2, 0.1]),
        ),
        Awkward(
            "tied-rows",
            1,
            lambda stream, n: stream.beta(0.5, 0.5, size=(n, 1)).repeat(2, 1),
            np.stack([tied, tied], -1),
            tied_weights,
        ),
        Awkward(
            "two-clusters",
            1,
            clusters,
            np.concatenate([grid for grid, _ in tight]),
            np.concatenate([0.5 * weight for _, weight in tight]),
        ),
        Awkward(
            "logit-normal",
            1,
            lambda stream, n: _chance(stream.normal([0.0, -0.5], [1.0, 1.5], size=(n, 2))),
            *_product([_normal(0.0, 1.0), _normal(-0.5, 1.5)]),
        ),
        Awkward("deterministic-rows", 1, certain, *_product([corner, half])),
    ]


def dirichlet_rows() -> Awkward:
    """The well-behaved one: what every fit holds."""
    half = _beta(0.5, 0.5)
    return Awkward(
        "dirichlet-rows",
        1,
        lambda stream, n: stream.beta(0.5, 0.5, size=(n, 2)),
        *_product([half, half]),
    )


@dataclass(frozen=True, eq=False)
class DrawnMixture(FiniteMixture):
    """The grid as a prior whose draws are of the law itself: what a search asks it for."""

    law: Awkward

    @classmethod
    def of_law(cls, law: Awkward) -> DrawnMixture:
        weights = torch.from_numpy(law.weights).log()
        return cls(law.space, as_kernels(law.chances), weights, law)

    @property
    def spec(self) -> str:
        return self.law.name

    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]:
        return as_kernels(self.law.draw(stream, n))
