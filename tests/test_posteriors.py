"""Estimators of hard prompts against exact J, each other, and closed-form posteriors.

Bounds are Student's, by Bonferroni over all comparisons of a test, at a false-alarm rate of one in
a thousand; degrees of freedom are those of the standard error (16 replicates, 8 islands).
"""

from functools import cache

import pytest
import torch
from examples import ALPHA, MIXTURE, SPACE, bank_of, within

from posteer.banks import draw_analytic
from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.evaluation import estimate_from_bank, expected_utility
from posteer.families.markov.fit.densities import PriorDensity
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.means import utility_of_kernels
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.scorers import SCORERS
from posteer.methods.scorers.choice import Estimators, trusted_weights
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.importance import ImportanceSampled
from posteer.methods.scorers.posterior import (
    FoldedPrompts,
    HardPromptPosterior,
    scores_of_prompts,
)
from posteer.methods.scorers.protocol import score_classes
from posteer.methods.scorers.smc import TemperedSMC, next_increment
from posteer.models import open_model
from posteer.models.exact import ExactModel
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

DEGREES = {"importance": 1000, "psis": 1000, "conjugate": 15, "smc": 7}
UTILITIES = ("dyck", "frequency(0.3)", "reverse-xent(dir-4)")


def walks(process, n, length, seed=1):
    latents = process.sample(n, numpy_stream(seed, "walks"))
    return latents.roll_out(length, torch_stream(seed, "walks"))


@cache
def setting(name, n_latents):
    model = open_model(name)
    bank = draw_analytic(model.prior, n_latents, 0)
    fit = ConjugateFit(bank)
    found = (
        ImportanceSampled(bank),
        ImportanceSampled(bank, smoothed=True),
        fit,
        TemperedSMC(bank, fit=fit, particles=250),
    )
    return model, {posterior.name: posterior for posterior in found}


def compared(model, posterior, prompts, horizon, utilities=UTILITIES):
    """Estimate less truth, its standard error, and the scores, over utilities."""
    differences, errors, all_scores = [], [], []
    for text in utilities:
        utility = open_utility(text, model)
        truth = expected_utility(model, utility, prompts, horizon).expected_utility
        scores = scores_of_prompts(posterior, utility, prompts, horizon)
        differences.append(scores.value - truth)
        errors.append(scores.standard_error)
        all_scores.append(scores)
    return torch.stack(differences), torch.stack(errors), all_scores


@pytest.mark.parametrize("estimator", ["importance", "psis", "conjugate", "smc"])
@pytest.mark.parametrize(
    "name",
    ["exact:markov(vocab=3,order=1)", "exact:markov(vocab=2,order=2,concentration=0.8)"],
)
def test_all_are_right_after_short_prompts(name, estimator):
    model, posteriors = setting(name, 4000)
    prompts = walks(model.prior, 6, 6)
    posterior = posteriors[estimator]
    assert isinstance(posterior, HardPromptPosterior)
    difference, error, _ = compared(model, posterior, prompts, 4)
    assert within(difference, error, DEGREES[estimator])
    assert bool((error[1] < 0.01).all()), "frequency match varies by more over these prompts"


@pytest.mark.slow
def test_plain_weights_collapse_at_length_100_and_say_so():
    """V=4: the bank holds no latent near the posterior; the other two do not need one."""
    model, posteriors = setting("exact:markov(vocab=4,order=1)", 5000)
    prompts = walks(model.prior, 6, 100)
    difference, error, scores = compared(model, posteriors["importance"], prompts, 4)
    assert not within(difference, error, DEGREES["importance"])
    assert bool((scores[0].pareto_k > 0.7).all())
    assert float(scores[0].ess_fraction.median()) * 5000 < 5
    plain = difference.square().mean(1)
    for name in ("conjugate", "smc"):
        difference, error, _ = compared(model, posteriors[name], prompts, 4)
        assert within(difference, error, DEGREES[name])
        assert bool((difference.square().mean(1) < plain / 25).all())


@pytest.mark.parametrize("independence", [True, False])
def test_smc_has_the_moments_of_a_dirichlet_posterior(independence):
    """Prior known, density known, nothing fitted: means and variances of every entry."""
    prior = DirichletMixture(SPACE, torch.zeros(1).double(), ALPHA[:1])
    counts = count_transitions(SPACE, walks(prior, 1, 60))[0]
    smc = TemperedSMC(
        bank_of(prior, 4000),
        density=PriorDensity(prior),
        independence=independence,
        sweeps=4,
        islands=8,
    )
    kernels = smc.sample(counts, numpy_stream(0, "moments")).exp()
    a = ALPHA[0] + counts
    total = a.sum(-1, keepdim=True)
    mean, second = a / total, a * (a + 1) / (total * (total + 1))
    for power, expected in ((1, mean), (2, second)):
        by_island = kernels.pow(power).mean(1)
        assert within(by_island.mean(0) - expected, by_island.std(0) / 8**0.5, 7)
    assert bool((kernels.std((0, 1)) > 0.8 * (second - mean.square()).sqrt()).all())


def test_moves_are_right_for_a_density_the_proposals_do_not_know():
    """Two components, proposals from a fit of one: acceptance must make up the difference."""
    bank = bank_of(MIXTURE, 4000)
    poor = ConjugateFit(bank, components=1)
    smc = TemperedSMC(bank, fit=poor, density=PriorDensity(MIXTURE), sweeps=4)
    counts = count_transitions(SPACE, walks(MIXTURE, 1, 6, seed=4))[0]
    weights = MIXTURE.posterior(counts).log_weights.exp()
    assert 0.1 < float(weights[0]) < 0.9, "both components must matter"
    a = ALPHA + counts
    mean = (weights[:, None, None] * a / a.sum(-1, keepdim=True)).sum(0)
    by_island = smc.sample(counts, numpy_stream(0, "moves")).exp().mean(1)
    assert within(by_island.mean(0) - mean, by_island.std(0) / 8**0.5, 7)


def test_temperatures_keep_half_of_the_particles():
    likelihood = torch.randn(5, 300, generator=torch_stream(0, "t"), dtype=torch.float64) * 20
    likelihood[4] *= 1e-3
    step = next_increment(likelihood, torch.ones(5).double())
    weights = (step[:, None] * likelihood).softmax(-1)
    ess = 1 / weights.square().sum(-1) / 300
    assert torch.allclose(ess[:4], torch.full((4,), 0.5).double(), atol=1e-6)
    assert step[4] == 1


def folded(prompts):
    return FoldedPrompts(SPACE, count_transitions(SPACE, prompts), SPACE.suffix(prompts))


def test_weights_are_trusted_where_they_are_right_and_the_fit_past_that():
    """A prior of two modes: plain weights for short prompts, the fit of two for long ones."""
    model, bank = ExactModel(MIXTURE), bank_of(MIXTURE, 4000)
    estimators = Estimators(bank)
    short, long = walks(MIXTURE, 4, 5), walks(MIXTURE, 6, 200)
    plain, fit = estimators.named("importance"), estimators.named("conjugate")
    difference, error, scores = compared(model, plain, short, 4, UTILITIES[1:])
    assert bool(trusted_weights(scores[0], len(bank)).all())
    assert within(difference, error, 15)
    _, _, scores = compared(model, plain, long, 4, UTILITIES[1:])
    assert bool((scores[0].pareto_k > 0.7).all())
    assert not bool(trusted_weights(scores[0], len(bank)).any())
    chosen = estimators.choose(open_utility("dyck", model), folded(long), 4)
    assert chosen.name == "conjugate" and chosen.trusted == 0 and estimators.misfit.good
    difference, error, _ = compared(model, fit, long, 4, UTILITIES[1:])
    assert within(difference, error, 15)


@pytest.mark.slow
def test_smc_is_chosen_where_the_fit_is_poor_and_errs_less():
    """One Dirichlet for two modes, and the kernel density that takes its place.

    Its smoothing bias is estimated, not averaged away, so the bound on scaled errors is a loose 5
    where the poor fit's own run past 20.
    """
    model, bank = ExactModel(MIXTURE), bank_of(MIXTURE, 4000)
    poor = ConjugateFit(bank, components=1)
    estimators = Estimators(bank)
    estimators.__dict__["fit"] = poor
    assert not estimators.misfit.good
    smc = estimators.named("smc")
    smc.particles, smc.sweeps = 100, 1
    prompts = walks(MIXTURE, 6, 80)
    utility = open_utility("dyck", model)
    assert estimators.choose(utility, folded(prompts), 3).name == "smc"
    plain = scores_of_prompts(estimators.named("importance"), utility, prompts, 3)
    prompts = prompts[~trusted_weights(plain, len(bank))]
    assert len(prompts) >= 4
    difference, error, _ = compared(model, smc, prompts, 3, UTILITIES[1:])
    assert float((difference / error).square().mean().sqrt()) < 5
    by_fit, fit_error, _ = compared(model, poor, prompts, 3, UTILITIES[1:])
    assert float((by_fit / fit_error).square().mean().sqrt()) > 20
    assert bool((difference.square().mean(1) < by_fit.square().mean(1) / 4).all())


@pytest.mark.parametrize("text", ["frequency(0.3)", "callable"])
def test_long_horizons_are_averaged_over_posterior_draws(text, monkeypatch):
    """2**13 continuations, their classes made too many for the fit to sum; exact for the model.

    The callable has no finite-state form, so its means come from rollouts as well.
    """
    monkeypatch.setattr("posteer.families.markov.urns.MOST_CLASSES", 16)
    model, posteriors = setting("exact:urn", 4000)
    share = lambda y: sum(y) / len(y)  # noqa: E731
    utility = open_utility(share if text == "callable" else text, model)
    prompts = walks(model.prior, 3, 8)
    urns = posteriors["conjugate"].urn_means(utility, 13)
    assert not urns.possible(model.family.space.suffix(prompts))
    truth = expected_utility(model, utility, prompts, 13).expected_utility
    for name in ("importance", "conjugate", "smc"):
        scores = scores_of_prompts(posteriors[name], utility, prompts, 13)
        assert within(scores.value - truth, scores.standard_error, DEGREES[name])
        assert bool((scores.standard_error < 0.05).all())


@pytest.mark.parametrize("name", ["exact:beta-bernoulli", "exact:urn"])
def test_utilities_that_read_further_back_than_the_latents(name):
    """Counts of the latents' own order, last contexts of the utility's."""
    model = open_model(name)
    bank = draw_analytic(model.prior, 500, 0)
    utility = open_utility("reverse-xent([[.1,.9],[.7,.3],[.4,.6],[.2,.8]])", model)
    prompts = all_sequences(2, 6)
    folded = FoldedPrompts.of(bank.space, utility, prompts)
    assert torch.equal(folded.counts, count_transitions(bank.space, prompts))
    assert folded.wide == ContextSpace(2, 2)
    truth = expected_utility(model, utility, prompts, 3).expected_utility
    sampled = ImportanceSampled(bank)
    value = scores_of_prompts(sampled, utility, prompts, 3).value
    assert torch.allclose(value, estimate_from_bank(bank, utility, prompts, 3), atol=1e-12)
    fitted = scores_of_prompts(ConjugateFit(bank, components=1), utility, prompts, 3)
    assert within(fitted.value - truth, fitted.standard_error, 15)
    for order in (2, 3):  # the latents lifted instead of the counts folded
        lifted, ends = bank.lifted(order), ContextSpace(2, order)
        own = score_classes(
            lifted,
            utility_of_kernels(utility, ends, lifted.kernels, 3),
            count_transitions(ends, prompts),
            ends.suffix(prompts),
            ends.encode(prompts[:, :order]),
        )
        assert torch.allclose(own.value, value, atol=1e-12)


def test_prompts_are_ordered_without_draws_where_continuations_are_too_many(monkeypatch):
    """Thousands of draws for each of thousands of neighbours would take hours. By mean kernels J is
    off by what a continuation tells of its latent: little where rows are nearly known."""
    prior = open_process("dirichlet-mixture([[[300,700],[500,500]],[[900,100],[200,800]]])")
    model, bank = ExactModel(prior), draw_analytic(prior, 400, 0)
    utility = open_utility("frequency(0.3)", model)
    prompts = all_sequences(2, 6)
    truth = expected_utility(model, utility, prompts, 4).expected_utility
    monkeypatch.setattr("posteer.families.markov.urns.MOST_CLASSES", 0)
    fit = ConjugateFit(bank, replicates=2)
    order = fit.for_search()
    monkeypatch.setattr(type(fit.mixture), "sample_kernels", lambda *_: pytest.fail("draws"))
    found = scores_of_prompts(order, utility, prompts, 4)
    assert float((found.value - truth).abs().max()) < 0.1 * float(truth.std())
    assert bool(found.standard_error.isnan().all())


def test_a_prompt_scores_alike_alone_and_in_a_batch():
    model, posteriors = setting("exact:urn", 4000)
    utility = open_utility("frequency(0.3)", model)
    prompts = walks(model.prior, 3, 30)
    for horizon, name in ((4, "importance"), (4, "conjugate"), (17, "conjugate"), (4, "smc")):
        posterior = posteriors[name]
        together = scores_of_prompts(posterior, utility, prompts, horizon)
        alone = scores_of_prompts(posterior, utility, prompts[1:2], horizon)
        assert float(alone.value) == pytest.approx(float(together.value[1]), abs=1e-12)
        assert float(alone.standard_error) == pytest.approx(
            float(together.standard_error[1]), abs=1e-12
        )


def test_thousands_of_prompts_in_parts(monkeypatch):
    model, posteriors = setting("exact:urn", 4000)
    utility = open_utility("dyck", model)
    prompts = all_sequences(2, 8)
    for name in ("importance", "conjugate"):
        whole = scores_of_prompts(posteriors[name], utility, prompts, 4)
        for module in ("methods.scorers.importance", "families.markov.urns"):
            monkeypatch.setattr(f"posteer.{module}.NUMBERS_AT_ONCE", 10_000)
        parts = scores_of_prompts(posteriors[name], utility, prompts, 4)
        assert torch.allclose(whole.value, parts.value, atol=1e-12)
        assert torch.allclose(whole.standard_error, parts.standard_error, atol=1e-12)


def test_what_no_latent_can_emit():
    model = open_model("exact:mixture([[1,0],[0.5,0.5]],[[0.8,0.2],[0,1]])")
    bank = draw_analytic(model.prior, 300, 0)
    prompts = torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0]])  # 01 needs the second, 10 the first
    dyck = open_utility("dyck", model)
    scores = scores_of_prompts(ImportanceSampled(bank), dyck, prompts, 4)
    assert scores.value[0] == -torch.inf and scores.ess_fraction[0] == 0
    assert scores.value[1].isfinite()


def test_estimators_by_name():
    bank = bank_of(MIXTURE, 100)
    for name in SCORERS.names():
        assert Estimators(bank).named(name).name == name
    assert set(SCORERS.names()) >= {"importance", "psis", "conjugate", "smc"}
    with pytest.raises(InputError, match="unknown estimator 'mcmc'"):
        Estimators(bank).named("mcmc")
