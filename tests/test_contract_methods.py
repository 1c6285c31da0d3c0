"""What every method promises, whatever it does: run against each one there is."""

import itertools
from dataclasses import replace

import pytest
import torch
from networks import small
from posing import posed, posed_together

from posteer.api import elicit, elicit_batch
from posteer.banks import DrawPlan, draw_bank
from posteer.core.errors import InputError
from posteer.methods.answers import Answer, Because, StopReason
from posteer.methods.auto import choose
from posteer.methods.needs import fitting, require_needs, unmet
from posteer.methods.protocol import LatentsFrom, Method, Needs, Request, Work, pose
from posteer.methods.registry import METHODS, open_method
from posteer.models import Can, Metered, open_model
from posteer.models.function import FunctionModel

QUICK = {
    "auto": "auto",
    "classes": "classes(samples=60,rollout-length=40,estimator=importance)",
    "classes-analytic": "classes-analytic(samples=60,estimator=importance)",
    "bounds": "bounds(nodes=50)",
    "climb": "climb(samples=60,rollout-length=40)",
    "climb-analytic": "climb-analytic(samples=60)",
    "ppt": "ppt(samples=60,rollout-length=40,steps=5)",
    "ppt-rb": "ppt-rb(samples=60,rollout-length=40,steps=5)",
    "ppt-analytic": "ppt-analytic(samples=60,steps=5)",
    "ppt-rb-analytic": "ppt-rb-analytic(samples=60,steps=5)",
    "gcg": "gcg(steps=3)",
    "coordinate": "coordinate",
    "random": "random(prompts=20)",
    "beam": "beam(width=3)",
    "exhaustive": "exhaustive",
    "simplex-pt": "simplex-pt(steps=3)",
    "real-pt": "real-pt(steps=3)",
    "soft-pt": "soft-pt(steps=3)",
}
every_method = pytest.mark.parametrize("name", QUICK)


FINITE = "exact:mixture([[0.9,0.1],[0.2,0.8]],[[0.3,0.7],[0.6,0.4]])"


def suited(network, name):
    """The network, or a prior of finitely many latents where a method needs one."""
    return FINITE if open_method(QUICK[name]).needs.finite else network


@pytest.fixture(scope="module")
def network():
    """It has gradients, embeddings, a family, and a prior that it does not filter."""
    model = small(vocab=2, width=16, heads=2, feedforward=16)
    model.prior = open_model("exact:urn").prior
    return model


def test_every_registered_method_is_here():
    assert set(METHODS.names()) == set(QUICK)


@every_method
def test_it_declares_what_it_needs_and_answers_what_is_asked(network, name):
    network = suited(network, name)
    method = open_method(QUICK[name])
    assert isinstance(method, Method) and isinstance(method.needs, Needs)
    problems = posed_together(network, ["dyck", "frequency(0.3)"], 5, seeds=(0, 1))
    for problem in problems:
        assert unmet(method.needs, problem) is None
    before = replace(problems[0].model.queries)
    answers = method.solve(problems)
    spent = problems[0].model.queries.since(before)
    assert len(answers) == len(problems)
    for answer in answers:
        assert isinstance(answer, Answer) and isinstance(answer.stop_reason, StopReason)
        assert answer.prompt.shape == (5,) and set(answer.prompt.tolist()) <= {0, 1}
        if method.needs.candidates:
            assert answer.candidates is not None
            assert torch.equal(answer.candidates[0], answer.prompt)
    charged = sum(answer.queries.total for answer in answers)
    if method.needs.latents is LatentsFrom.NOWHERE and name not in ("auto", "exhaustive"):
        assert charged >= spent.total, "what runs of a batch ask alike is read once"
        alone = 0
        for goal, seed in itertools.product(["dyck", "frequency(0.3)"], (0, 1)):
            (own,) = posed_together(network, [goal], 5, seeds=(seed,))
            before = replace(own.model.queries)
            method.solve([own])
            alone += own.model.queries.since(before).total
        assert charged == alone, "each run is charged what it asked, and nothing is forgotten"
    elif name != "exhaustive":  # seeds of an exhaustive search share what they asked
        assert charged == 0, "nothing is asked of the model while latents are searched"


@every_method
def test_the_same_request_has_the_same_answer(network, name):
    network = suited(network, name)
    asked = Request(model=network, utility="dyck", length=5, method=QUICK[name], seed=3)
    one, two = elicit_batch([asked])[0], elicit_batch([asked])[0]
    assert one.prompt == two.prompt and one.cost == two.cost
    assert one.surrogate == pytest.approx(two.surrogate, nan_ok=True)


@every_method
def test_allowed_prompts_are_honoured_or_refused(network, name):
    network = suited(network, name)
    method = open_method(QUICK[name])
    asked = Request(
        model=network, utility="dyck", length=5, method=QUICK[name], allowed="first=1;ban=00"
    )
    if not method.needs.conditions:
        with pytest.raises(InputError, match="cannot honour allowed prompts: use auto"):
            elicit_batch([asked])
        return
    prompt = elicit_batch([asked])[0].prompt
    assert prompt[0] == 1 and (0, 0) not in itertools.pairwise(prompt)


@every_method
@pytest.mark.parametrize("budget", [200, 1000])
def test_a_budget_is_kept(network, name, budget):
    network = suited(network, name)
    asked = {"length": 5, "method": QUICK[name], "max_model_tokens": budget}
    if open_method(QUICK[name]).needs.latents is LatentsFrom.ROLLOUTS:  # a block of 39 tokens
        with pytest.raises(
            InputError, match=f"takes 2,496 model tokens and the budget is {budget:,}"
        ):
            elicit(network, "dyck", **asked)
    elif name == "exhaustive" and budget < 32 * 19:
        with pytest.raises(InputError, match="takes 608 model tokens, the budget is 200"):
            elicit(network, "dyck", **asked)
    else:
        cost = elicit(network, "dyck", **asked).cost
        assert cost["forward_tokens"] + cost["backward_tokens"] <= budget


@every_method
def test_a_context_is_followed(network, name):
    network = suited(network, name)
    found = elicit(network, "dyck", length=4, method=QUICK[name], context="011")
    assert found.context == [0, 1, 1] and len(found.prompt) == 4


@every_method
def test_it_foretells_what_it_takes(network, name):
    network = suited(network, name)
    method = open_method(QUICK[name])
    work = method.forecast(posed(network, "dyck", 5), together=2)
    assert isinstance(work, Work)
    assert work.seconds is not None and work.seconds > 0
    assert work.steps > 0


@every_method
def test_what_is_missing_is_refused_in_one_line_with_methods_that_would_do(name):
    """On a model of which nothing but its predictions is known."""
    exact = open_model("exact:urn")
    bare = FunctionModel(
        lambda tokens: exact.log_predictive(tokens)[:, -1].exp(), vocab_size=2, order=1
    )
    bare.family = None
    problem = posed(bare, "dyck", 3)
    method = open_method(QUICK[name])
    others = fitting(problem)
    assert {"coordinate", "random", "beam", "exhaustive"} <= set(others)
    lacking = unmet(method.needs, problem)
    assert (lacking is None) == (name in others)
    if lacking is None:
        require_needs(method.needs, problem, name)
        assert len(method.solve([problem])[0].prompt) == 3
        return
    with pytest.raises(InputError) as refused:
        elicit(bare, "dyck", length=3, method=QUICK[name])
    assert "\n" not in str(refused.value) and str(refused.value).endswith(", ".join(others))


@every_method
def test_a_goal_that_is_no_expected_utility(network, name):
    network = suited(network, name)
    needs = open_method(QUICK[name]).needs
    if needs.expected_utility:
        with pytest.raises(InputError, match="is no expected utility"):
            elicit(network, "forward-xent(tau-0.3)", length=3, method=QUICK[name])
    else:
        found = elicit(network, "forward-xent(tau-0.3)", length=3, method=QUICK[name])
        assert found.expected_utility < 0


@every_method
def test_a_bank_is_used_or_refused(name):
    model = small(vocab=2, width=16, heads=2, feedforward=16)
    bank = draw_bank(Metered(model), DrawPlan(n_samples=60, rollout_length=30))
    asked = Request(model=model, utility="dyck", length=4, method=QUICK[name], bank=bank)
    if not open_method(QUICK[name]).needs.bank:
        with pytest.raises(InputError, match=r"uses no bank: use auto, classes|no known prior"):
            elicit_batch([asked])
        return
    if name == "auto":
        reasons = choose(pose([asked])).reasons
        assert [reason.because for reason in reasons] == [Because.BANK_GIVEN]
        return
    found = elicit_batch([asked])[0]
    assert found.cost["bank_tokens"] == bank.tokens == 64 * 29


def test_every_ability_is_needed_by_some_method_and_declared_by_some_model(network):
    needed = Can.NOTHING
    for text in QUICK.values():
        needed |= open_method(text).needs.model
    assert needed == Can.ONE_HOTS | Can.EMBED
    assert needed in network.can
