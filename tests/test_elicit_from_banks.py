"""Steering from saved banks: shipped by default, others by choice, never by mistake."""

import math

import pytest
import torch
from posing import posed, posed_together

import posteer
from posteer.api.eliciting import elicit
from posteer.banks.shipped import shipped_bank
from posteer.core.errors import InputError
from posteer.families.markov.kernels import final_context
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import latents_last, log_tilt
from posteer.goals.utilities import open_utility
from posteer.methods.answers import Because
from posteer.methods.auto import choose
from posteer.methods.ppt.batches import on_held_out
from posteer.methods.registry import open_method
from posteer.models import FunctionModel
from posteer.paper.published import TARGETS, utility_of_target
from posteer.views.sentences import choice_text


@pytest.mark.parametrize("name", ["urn", "urn-16k", "beta-bernoulli", "ternary", "second-order"])
def test_shipped_banks_belong_to_the_shipped_models(name):
    model = posteer.load(name)
    tuning, held_out = (shipped_bank(model.fingerprint, kind) for kind in ("tuning", "held-out"))
    assert (tuning.origin.seed, held_out.origin.seed) == (0, 1)
    rollouts, length = 5000, 2000
    for bank in (tuning, held_out):
        assert len(bank) == rollouts
        assert bank.origin.rollout_length == length
        assert bank.origin.model == name.removesuffix("-16k")
        assert bank.origin.tokens == rollouts * (length - 1)
        assert bank.space == model.family.space
        assert int(bank.counts[0].sum()) == length - model.family.space.order
    assert not (tuning.counts == held_out.counts).all()


MIXTURES = {
    "mess3-mixture": "atoms",
    "chains-16": "atoms",
    "chains-1024": "markov",
    "ginc": "atoms",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "chains-1024")) for name in MIXTURES],
)
def test_trained_mixtures_ship_with_latents_of_their_kind(name):
    model = posteer.load(name)
    tuning, held_out = (shipped_bank(model.fingerprint, kind) for kind in ("tuning", "held-out"))
    assert (tuning.origin.seed, held_out.origin.seed) == (0, 1)
    for bank in (tuning, held_out):
        assert len(bank) == 2000 and bank.origin.rollout_length == 127
        assert bank.latents.family.name == MIXTURES[name]
    found = elicit(model, "frequency(0.0)", length=5, horizon=2, verify=4)
    assert found.choice.reasons[0].because is Because.BANK_SHIPPED
    assert abs(found.surrogate - found.expected_utility) < 0.05


def test_a_bank_of_another_family_is_not_held_against_the_shipped_one():
    """The wrong family for this model: it is used as it is, and nothing is held out of it."""
    model = posteer.load("mess3-mixture")
    bank = posteer.sample(model, rollouts=64, length=40, family="markov(order=1)")
    found = elicit(model, "frequency(0.0)", length=4, horizon=2, bank=bank)
    assert found.choice.method == "classes" and found.held_out_surrogate is None


def test_trained_models_are_steered_from_their_shipped_bank():
    found = elicit("urn", "dyck", length=6)
    assert found.method == "auto" and found.choice.method == "classes"
    assert found.choice.reasons[0].because is Because.BANK_SHIPPED
    assert choice_text(found.choice).startswith("classes: latents from the bank that ships with")
    assert found.prompt == [0, 1, 0, 1, 0, 1]
    assert found.cost == {
        "forward_tokens": 0,
        "backward_tokens": 0,
        "bank_tokens": 9_995_000,
        "drawn_tokens": 0,
        "judging_tokens": 65 * (6 + 14),
    }
    error = math.hypot(found.surrogate_standard_error, found.held_out_standard_error)
    assert abs(found.surrogate - found.held_out_surrogate) < 5 * error
    assert found.surrogate != found.held_out_surrogate


@pytest.mark.parametrize("method", ["ppt", "ppt-rb"])
@pytest.mark.parametrize("name", ["urn", "beta-bernoulli"])
def test_every_published_utility_runs_from_the_shipped_banks(name, method):
    """No token of the model is read while ascending; the full runs are in docs/records."""
    problems = posed_together(name, map(utility_of_target, TARGETS[name]), 6)
    for answer in open_method(f"{method}(steps=2)").solve(problems):
        assert answer.queries.forward_tokens == answer.queries.backward_tokens == 0
        assert answer.bank_tokens == 9_995_000
        assert answer.held_out_surrogate is not None
    assert problems[0].model.queries.total == 0


def test_the_held_out_surrogate_is_the_estimate_on_the_other_bank():
    """Against its definition: weights and means of the held-out latents under the same kernel."""
    model = posteer.load("urn")
    space = model.family.space
    utility = open_utility("frequency(0.3)", space)
    method = open_method("ppt-rb(steps=20)")
    (solution,) = method.optimise([posed(model, utility, 6)])
    ((value, error),) = on_held_out([solution], "linear", "cpu")
    other = shipped_bank(model.fingerprint, "held-out")
    prompt = solution.ascent.prompt
    weights = log_tilt(space, prompt, latents_last(other.kernels)[None], 5)[0].softmax(0)
    last = final_context(space, prompt.transitions, prompt.initial, 5)[0]
    means = utility_of_kernels(utility, space, other.kernels, 4) @ last
    assert value == pytest.approx(float(weights @ means))
    spread = (weights * (means - weights @ means)).square().sum().sqrt()
    assert error == pytest.approx(float(spread))
    assert torch.isfinite(spread)


def test_a_given_bank_is_used_and_one_of_another_model_is_not(tmp_path):
    path = tmp_path / "bank.safetensors"
    bank = posteer.sample("exact:urn", rollouts=300, length=100, out=path)
    found = elicit("exact:urn", "dyck", length=5, bank=path, method="ppt-rb")
    assert found.cost["bank_tokens"] == 300 * 99
    assert found.held_out_surrogate is None
    same = elicit("exact:urn", "dyck", length=5, bank=bank, method="ppt-rb")
    assert same.surrogate_history == pytest.approx(found.surrogate_history, abs=1e-9)
    with pytest.raises(InputError, match=r"drawn from exact:urn .*not from urn"):
        elicit("urn", "dyck", length=5, bank=path)
    assert elicit("urn", "dyck", length=5, bank=path, allow_mismatch=True).prompt
    with pytest.raises(InputError, match="of 2 tokens at order 1: exact:beta-bernoulli has"):
        elicit("exact:beta-bernoulli", "dyck", length=5, bank=path, allow_mismatch=True)
    held_out = shipped_bank(posteer.load("beta-bernoulli").fingerprint, "held-out")
    own = elicit(
        "beta-bernoulli", "frequency(0.3)", length=5, bank=held_out, method="ppt-rb(steps=9)"
    )
    assert own.surrogate != own.held_out_surrogate, "the other shipped bank is held out then"
    for method in ("exhaustive", "ppt-rb-analytic"):
        with pytest.raises(InputError, match="uses no bank"):
            elicit("exact:urn", "dyck", length=5, bank=path, method=method)
    posterior = posteer.sample("exact:urn", rollouts=50, length=40, context="0110")
    with pytest.raises(InputError, match="is a posterior, drawn after 4 observed tokens"):
        elicit("exact:urn", "dyck", length=5, bank=posterior)


def test_the_default_method_fits_the_model():
    def default_method(model):
        return choose([posed(model, "dyck", 6)]).method

    assert default_method(posteer.load("urn")) == "classes"
    assert default_method(posteer.open_model("exact:urn")) == "classes-analytic"
    unknown = FunctionModel(lambda tokens: None, vocab_size=2, order=0)
    assert default_method(unknown) == "exhaustive"
    assert choose([posed(unknown, "dyck", 20)]).method == "classes"


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        ("ppt-rb(samples=100,rollout-length=50,steps=2)", "drawing a bank takes 4,900 model tok"),
        ("exhaustive", "trying every prompt takes"),
    ],
)
@pytest.mark.parametrize("model", ["exact:urn", "beta-bernoulli"])
def test_budgets_that_cannot_be_kept_are_refused(model, method, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit(model, "dyck", length=6, method=method, max_model_tokens=100)
    paid = elicit(model, "dyck", length=6, method=method, max_model_tokens=6000)
    assert len(paid.prompt) == 6
