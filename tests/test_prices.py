"""All prompts are tried where that costs less than latents would, by counted tokens and a clock
that the model itself turns."""

import pytest
import torch
from posing import posed

from posteer import elicit
from posteer.banks.plans import DrawPlan
from posteer.methods.answers import Because
from posteer.methods.auto import choose
from posteer.methods.prices import TIMED, cheaper_than_bank, price_of_all
from posteer.models import FunctionModel

PLAN = DrawPlan(free=("n_samples", "rollout_length"), seconds=100.0)
SEVEN = 343 * (3 + 7 + 49 + 343)
"""Tokens of all prompts of three tokens out of seven, horizon 4."""


class Timed(FunctionModel):
    """Seven tokens, each as likely as it is often in the history; so many seconds a token."""

    def __init__(self, seconds=0.0, order=1):
        super().__init__(self.predict, vocab_size=7, order=order, name="timed")
        self.seconds, self.now = seconds, 0.0

    def predict(self, tokens):
        self.now += self.seconds * len(tokens)
        counts = torch.nn.functional.one_hot(tokens, 7).sum(1) + 0.5
        return counts / counts.sum(-1, keepdim=True)

    def clock(self):
        return self.now


def test_few_prompts_of_many_tokens_are_all_tried():
    """Seven tokens, length 3: no bank, and the best of all 343 prompts."""
    model = Timed()
    found = elicit(model, "frequency(0.5)", length=3, rank=True)
    assert found.choice.method == "exhaustive" and found.rank == 1
    assert found.cost["drawn_tokens"] == 0
    assert SEVEN <= found.cost["forward_tokens"] <= SEVEN + 2 * TIMED * 402


@pytest.mark.parametrize(
    ("seconds", "why"), [(1e-6, Because.ALL_QUICKER), (1e-2, None)], ids=["quick", "slow"]
)
def test_where_a_bank_may_cost_less_the_model_is_timed(seconds, why):
    """138,000 tokens take 0.1 s or 23 minutes; a bank takes 100 s at most."""
    model = Timed(seconds)
    problem = posed(model, "frequency(0.5)", 3)
    assert price_of_all([problem]) == SEVEN > 256 * 124
    found = cheaper_than_bank([problem], PLAN, model.clock)
    assert (None if found is None else found.because) == why
    assert problem.model.queries.total == 2 * TIMED * 402


@pytest.mark.parametrize("timed", [True, False])
def test_what_is_surely_cheaper_is_not_timed(timed):
    """And is so whether or not a bank was kept: what is chosen does not hang on that."""
    model = Timed(order=0)
    problem = posed(model, "frequency(0.5)", 1, horizon=2)
    found = cheaper_than_bank([problem], PLAN, model.clock if timed else None)
    assert found.because is Because.ALL_CHEAPER and found.figures["tokens"] == 7 * (1 + 7)
    assert problem.model.queries.total == 0


def test_prices_add_up_over_goals_and_budgets_hold():
    model = Timed()
    goals = [posed(model, name, 3) for name in ("frequency(0.5)", "frequency(1)")]
    assert price_of_all(goals) == 2 * SEVEN
    assert price_of_all([posed(model, "frequency(1)", 3, max_model_tokens=SEVEN - 1)]) is None
    tight = posed(model, "frequency(1)", 3, max_model_tokens=SEVEN + 1)
    assert cheaper_than_bank([tight], PLAN, model.clock) is None
    assert tight.model.queries.total == 0, "no room to time it"
    assert price_of_all([posed(model, "frequency(1)", 5)]) is None, "16,807 prompts"


def test_a_bank_that_is_to_be_saved_is_drawn(tmp_path):
    problem = posed(Timed(), "frequency(1)", 3, save_bank=tmp_path / "bank.safetensors")
    assert cheaper_than_bank([problem], PLAN) is None


@pytest.mark.parametrize(
    ("model", "method"),
    [("exact:markov(vocab=7,order=1)", "exhaustive"), ("exact:urn", "classes-analytic")],
)
def test_latents_of_a_known_prior_are_worked_on_where_their_tables_are_small(model, method):
    found = choose([posed(model, "frequency(0.5)", 3)])
    assert found.method == method
