"""Priors of finitely many latents: methods take all of them, with their weights, and are exact."""

import pytest
import torch
from posing import posed, posed_together

from posteer import elicit
from posteer.banks.atoms import AtomBank
from posteer.cli import main
from posteer.methods.registry import open_method
from posteer.models import open_model
from posteer.tokens.contexts import all_sequences

MIXTURE = "exact:mixture([[0.9,0.1],[0.3,0.7]],[[0.2,0.8],[0.6,0.4]],weights=[0.3,0.7])"
MODELS = [MIXTURE, "exact:coins(0.2,0.7,weights=[0.9,0.1])", "exact:coins(0.4)"]
METHODS = ["ppt-analytic(steps=10)", "ppt-rb-analytic(steps=10)", "classes-analytic"]
EXACTLY = 1e-10


@pytest.mark.parametrize("context", ["", "0110"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", [*METHODS, "climb-analytic"])
def test_what_a_method_says_of_its_prompt_is_j(method, model, context):
    found = elicit(model, "dyck", length=5, method=method, context=context)
    answer = found.answer
    said = answer.surrogate if answer.snapped_surrogate is None else answer.snapped_surrogate
    assert said == pytest.approx(found.expected_utility, abs=EXACTLY)
    assert answer.surrogate_standard_error == 0.0
    assert answer.ess_fraction is answer.pareto_k is answer.held_out_surrogate is None
    assert found.judged.warnings == ()


@pytest.mark.parametrize("context", [(), (0, 1, 1, 0)])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["classes-analytic", "climb-analytic"])
def test_certificates_are_exact(method, model, context):
    found = elicit(model, "dyck", length=5, method=method, context=context)
    certificate = found.answer.certificate
    assert certificate.estimator == found.answer.estimator.name == "exact"
    assert certificate.standard_error == 0.0
    assert found.expected_utility == pytest.approx(found.optimum, abs=EXACTLY)
    assert found.answer.surrogate == pytest.approx(found.optimum, abs=EXACTLY)


def test_the_surrogate_of_a_kernel_is_a_mean_over_all_of_its_prompts():
    """Under the linear tilt at order 0: W_j = E p_j(y), and the utility follows from no context."""
    model, length = "exact:coins(0.2,0.7,weights=[0.9,0.1])", 4
    problem = posed(model, "dyck", length)
    solved = open_method("ppt-rb-analytic(steps=7)").optimise([problem])[0]
    share = float(solved.ascent.prompt.transitions[0, 0, 1])
    every = all_sequences(2, length)
    ones = every.sum(-1).double()
    of_kernel = share**ones * (1 - share) ** (length - ones)
    weighed, total = 0.0, 0.0
    for bias, weight in ((0.2, 0.9), (0.7, 0.1)):
        tilt = float((of_kernel * bias**ones * (1 - bias) ** (length - ones)).sum()) * weight
        words = all_sequences(2, 4)
        law = (bias ** words.sum(-1).double()) * (1 - bias) ** (4 - words.sum(-1).double())
        values = problem.expected(words, torch.zeros(len(words), dtype=torch.long)).double()
        weighed, total = weighed + tilt * float((law * values).sum()), total + tilt
    assert solved.ascent.surrogate == pytest.approx(weighed / total, abs=EXACTLY)


@pytest.mark.parametrize("method", METHODS)
def test_allowed_prompts_are_scored_exactly_too(method):
    allowed = "first=1;position(3)=1;count(0)=2"
    found = elicit(MIXTURE, "dyck", length=5, method=method, allowed=allowed)
    answer = found.answer
    said = answer.surrogate if answer.snapped_surrogate is None else answer.snapped_surrogate
    assert said == pytest.approx(found.expected_utility, abs=EXACTLY)


def test_a_seed_changes_nothing_where_nothing_is_drawn():
    answers = open_method("classes-analytic").solve(
        posed_together(MIXTURE, ["dyck"], 6, seeds=(0, 1))
    )
    assert answers[0].surrogate == answers[1].surrogate
    assert torch.equal(answers[0].prompt, answers[1].prompt)


def test_who_asks_for_samples_gets_samples():
    for method in ("classes-analytic(samples=50)", "classes-analytic(estimator=psis)"):
        found = elicit(MIXTURE, "dyck", length=5, method=method).answer
        assert found.estimator.name != "exact" and found.surrogate_standard_error > 0


def test_where_means_are_not_known_latents_are_drawn_with_repeats():
    """Each draw is rolled out once: two rollouts would say nothing."""

    def peaks(continuation, context):
        return float(max(continuation) == 1)

    problem = posed("exact:coins(0.2,0.7)", peaks, 4, horizon=14)
    answer = open_method("ppt-analytic(steps=2)").solve([problem])[0]
    assert answer.surrogate_standard_error > 0 and answer.ess_fraction is not None


def test_atoms_without_weight_are_left_out():
    prior = open_model("exact:coins(0.0,0.5)").prior.after((1,))
    bank = AtomBank.of(prior)
    assert len(bank) == 1 and float(bank.kernels[0, 0, 1]) == 0.5


def test_the_panel_says_that_it_is_exact(capsys):
    asked = ["--length", "4", "--method", "classes-analytic", "--utility", "dyck", "--verbose"]
    main(["elicit", "--model", "exact:coins(0.2,0.7)", *asked])
    said = " ".join(capsys.readouterr().out.split())
    assert "exactly" in said and "each with its weight" in said
