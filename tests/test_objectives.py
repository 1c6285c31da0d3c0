"""The forward cross-entropy, beside the expected utility."""

import math

import pytest
import torch
from networks import small
from oracles import kernel_probability, sequences

from posteer.api.eliciting import elicit
from posteer.api.evaluating import evaluate
from posteer.banks import draw_analytic
from posteer.core.errors import InputError
from posteer.evaluation import estimate_from_bank, expected_utility
from posteer.goals.objectives import ForwardCrossEntropy, forward_cross_entropy
from posteer.goals.utilities import open_goal
from posteer.models import open_model
from posteer.models.continuations import continuation_laws
from posteer.tokens.contexts import ContextSpace, all_sequences

TARGET = [[0.1, 0.9], [0.7, 0.3]]


def test_forward_cross_entropy_against_its_definition():
    """-E_{y ~ target}[log pi(y | prompt)], larger being better, by plain enumeration."""
    model = small(vocab=2)
    goal = forward_cross_entropy(TARGET)
    prompts = all_sequences(2, 4)
    found = expected_utility(model, goal, prompts, 3).expected_utility
    laws = continuation_laws(model, prompts, 3)
    for row, prompt in enumerate(prompts.tolist()):
        total = 0.0
        for column, continuation in enumerate(sequences(2, 3)):
            tokens = tuple(prompt[-1:]) + continuation
            total += kernel_probability(tokens, TARGET, 1, 2, 1) * float(laws[row, column])
        assert float(found[row]) == pytest.approx(total, abs=1e-9)


def test_its_optimum_is_minus_the_targets_entropy():
    """A law equal to the target cannot be beaten; zeros of the target cost nothing."""
    goal = forward_cross_entropy([[0.0, 1.0], [0.5, 0.5]])
    law = goal.law(3)
    entropy = torch.where(law > 0, law * law.log(), 0.0).sum(-1)
    logs = law.log()
    assert torch.allclose(goal.of_laws(logs, torch.tensor([0, 1])), entropy)
    worse = torch.full((2, 8), -math.log(8)).double()
    assert bool((goal.of_laws(worse, torch.tensor([0, 1])) < entropy).all())


def test_the_bank_estimates_it():
    """E_target[log sum_l w_l kernel_l(y)] approaches the exact predictive mixture."""
    model = open_model("exact:urn")
    goal = forward_cross_entropy(TARGET)
    prompts = all_sequences(2, 5)[::5]
    exact = expected_utility(model, goal, prompts, 4).expected_utility
    bank = draw_analytic(model.prior, 40_000, seed=1)
    found = estimate_from_bank(bank, goal, prompts, 4)
    assert torch.allclose(found, exact, atol=0.06)  # 40,000 latents; ESS at worst a few hundred


@pytest.mark.parametrize("process", ["urn", "beta-bernoulli", "markov(vocab=2,order=2)"])
@pytest.mark.parametrize(
    "name", ["forward-xent(tau-0.2)", "forward-xent(sym-0.3)", "dyck", "reverse-xent(dir-4)"]
)
def test_bank_estimates_of_goals_of_any_order(process, name):
    """Targets of a lower, the same and a higher order than the latents."""
    model = open_model(f"exact:{process}")
    goal = open_goal(name, model)
    prompts = all_sequences(2, 5)[3::7]
    exact = expected_utility(model, goal, prompts, 3).expected_utility
    bank = draw_analytic(model.prior, 40_000, seed=2)
    found = estimate_from_bank(bank, goal, prompts, 3)
    assert torch.allclose(found, exact, atol=0.08, rtol=0.02)


def test_forward_and_reverse_have_different_optima():
    """The reverse form sits on the likelier face of a coin, the forward form covers both."""
    reverse = elicit("exact:beta-bernoulli", "reverse-xent(tau-0.6)", length=6, method="exhaustive")
    forward = elicit("exact:beta-bernoulli", "forward-xent(tau-0.6)", length=6, method="exhaustive")
    assert reverse.prompt == [1] * 6
    assert 0 < sum(forward.prompt) < 6
    assert (
        forward.expected_utility
        > evaluate("exact:beta-bernoulli", "forward-xent(tau-0.6)", reverse.prompt).expected_utility
    )


@pytest.mark.parametrize(
    "method", ["gcg", "coordinate", "random(prompts=20)", "beam", "soft-pt(steps=5)"]
)
def test_searches_take_it(method):
    found = elicit("beta-bernoulli", "forward-xent(tau-0.3)", length=6, method=method)
    assert found.utility == "forward-xent(tau-0.3)"
    assert found.expected_utility <= found.optimum + 1e-6


def test_what_it_cannot_do_is_said():
    with pytest.raises(InputError, match="no expected utility, which is what PPT ascends"):
        elicit("exact:urn", "forward-xent(sym-0.1)", length=6, method="ppt-rb-analytic")
    goal = forward_cross_entropy("tau-0.2")
    with pytest.raises(InputError, match="is for 2 tokens"):
        open_goal(goal, ContextSpace(3, 0))
    with pytest.raises(InputError, match="unknown target"):
        open_goal("forward-xent(huh)", ContextSpace(2, 0))
    with pytest.raises(InputError, match="unknown utility 'forward-xentropy'"):
        open_goal("forward-xentropy(tau-0.2)", ContextSpace(2, 0))
    assert isinstance(open_goal("forward-xent(dir-3)", ContextSpace(2, 1)), ForwardCrossEntropy)


def test_contexts_of_the_target_are_numbered_alike():
    goal = forward_cross_entropy(TARGET)
    assert torch.allclose(goal.law(1), torch.tensor(TARGET).double())
