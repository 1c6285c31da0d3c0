"""Forward cross-entropy past enumeration, and of mixtures, against closed forms."""

import math

import pytest
import torch

import posteer
from posteer.goals.objectives import forward_cross_entropy

BIASES, HORIZON = (0.2, 0.8), 50
GOAL = "forward-xent(coins-0.2-0.8)"


def log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def closed_form(ones, zeros, horizon, biases=BIASES):
    """Exact Bayes with a Jeffreys prior predicts a row by its counts alone."""
    a, b = 0.5 + ones, 0.5 + zeros
    total = 0.0
    for bias in biases:
        for k in range(horizon + 1):
            chance = math.comb(horizon, k) * bias**k * (1 - bias) ** (horizon - k) / len(biases)
            total += chance * (log_beta(a + k, b + horizon - k) - log_beta(a, b))
    return total


def test_mixtures_of_coins_where_all_continuations_are_enumerated():
    found = posteer.evaluate("exact:beta-bernoulli", GOAL, "0110", horizon=6)
    assert found.expected_utility == pytest.approx(closed_form(2, 2, 6), abs=1e-12)
    table = "forward-xent([[[0.8,0.2]],[[0.2,0.8]]])"
    same = posteer.evaluate("exact:beta-bernoulli", table, "0110", horizon=6)
    assert same.expected_utility == pytest.approx(found.expected_utility, abs=1e-12)


def test_long_targets_are_sampled_with_an_honest_error():
    """Three prompts at five standard errors: a false alarm in 600,000."""
    for prompt in ("0110", "1111", "000001"):
        found = posteer.evaluate("exact:beta-bernoulli", GOAL, prompt, horizon=HORIZON, rank=False)
        ones = prompt.count("1")
        expected = closed_form(ones, len(prompt) - ones, HORIZON)
        assert found.standard_error > 0 and not found.judged.exact
        assert abs(found.expected_utility - expected) < 5 * found.standard_error


def test_draws_of_a_target_are_its_law():
    """Each of 64 rows of three tokens at 5.5 standard errors: a false alarm in 400,000."""
    goal = forward_cross_entropy("dir-4")
    n = 40_000
    for context in (0, 1):
        drawn = goal.draw(torch.full((n,), context), 3, torch.Generator().manual_seed(context))
        number = (drawn * torch.tensor([4, 2, 1])).sum(1)
        share = number.bincount(minlength=8).double() / n
        law = goal.law(3)[context]
        assert bool(((share - law).abs() <= 5.5 * (law * (1 - law) / n).sqrt() + 1e-12).all())


@pytest.mark.parametrize("method", ["coordinate", "auto"])
def test_prompts_are_found_for_long_targets(method):
    """Of six tokens J depends on the ones alone: three are best, four and two next to it."""
    values = [closed_form(ones, 6 - ones, HORIZON) for ones in range(7)]
    assert values.index(max(values)) == 3 and sorted(values)[-2] < max(values) - 0.02
    found = posteer.elicit(
        "exact:beta-bernoulli", GOAL, length=6, horizon=HORIZON, method=method, seed=1, rank=False
    )
    assert closed_form(sum(found.prompt), 6 - sum(found.prompt), HORIZON) >= max(values) - 0.3
    price = 6 + 128 * (HORIZON - 1)
    assert found.cost["forward_tokens"] % price == 0


def test_what_cannot_be_done_with_long_targets_is_said():
    asked = {"length": 6, "horizon": HORIZON, "rank": False}
    with pytest.raises(posteer.InputError, match="continuations are too many to enumerate"):
        posteer.elicit("urn", GOAL, method="gcg", **asked)
    with pytest.raises(posteer.InputError, match="parts of orders"):
        forward_cross_entropy([[[0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]])
    bank = posteer.sample("exact:beta-bernoulli", rollouts=10, length=20)
    with pytest.raises(posteer.InputError, match="needs every continuation"):
        posteer.estimate_from_bank(bank, GOAL, "0110", HORIZON)
