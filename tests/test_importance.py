import math

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from scipy.stats import genpareto

from posteer.banks import draw_analytic
from posteer.core.weights import ess_fraction, normalise, pareto_k, pareto_smoothed
from posteer.families.registry import open_process


def test_ess_of_known_weights():
    equal = torch.zeros(10).double()
    assert float(ess_fraction(equal)) == pytest.approx(1.0)
    one = torch.full((10,), -torch.inf).double()
    one[3] = -5000.0
    assert float(ess_fraction(one)) == pytest.approx(0.1)
    weights = torch.tensor([0.1, 0.2, 0.7]).double()
    expected = 1 / (weights**2).sum() / 3
    shifted = weights.log() - 1e6  # a scale no exponential survives
    assert float(ess_fraction(shifted)) == pytest.approx(float(expected), rel=1e-6)
    assert torch.allclose(normalise(shifted), weights, rtol=1e-6)


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.3, 0.8])
def test_pareto_k_agrees_with_arviz(shape):
    """Same estimator, independent code; the two cut the tail one order statistic apart."""
    weights = genpareto.rvs(shape, size=4000, random_state=3) + 1e-9
    _, theirs = array_stats.psislw(-np.log(weights))
    assert pareto_k(torch.tensor(np.log(weights))) == pytest.approx(float(theirs), abs=0.02)


@pytest.mark.parametrize("n", [400, 4900])  # square: ceil and floor of 3 sqrt(n) agree
def test_smoothed_weights_are_those_of_arviz(n):
    """Many rows at once here, one row at a time there; double precision on both sides."""
    rng = np.random.default_rng(5)
    log_weights = rng.standard_normal((6, n)) * np.array([0.1, 0.5, 1, 3, 10, 50])[:, None] - 1e4
    smoothed, shapes = pareto_smoothed(torch.tensor(log_weights))
    theirs, their_shapes = array_stats.psislw(-log_weights)
    assert np.allclose(shapes.numpy(), their_shapes, atol=1e-6)
    assert np.allclose(normalise(smoothed).numpy(), np.exp(theirs), atol=1e-8)


def test_smoothing_leaves_alone_what_has_no_tail():
    ties = torch.zeros(1, 1000).double()
    ties[0, :400] = 2.0  # two latents' worth of distinct weights, as a two-point prior gives
    impossible = torch.full((1, 1000), -torch.inf).double()
    impossible[0, :3] = 0.0
    both = torch.cat([ties, impossible])
    smoothed, shapes = pareto_smoothed(both)
    assert torch.equal(smoothed, both)
    assert shapes[0] == -math.inf and shapes[1].isnan()


def test_pareto_k_at_the_edges():
    assert pareto_k(torch.zeros(1000).double()) == -math.inf
    assert math.isnan(pareto_k(torch.arange(10).double()))
    assert math.isfinite(pareto_k(torch.linspace(-9000, 0, 5000).double()))


@pytest.mark.parametrize(("name", "expected"), [("beta-bernoulli", 0.316), ("urn", 0.344)])
def test_exact_moments_of_a_deterministic_prompt(name, expected):
    """E[w]^2/E[w^2] under the prior for the all-zero prompt of length 6, as in DESIGN's facts.

    With p ~ Beta(1/2, 1/2): w = p^n, n = 6 and 5 transitions. The Monte Carlo check uses 200,000
    latents; its relative error is about 0.5 %, the bound four times that.
    """
    n = 6 if name == "beta-bernoulli" else 5
    beta = lambda power: math.exp(  # noqa: E731
        math.lgamma(0.5 + power) - math.lgamma(0.5) - math.lgamma(1 + power)
    )
    assert beta(n) ** 2 / beta(2 * n) == pytest.approx(expected, abs=5e-4)
    bank = draw_analytic(open_process(name), 200_000, seed=0)
    log_weights = n * bank.kernels[:, 0, 0].log()
    assert float(ess_fraction(log_weights)) == pytest.approx(expected, rel=0.02)


def test_banks_depend_on_the_seed_alone():
    process = open_process("urn")
    same = draw_analytic(process, 50, seed=4).kernels
    assert torch.equal(same, draw_analytic(process, 50, seed=4).kernels)
    assert not torch.equal(same, draw_analytic(process, 50, seed=5).kernels)
