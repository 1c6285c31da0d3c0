"""What is asked, at every door: read alike, refused alike, and nothing silently changed."""

import inspect
import json
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from posing import posed

import posteer
from posteer.api import compare, elicit, elicit_batch, elicit_many
from posteer.cli import main
from posteer.core.errors import InputError
from posteer.families.registry import open_process
from posteer.methods.protocol import Request, pose
from posteer.methods.registry import open_method
from posteer.models import Can, ExactModel, condition, open_model

URN = {"model": "exact:urn", "utility": "dyck"}


def test_numbers_of_numpy_are_numbers():
    found = elicit("exact:urn", "dyck", length=np.int64(5), seed=np.int32(1), method="beam")
    assert json.loads(json.dumps(found.to_json()))["length"] == 5
    request = Request(**URN, length=np.int64(5), horizon=np.int8(3), max_model_tokens=np.uint8(9))
    for number in (request.length, request.horizon, request.max_model_tokens):
        assert type(number) is int


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 5.5},
        {"length": True},
        {"length": 5, "seed": "a"},
        {"length": 5, "seed": 1.5},
        {"length": 5, "max_model_tokens": "x"},
        {"length": 5, "max_model_tokens": 100.5},
        {"length": 5, "verify": "8"},
    ],
)
def test_what_is_no_whole_number_is_refused(wrong):
    with pytest.raises(InputError, match="expected a whole number"):
        Request(**URN, **wrong)


def test_no_method_is_auto_and_what_is_none_is_refused():
    assert elicit("exact:urn", "dyck", length=4, method=None).method == "auto"
    with pytest.raises(InputError, match="method 3: expected a name such as ppt-rb"):
        elicit("exact:urn", "dyck", length=4, method=3)


def test_devices_are_checked_for_objects_too():
    with pytest.raises(InputError, match="device 'tpu': expected auto, cpu or cuda"):
        elicit(open_model("exact:urn"), "dyck", length=4, method="random", device="tpu")


@pytest.mark.parametrize(
    ("door", "own", "left_out"),
    [
        (elicit, {"model", "utility"}, set()),
        (elicit_many, {"model", "utilities", "seeds"}, {"utility", "seed"}),
        (partial(compare, methods=["beam"]), {"utility", "methods"}, {"method", "seed"}),
    ],
)
def test_signatures_say_what_may_be_given(door, own, left_out):
    shown = set(inspect.signature(door).parameters)
    assert own | {"length", "horizon", "allowed", "verify", "device", "progress"} <= shown
    assert not shown & left_out
    for name in left_out:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            door("exact:urn", "dyck", length=4, **{name: 3})


def test_a_missing_length_is_told_by_its_name():
    with pytest.raises(TypeError, match="missing a required argument: 'length'"):
        elicit("exact:urn", "dyck")


def test_a_comparison_is_of_its_own_model_whatever_else_is_said(capsys):
    main(["compare", "--length", "4", "--methods", "random(prompts=2)", "--seeds", "1", "--json"])
    runs = json.loads(capsys.readouterr().out)["methods"][0]["runs"]
    assert runs[0]["model"] == "urn"


@pytest.mark.parametrize("command", [["elicit"], ["compare"], ["evaluate", "--prompt", "01"]])
def test_an_unknown_view_is_refused_before_anything_runs(command, capsys, monkeypatch):
    for door in ("elicit", "compare", "evaluate"):
        monkeypatch.setattr(f"posteer.api.{door}", None)
    with pytest.raises(SystemExit) as left:
        main([*command, "--view", "painting"])
    assert left.value.code == 2
    assert "unknown view 'painting'" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["auto", "classes-analytic", "ppt-rb-analytic", "ppt-analytic"])
def test_the_advice_of_a_size_refusal_can_be_followed(method):
    """200 tokens at order 1: 40,000 probabilities a latent."""
    model = "exact:markov(vocab=200,order=1)"
    with pytest.raises(InputError, match="do not fit") as refused:
        elicit(model, "frequency(0.3)", length=4, method=method)
    advised = str(refused.value).partition("`method` '")[2].rstrip("'")
    assert open_method(advised).draw.n_samples == 1677
    smaller = advised.replace("1677", "3")
    if method.startswith("ppt"):
        smaller = smaller.replace(")", ",steps=1)")
        assert len(open_method(smaller).optimise([posed(model, "frequency(0.3)", 4)])) == 1


def test_contexts_add_up_however_they_are_given():
    prior = open_process("markov(vocab=2,order=2)")
    exact = ExactModel(prior)
    at_once = condition(exact, (0, 1, 1, 0))
    in_turn = condition(condition(exact, (0, 1, 1)), (0,))
    begun = condition(ExactModel(prior.after((0, 1, 1))), (0,))
    straight = ExactModel(prior.after((0, 1, 1, 0)))
    prompts = torch.tensor([[0, 1, 0], [1, 1, 0]])
    found = [
        posteer.expected_utility(model, posteer.open_utility("dyck", model), prompts, 4)
        for model in (at_once, in_turn, begun, straight)
    ]
    for model, values in zip((at_once, in_turn, begun, straight), found, strict=True):
        assert model.context == model.prior.context == (0, 1, 1, 0)
        assert torch.allclose(values.expected_utility, found[0].expected_utility, atol=1e-12)
    assert at_once.fingerprint == in_turn.fingerprint != exact.fingerprint
    methods = {"method": "classes-analytic(samples=300,estimator=importance)", "length": 5}
    records = [elicit(model, "dyck", **methods) for model in (at_once, straight)]
    assert records[0].context == records[1].context == [0, 1, 1, 0]
    assert records[0].surrogate == pytest.approx(records[1].surrogate, rel=1e-12)
    network = condition(condition(open_model("beta-bernoulli"), (0, 1)), (1,))
    assert network.context == (0, 1, 1) and network.context_tokens == 3


class Warm:
    """Its second parameter is no capacity."""

    vocab_size, order = 2, 1

    def __init__(self):
        self.inner = open_model("exact:urn")
        self.process = self.inner.prior
        self.asked = []

    def start(self, batch, temperature=1.0):
        self.asked.append(temperature)
        return self.inner.start(batch)

    def advance(self, state, tokens):
        return self.inner.advance(state, tokens)


class Roomy(Warm):
    def start(self, batch, *, capacity):
        self.asked.append(capacity)
        return self.inner.start(batch)


def test_an_object_is_given_what_it_asks_for_by_name():
    warm, roomy = Warm(), Roomy()
    for given in (warm, roomy):
        opened = open_model(given)
        opened.log_predictive(torch.zeros(1, 3, dtype=torch.long))
        assert opened.prior is given.process
    assert warm.asked == [1.0] and roomy.asked == [3]


def test_an_object_that_declares_nothing_can_do_what_it_brings():
    from networks import small

    network = small(vocab=2)

    @dataclass
    class Bare:
        vocab_size: int = 2
        order: int = 1

        def start(self, batch, capacity=16):
            return network.start(batch, capacity)

        def advance(self, state, tokens):
            return network.advance(state, tokens)

        def continuation_log_probs_of_rows(self, rows, horizon):
            return network.continuation_log_probs_of_rows(rows, horizon)

    assert open_model(Bare()).can == Can.ONE_HOTS
    assert elicit(Bare(), "dyck", length=4, method="gcg(steps=1)").cost["backward_tokens"] > 0


def test_a_batch_shares_all_but_utility_and_seed():
    one = Request(**URN, length=5)
    with pytest.raises(InputError, match="may differ in utility and seed alone"):
        pose([one, Request(**URN, length=6)])


@pytest.mark.parametrize("given", [5, [5], "dyck", None])
def test_what_are_no_requests_are_refused(given):
    with pytest.raises(InputError, match="expected requests"):
        elicit_batch(given)
    asked = [Request(model="exact:urn", utility="dyck", length=3)]
    with pytest.raises(InputError, match="progress 5"):
        elicit_batch(asked, 5)
