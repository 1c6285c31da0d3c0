"""Models as latents: exact Bayes over them, and every token of every one of them counted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import small

import posteer
from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.goals.utilities import open_utility
from posteer.models import Can, FunctionModel, Metered, condition, open_model
from posteer.tokens.contexts import ContextSpace, all_sequences


class Counting:
    """A coin of a given bias, as a function that counts what it is sent."""

    def __init__(self, bias):
        self.bias, self.asked = bias, 0

    def __call__(self, tokens):
        self.asked += len(tokens) * (tokens.shape[1] > 0)
        return torch.tensor([[1 - self.bias, self.bias]]).double().expand(len(tokens), 2)

    def model(self):
        return FunctionModel(self, vocab_size=2, order=0, name=f"coin {self.bias}")


def pair():
    one, two = Counting(0.2), Counting(0.7)
    return posteer.personas([one.model(), two.model()], weights=[0.3, 0.7]), (one, two)


def asked_of(coins):
    return sum(coin.asked for coin in coins)


@pytest.mark.parametrize(
    "text",
    [
        "personas(exact:coins(0.2),exact:coins(0.7),weights=[0.3,0.7])",
        "personas(exact:coins(0.2,0.7,weights=[0.3,0.7]))",
        "personas(personas(exact:coins(0.2)),exact:coins(0.7),weights=[0.3,0.7])",
    ],
)
def test_personas_that_are_kernels_are_the_mixture_of_those_kernels(text):
    tokens, model = all_sequences(2, 6), open_model(text)
    expected = open_model("exact:coins(0.2,0.7,weights=[0.3,0.7])").log_predictive(tokens)
    assert torch.allclose(model.log_predictive(tokens), expected, atol=1e-12)
    assert Can.EXACT in model.can


def test_latents_against_sums_over_all_continuations():
    """Likelihood, posterior, mean utility and J, with a network among the personas."""
    models = [small(vocab=2), open_model("exact:urn"), condition(open_model("exact:urn"), (1, 1))]
    model = posteer.personas(models, weights=[0.5, 0.3, 0.2])
    prior, horizon = model.prior.as_atoms(), 3
    utility = open_utility("dyck", ContextSpace(2, 0))
    prompts, tails = all_sequences(2, 3), all_sequences(2, horizon)
    worth = utility(tails, torch.zeros(len(tails), dtype=torch.long))

    def likelihood(one, rows):
        laws = one.log_predictive(rows).double().log_softmax(-1)[:, :-1]
        return laws.gather(2, rows[..., None])[..., 0].sum(1).exp()

    whole = torch.cat([prompts.repeat_interleave(8, 0), tails.repeat(8, 1)], 1)
    longer = torch.stack([likelihood(one, whole) for one in models], 1).view(8, 8, 3)
    before = torch.stack([likelihood(one, prompts) for one in models], 1)
    means = (longer * worth[None, :, None]).sum(1) / before
    assert torch.allclose(prior.latents.log_likelihood(prompts).exp(), before, rtol=2e-6)
    assert torch.allclose(prior.latents.mean_utility(utility, prompts, horizon), means, atol=2e-6)
    joint = before * torch.tensor([0.5, 0.3, 0.2]).double()
    expected = (joint * means).sum(1) / joint.sum(1)
    found = posteer.expected_utility(model, "dyck", prompts, horizon)
    assert torch.allclose(found.expected_utility, expected, atol=2e-6), "single precision inside"


def test_long_histories_keep_the_laws_of_a_network_laws():
    model = posteer.personas([small(vocab=2), "exact:urn"])
    tokens = torch.ones(1, 40, dtype=torch.long)
    assert torch.allclose(model.log_predictive(tokens).exp().sum(-1), torch.ones(1, 41).double())


ASKED = {
    "method": st.sampled_from(
        [
            "exhaustive",
            "coordinate(restarts=2)",
            "random(prompts=9)",
            "beam(width=2)",
            "climb-analytic",
            "auto",
        ]
    ),
    "length": st.integers(2, 5),
    "horizon": st.integers(1, 4),
    "context": st.sampled_from(["", "0", "0110"]),
    "verify": st.sampled_from([0, 2]),
    "budget": st.one_of(st.none(), st.integers(1, 600), st.integers(600, 9000)),
}


@given(**ASKED)
@settings(max_examples=12)
def test_every_token_of_every_persona_is_counted_and_no_budget_exceeded(
    method, length, horizon, context, verify, budget
):
    model, coins = pair()
    more = {"verify": verify, "max_model_tokens": budget, "context": context, "method": method}
    try:
        found = posteer.elicit(model, "frequency(0.4)", length=length, horizon=horizon, **more)
    except InputError:
        assert budget is None or asked_of(coins) <= budget
        return
    cost = found.cost
    charged = cost["forward_tokens"] + cost["backward_tokens"] + cost["drawn_tokens"]
    assert budget is None or charged <= budget
    assert asked_of(coins) == charged + cost["judging_tokens"]
    one, two = (coin.asked for coin in coins)
    assert one == two


@pytest.mark.parametrize("context", [(), (0, 1, 1)])
def test_latents_behind_a_meter_are_charged(context):
    model, coins = pair()
    meter = Metered(condition(model, context))
    prior = meter.prior
    assert prior is not None and meter.queries.total == asked_of(coins) == 0, "looking is free"
    utility, prompts = open_utility("dyck", ContextSpace(2, 0)), all_sequences(2, 3)
    latents = prior.as_atoms().latents
    latents.log_likelihood(prompts)
    latents.mean_utility(utility, prompts, 3)
    latents.roll_out(5, torch_stream(0, "test"), (1,))
    prior.sample(7, numpy_stream(0, "test")).log_likelihood(prompts)
    assert meter.queries.total == asked_of(coins) > 0


def test_latents_behind_a_meter_stop_at_its_budget():
    model, coins = pair()
    meter = Metered(model)
    meter.spending.most = 20
    with pytest.raises(InputError, match="budget"):
        meter.prior.as_atoms().latents.log_likelihood(all_sequences(2, 4))
    assert asked_of(coins) <= 20


@pytest.mark.parametrize("method", ["climb-analytic", "auto"])
@pytest.mark.parametrize("budget", [20, 5000])
def test_a_search_on_latents_keeps_to_its_budget(budget, method):
    model, coins = pair()
    asked = {"length": 5, "method": method, "max_model_tokens": budget, "rank": False}
    if budget == 20:
        with pytest.raises(InputError, match="budget"):
            posteer.elicit(model, "frequency(0.4)", **asked)
        assert asked_of(coins) <= budget
        return
    found = posteer.elicit(model, "frequency(0.4)", **asked)
    assert 0 < asked_of(coins) - found.cost["judging_tokens"] <= budget


def test_personas_that_have_read_something_are_charged_for_it():
    coins = Counting(0.2), Counting(0.7)
    made = [condition(coins[0].model(), (1, 1, 1)), coins[1].model()]
    meter = Metered(condition(posteer.personas(made), (0,)))
    assert meter.context_tokens == 3 + 2
    meter.log_predictive(torch.zeros(4, 2, dtype=torch.long))
    assert meter.queries.total == asked_of(coins) == 4 * (3 + 2 + 2 * 2)


def test_means_over_too_many_continuations_are_no_means():
    """An estimate would make a certificate of nothing: other methods are used then."""
    model, _ = pair()
    latents = model.prior.as_atoms().latents
    utility = open_utility("frequency(0.2,token=1)", ContextSpace(2, 0))
    with pytest.raises(InputError, match="too many to enumerate"):
        latents.mean_utility(utility, torch.tensor([[0, 1]]), 13)
    found = posteer.elicit(model, "frequency(0.4)", length=3, horizon=13, rank=False)
    assert found.certificate is None and found.choice.method == "exhaustive"


def test_what_tells_personas_apart():
    one = posteer.personas(["exact:urn", "exact:coins(0.2)"])
    other = posteer.personas(["exact:urn", "exact:coins(0.3)"])
    weighed = posteer.personas(["exact:urn", "exact:coins(0.2)"], weights=[0.9, 0.1])
    again = posteer.personas(["exact:urn", "exact:coins(0.2)"], names=["a", "b"])
    assert len({one.fingerprint, other.fingerprint, weighed.fingerprint}) == 3
    assert again.fingerprint == one.fingerprint and again.name == "personas(a,b)"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("personas()", "expected models"),
        ("personas(3)", "expected a model such as urn"),
        ("personas(exact:urn,exact:markov(vocab=3))", r"over \[2, 3\] tokens"),
        ("personas(exact:urn,weights=[0.5,0.5])", "2 given for 1"),
        ("personas(exact:urn,weights=[0.5])", "not a distribution"),
        ("personas(exact:urn,weigths=[1])", "did you mean weights"),
        ("personas(exact:urn", "not closed"),
        ("personas(nobody)", "unknown model 'nobody'"),
        ("personas(" + "exact:urn," * 64 + "exact:urn)", "65 personas"),
        ("exact(urn)", "as in exact:urn"),
    ],
)
def test_what_is_no_mixture_is_refused(text, match):
    with pytest.raises(InputError, match=match) as refused:
        open_model(text)
    assert "\n" not in str(refused.value)


def test_a_name_in_brackets_may_hold_files(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def f(tokens):\n    return [[0.5, 0.5]] * len(tokens)\nf.vocab_size = 2\n")
    with file.open("a") as more:
        more.write("f.order = 0\n")
    model = open_model(f"personas(exact:urn,{file}:f,weights=[0.5,0.5])")
    assert [one.name for one in model.personas] == ["exact:urn", f"{file}:f"]
    assert Can.EXACT not in model.can, "a function is charged for, and is not asked freely"


def test_personas_over_one_alphabet_have_its_names_and_no_text():
    both = posteer.personas(["exact:coins(0.2)", "exact:urn"]).over("H,T", "")
    assert both.vocabulary.show([0, 1]) == "HT" and both.text == ""
    named = [open_model(name, alphabet="H,T") for name in ("exact:coins(0.2)", "exact:urn")]
    assert posteer.personas(named).names == ("H", "T")
