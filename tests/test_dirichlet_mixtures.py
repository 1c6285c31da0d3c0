"""Mixtures of Dirichlets, their EM and their urns, against scipy, brute force and known priors."""

import math

import numpy as np
import pytest
import torch
from examples import ALPHA, MIXTURE, SPACE, bank_of, within
from oracles import dirichlet_sequence_probability
from scipy.stats import dirichlet

from posteer.banks import DrawPlan, draw_bank
from posteer.core.randomness import numpy_stream
from posteer.families.markov.fit.densities import better_kernel_density, kernel_density
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.fit.expectation_maximisation import (
    MOST_CONCENTRATED,
    KnownKernels,
    RolloutCounts,
    fit_dirichlets,
    fits_from,
    initial_mixture,
)
from posteer.families.markov.fit.goodness import misfit
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.models import Metered
from posteer.models.exact import ExactModel
from posteer.tokens.contexts import ContextSpace, count_transitions


def test_density_is_that_of_scipy():
    kernels = MIXTURE.sample_kernels(7, numpy_stream(0, "density"))
    for kernel, found in zip(kernels, MIXTURE.log_density(kernels.log()), strict=True):
        total = sum(
            weight * math.prod(dirichlet.pdf(kernel[c], alpha[c]) for c in range(3))
            for weight, alpha in zip((0.35, 0.65), ALPHA.numpy(), strict=True)
        )
        assert float(found) == pytest.approx(math.log(total), abs=1e-9)


def test_evidence_posterior_and_predictive_against_polya_urns():
    prompt = (0, 2, 2, 1, 0, 2)
    counts = count_transitions(SPACE, torch.tensor([prompt]))
    both = [
        weight * dirichlet_sequence_probability(prompt, alpha, 1, 3) * 3
        for weight, alpha in zip((0.35, 0.65), ALPHA.tolist(), strict=True)
    ]
    assert float(MIXTURE.log_marginal(counts)) == pytest.approx(math.log(sum(both)), abs=1e-12)
    posterior = MIXTURE.posterior(counts[0])
    expected = [value / sum(both) for value in both]
    assert posterior.log_weights.exp().tolist() == pytest.approx(expected, abs=1e-12)
    law = MIXTURE.predictive(counts, torch.tensor([2]))[0]
    for token in range(3):
        longer = sum(
            weight * dirichlet_sequence_probability((*prompt, token), alpha, 1, 3) * 3
            for weight, alpha in zip((0.35, 0.65), ALPHA.tolist(), strict=True)
        )
        assert float(law[token]) == pytest.approx(longer / sum(both), abs=1e-12)


def test_a_dirichlet_fit_solves_its_equation():
    """At the maximum `digamma(alpha) - digamma(A)` is the mean logarithm, wherever one starts."""
    targets = torch.digamma(ALPHA) - torch.digamma(ALPHA.sum(-1, keepdim=True))
    for start in (0.01, 1.0, 300.0):
        found = fit_dirichlets(targets, torch.full_like(ALPHA, start), steps=60)
        assert torch.allclose(found, ALPHA, rtol=1e-8)


def test_a_point_mass_gets_the_largest_concentration():
    logs = torch.tensor([0.2, 0.8], dtype=torch.float64).log()
    found = fit_dirichlets(logs, torch.ones(2, dtype=torch.float64), steps=100)
    assert float(found.sum()) == pytest.approx(MOST_CONCENTRATED, rel=1e-6)
    assert float(found[0] / found.sum()) == pytest.approx(0.2, abs=1e-3)


def evidences():
    kernels = MIXTURE.sample_kernels(400, numpy_stream(1, "evidence"))
    stream = numpy_stream(2, "evidence")
    counts = [stream.multinomial(stream.integers(0, 40, 3), kernel) for kernel in kernels.numpy()]
    at_corners = torch.nn.functional.one_hot(torch.arange(400) % 3, 3).double()[:, None]
    return {
        "kernels": KnownKernels(kernels.log()),
        "counts": RolloutCounts(torch.tensor(np.stack(counts)).double()),
        "corners": KnownKernels(at_corners.expand(-1, 3, -1).log().clamp(min=-700)),
    }


@pytest.mark.parametrize("kind", ["kernels", "counts", "corners"])
@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_the_likelihood_never_falls(kind, n_components):
    """Up to rounding of a mean of log-densities, relative to their size."""
    evidence = evidences()[kind]
    start = initial_mixture(SPACE, evidence, n_components, numpy_stream(0, "start"))
    weights = torch.from_numpy(numpy_stream(3, "weights").standard_exponential(400))
    (found,) = fits_from(evidence, [start], weights[None], tolerance=-torch.inf, max_steps=60)
    history = found.history
    steps = np.diff(history)
    assert steps.min() > -1e-9 * max(1, abs(history[-1]))
    assert np.isfinite(history).all()


def test_climbs_at_once_are_those_climbed_alone():
    """Up to rounding, which sums in another shape and a few hundred steps may have grown."""
    evidence = evidences()["kernels"]
    starts = [initial_mixture(SPACE, evidence, 2, numpy_stream(k, "start")) for k in range(3)]
    weights = torch.from_numpy(numpy_stream(3, "weights").standard_exponential((3, 400)))
    together = fits_from(evidence, starts, weights)
    for start, weighed, found in zip(starts, weights, together, strict=True):
        (alone,) = fits_from(evidence, [start], weighed[None])
        assert abs(len(alone.history) - len(found.history)) <= 1, "a threshold is met by rounding"
        near = torch.isclose(alone.mixture.concentration, found.mixture.concentration, rtol=1e-6)
        assert bool(near.all())


def test_a_fit_that_has_settled_is_tried_once(monkeypatch):
    """Where no step can be seen none is halved: the start is valued, and one proposal."""
    logs = (torch.digamma(ALPHA) - torch.digamma(ALPHA.sum(-1, keepdim=True))).contiguous()
    asked, real = [], torch.lgamma

    def counted(values):
        asked.append(values.shape)
        return real(values)

    monkeypatch.setattr(torch, "lgamma", counted)
    found = fit_dirichlets(logs, ALPHA, steps=3)
    assert bool(torch.isclose(found, ALPHA, rtol=1e-12).all())
    assert len(asked) == 2 * 2


def test_a_known_mixture_is_recovered():
    """Each parameter within Student's bound of its bootstrap standard error, all 19 at once."""
    fit = ConjugateFit(bank_of(MIXTURE, 4000), finer=1)
    assert len(fit.mixture) == 2
    assert list(fit.selection.tried) == [1, 2, 4]
    order = fit.mixture.log_weights.argsort()
    replicas = torch.stack([other.concentration[order] for other in fit.replicates])
    assert within(fit.mixture.concentration[order] - ALPHA, replicas.std(0), 15)
    assert bool((replicas.std(0) / ALPHA < 0.25).all())
    shares = torch.stack([other.log_weights.exp()[order[0]] for other in fit.replicates])
    share = fit.mixture.log_weights.exp()[order[0]]
    assert within(share - 0.35, shares.std(), 15)
    assert misfit(fit.mixture, fit.latents).good


@pytest.mark.slow
def test_rollouts_tell_the_prior_through_their_counts():
    """Rollouts of 60 tokens, whose frequencies are far from their latents, and rows unvisited."""
    prior = DirichletMixture(SPACE, torch.zeros(1).double(), ALPHA[:1])
    model = Metered(ExactModel(prior))
    bank = draw_bank(model, DrawPlan(n_samples=1500, rollout_length=60))
    assert bank.n_unvisited > 0
    fit = ConjugateFit(bank)
    assert len(fit.mixture) == 1
    replicas = torch.stack([other.concentration for other in fit.replicates])
    assert within(fit.mixture.concentration - ALPHA[:1], replicas.std(0), 15)
    assert bool((fit.latents > 0).all())
    by_kernels = fit_dirichlets(bank.kernels.log().clamp(min=-700).mean(0), ALPHA[0], steps=50)
    assert not within(by_kernels - ALPHA[0], replicas.std(0)[0], 15), "frequencies are no latents"


@pytest.mark.slow
def test_misfit_is_seen_and_a_kernel_density_preferred():
    bank = bank_of(MIXTURE, 3000)
    poor = ConjugateFit(bank, components=1)
    assert not misfit(poor.mixture, poor.latents).good
    density = better_kernel_density(SPACE, poor.evidence, poor.selection, 0)
    assert len(density.mixture) == 1000
    rich = ConjugateFit(bank)
    assert better_kernel_density(SPACE, rich.evidence, rich.selection, 0) is None
    one = kernel_density(SPACE, bank.kernels[:1], 1000.0)
    drawn = one.sample_kernels(2000, numpy_stream(0, "one"))
    assert torch.allclose(drawn.mean(0), bank.kernels[0], atol=0.01)  # 1/sqrt(1000 * 2000) * 20


def test_several_draws_from_one_posterior_are_those_of_repeated_counts():
    space = ContextSpace(2, 1)
    mixture = DirichletMixture(
        space,
        torch.tensor([0.3, 0.7], dtype=torch.float64).log(),
        torch.tensor([[[1.0, 2.0], [3.0, 1.0]], [[0.5, 0.5], [4.0, 9.0]]], dtype=torch.float64),
    )
    counts = torch.tensor([[[3.0, 0.0], [1.0, 2.0]], [[0.0, 5.0], [5.0, 0.0]]], dtype=torch.float64)
    together = mixture.sample_updated(counts, np.random.default_rng(0), each=3)
    apart = mixture.sample_updated(counts.repeat_interleave(3, 0), np.random.default_rng(0))
    assert torch.allclose(together, apart, rtol=1e-12)
