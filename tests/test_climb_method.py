"""`climb`: search over prompts by latents of any family, no model token read."""

import math

import pytest
import torch
from posing import posed
from strangers import CyclePrior

from posteer import elicit
from posteer.banks import draw_analytic
from posteer.core.randomness import numpy_stream
from posteer.families.atoms.prior import AtomPrior
from posteer.families.finite_state.machines import state_latents
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.markov.family import MarkovLatents
from posteer.families.reading import read_shared
from posteer.methods.climbing.latents import LatentScore
from posteer.methods.registry import open_method
from posteer.models.exact import ExactModel
from posteer.tokens.contexts import ContextSpace, all_sequences


def machines(n=3, states=3, vocab=2, seed=0):
    """Random hidden Markov models."""
    stream = numpy_stream(seed, "machines")
    rows = stream.dirichlet([0.4] * (vocab * states), size=(n, states))
    operators = torch.from_numpy(rows).reshape(n, states, vocab, states)
    return state_latents(torch.from_numpy(stream.dirichlet([1.0] * states, size=n)), operators)


def hmm_model(n=3, vocab=2, seed=0):
    weights = torch.arange(1, n + 1).double()
    prior = AtomPrior.of(machines(n, vocab=vocab, seed=seed), weights / weights.sum(), "hmms")
    return ExactModel(prior)


@pytest.mark.parametrize("context", ["", "101"])
def test_on_machines_it_finds_the_best_of_all_prompts_and_says_so(context):
    model = hmm_model()
    found = elicit(model, "frequency(1.0)", length=6, method="climb-analytic", context=context)
    best = found.optimum
    assert found.expected_utility == pytest.approx(best, abs=1e-10)
    assert found.answer.surrogate == pytest.approx(best, abs=1e-10)
    assert found.answer.certificate.count == 64
    assert found.cost["forward_tokens"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_past_enumeration_it_still_finds_it(seed):
    """Not promised, but true of these."""
    model = hmm_model(vocab=3, seed=seed)
    every = elicit(model, "frequency(1.0)", length=8, method="climb-analytic", horizon=3)
    found = elicit(model, "frequency(1.0)", length=8, method="climb-analytic(limit=0)", horizon=3)
    assert every.answer.certificate is not None and found.answer.certificate is None
    assert found.answer.stop_reason == "local optimum"
    assert found.expected_utility == pytest.approx(every.expected_utility, abs=1e-10)


def test_what_prompts_begin_alike_with_is_read_once():
    latents = machines(vocab=3)
    prompts = all_sequences(3, 4)
    for some in (prompts, prompts[::2], prompts[:1], prompts[[0, 0, 5]]):
        shared, plain = read_shared(latents, some), latents.read(some)
        assert torch.allclose(shared.log_likelihood, plain.log_likelihood, atol=1e-12)
        assert torch.allclose(shared.belief, plain.belief, atol=1e-12)


@pytest.mark.parametrize("context", [(), (1,), (1, 0, 1)])
@pytest.mark.parametrize("family", ["hmm", "kernels", "markov", "cycles"])
def test_scores_are_weighted_means_whatever_the_family(family, context):
    """By latents of the prior, which read the context with each prompt: Bayes in one line."""
    utility = posed("exact:urn", "frequency(1.0)", 3).expected
    prompts = all_sequences(2, 3)[torch.tensor([5, 0, 3, 6])]
    if family == "cycles":
        latents = CyclePrior(0.2).atoms
    elif family == "markov":
        kernels = torch.from_numpy(numpy_stream(0, "k").dirichlet([1.0] * 2, size=(5, 2)))
        latents = MarkovLatents(ContextSpace(2, 1), kernels)
    elif family == "kernels":
        latents = from_kernels(
            [torch.tensor([[0.2, 0.8]]).double(), torch.eye(2).double() * 0.6 + 0.2]
        )
    else:
        latents = machines()
    bank = draw_analytic(CyclePrior(0.2), 2, 0)
    bank = type(bank)(latents, bank.origin)  # of the prior
    score = LatentScore.of(bank, context, utility, 3)
    whole = torch.cat([torch.tensor(context).long().expand(len(prompts), -1), prompts], 1)
    joint = latents.log_likelihood(whole)
    weights = joint.softmax(-1)
    means = latents.mean_utility(utility, whole, 3)
    expected = (weights * means).sum(-1)
    assert torch.allclose(score(prompts), expected, atol=1e-12)
    errors = (weights * (means - expected[:, None])).square().sum(-1).sqrt()
    assert torch.allclose(score.scores(prompts).standard_error, errors, atol=1e-12)


def test_on_draws_of_a_prior_errors_are_given():
    answer = open_method("climb-analytic(samples=500)").solve([posed("exact:urn", "dyck", 6)])[0]
    assert 0 < answer.surrogate_standard_error < 0.1 and 0 < answer.ess_fraction <= 1
    assert answer.certificate.estimator == "importance" and answer.certificate.count == 64
    assert answer.held_out_surrogate is not None


def test_a_shipped_bank_serves():
    problem = posed("urn", "dyck", 6)
    answer = open_method("climb(samples=500)").solve([problem])[0]
    assert problem.model.queries.total == 0 and answer.bank_tokens > 0
    assert answer.prompt.tolist() == [0, 1, 0, 1, 0, 1]


def test_candidates_are_left_for_verification():
    found = elicit(hmm_model(), "dyck", length=7, method="climb-analytic", verify=4)
    assert found.answer.verified.compared == 4 and found.answer.verified.place == 1


def test_log_weights_of_impossible_latents_do_not_matter():
    """A latent that cannot have emitted the context has no say."""
    always = torch.tensor([[0.0, 1.0]]).double()
    fair = torch.tensor([[0.5, 0.5]]).double()
    prior = AtomPrior.of(from_kernels([always, fair]), None, "two")
    found = elicit(
        ExactModel(prior), "frequency(1.0)", length=3, method="climb-analytic", context="0"
    )
    exact = found.answer.surrogate
    assert math.isfinite(exact) and exact == pytest.approx(found.expected_utility, abs=1e-12)


@pytest.mark.parametrize(
    ("model", "goal", "context"),
    [
        ("exact:context-tree(vocab=2,depth=2)", "dyck", ""),
        ("exact:context-tree(vocab=3,depth=1)", "frequency(0.6)", "012"),
        ("exact:urn", "reverse-xent(sym-0.1)", "0110"),
    ],
)
def test_a_known_prior_that_is_not_finite_is_scored_by_its_filter(model, goal, context):
    """No draw, no error, no model token; the best of all prompts by independent evaluation."""
    for limit in ("", "(limit=0)"):
        method = f"climb-analytic{limit}"
        found = elicit(model, goal, length=5, horizon=3, method=method, context=context)
        assert found.rank == 1 and found.queries.total == 0
        assert found.answer.surrogate == pytest.approx(found.expected_utility, abs=1e-12)
        assert found.answer.surrogate_standard_error == 0 and found.answer.ess_fraction is None
        assert found.answer.estimator.name == "exact"
        assert (found.answer.certificate is None) == bool(limit)


def test_a_search_by_a_filter_keeps_to_what_is_allowed():
    model = "exact:beta-bernoulli"
    found = elicit(model, "frequency(1.0)", length=4, method="climb-analytic", allowed="last=0")
    assert found.prompt == [1, 1, 1, 0]
