"""Models that are no Bayes filter of the order or prior they claim, each caught at the default
effort; filters that are, told otherwise no more often than stated."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from examples import Claims
from scipy import stats

from posteer.banks import sample
from posteer.banks.checks.exchangeability import check_exchangeability, p_value_beyond
from posteer.banks.checks.moments import check_moments
from posteer.banks.checks.report import ALARM, CheckSettings, check_filter
from posteer.banks.checks.statistics import (
    least_noncentrality,
    normal_quantile,
    student_tail,
    upper_tail,
)
from posteer.families.registry import open_process
from posteer.models import FunctionModel, open_model
from posteer.views.terminal.banks import power_text


def user(predict, order=0):
    return FunctionModel(predict, vocab_size=2, order=order)


def binary(p):
    return torch.stack([1 - p, p], -1)


def urn(order, decay=1.0):
    """Polya's urns of an order as a user would write them, with a memory that may fade."""

    def predict(tokens):
        n, length = tokens.shape
        if length <= order:
            return torch.full((n, 2), 0.5, dtype=torch.float64)
        windows = tokens.unfold(1, order + 1, 1)
        now = tokens[:, length - order :]
        alike = (windows[..., :order] == now[:, None]).all(-1).double()
        weight = alike * decay ** torch.arange(alike.shape[1] - 1, -1, -1).double()
        ones = (weight * windows[..., -1]).sum(-1)
        return binary((ones + 0.5) / (weight.sum(-1) + 1))

    return predict


def drifting(tokens):
    """Leans to 1 as time goes by, whatever it has read."""
    p = (tokens.sum(-1).double() + 0.5) / (tokens.shape[1] + 1)
    late = min(1.0, tokens.shape[1] / 128)
    return binary((1 - 0.3 * late) * p + 0.3 * late)


def copying(tokens):
    """Repeats the last token nine times in ten."""
    if tokens.shape[1] == 0:
        return torch.full((len(tokens), 2), 0.5, dtype=torch.float64)
    return binary(0.1 + 0.8 * tokens[:, -1].double())


def alternating(tokens):
    """Ones at odd places, but for one in ten."""
    return binary(torch.full((len(tokens),), [0.1, 0.9][tokens.shape[1] % 2]).double())


def clockwork(tokens):
    """01 01 01 .. from a random start."""
    if tokens.shape[1] == 0:
        return torch.full((len(tokens), 2), 0.5, dtype=torch.float64)
    return binary(1 - tokens[:, -1].double())


CONCENTRATED = "markov(vocab=2,order=1,concentration={})"
ZOO = {
    "order 2 as 1": (lambda: user(urn(2), order=1), "exchangeability"),
    "order 1 as 0": (lambda: user(urn(1)), "exchangeability"),
    "forgetting": (lambda: user(urn(1, 0.98), order=1), "exchangeability"),
    "forgetting coin": (
        lambda: user(urn(0, 0.98)),
        "exchangeability",
    ),
    "drift": (lambda: user(drifting), "martingale"),
    "copy-last": (lambda: user(copying), "exchangeability"),
    "period 2": (lambda: user(alternating), "exchangeability"),
    "clockwork": (lambda: user(clockwork), "exchangeability"),
    "order 2 claimed 1": (lambda: Claims("markov(vocab=2,order=2)", "urn"), "prior"),
    "order 1 claimed 2": (lambda: Claims("urn", "markov(vocab=2,order=2)"), "prior"),
    "order 0 claimed 1": (lambda: Claims("beta-bernoulli", "urn"), "prior"),
    "concentration 0.2": (lambda: Claims(CONCENTRATED.format(0.2), "urn"), "prior"),
    "concentration 1": (lambda: Claims(CONCENTRATED.format(1.0), "urn"), "prior"),
}


QUICK = ("order 2 as 1", "forgetting")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ZOO]
)
def test_each_is_caught_at_the_default_effort(name):
    make, by = ZOO[name]
    model = make()
    report = check_filter(
        model, sample(model, rollouts=300, length=128), CheckSettings(families=False)
    )
    assert by in report.alarms, (report.verdict, report.p_values)
    assert report.verdict.startswith(f"deviates from a Bayes filter of order {model.order}: ")


def test_a_small_dependence_on_order_is_told_and_does_not_vote():
    """As trained networks have: seen by its size, below what matters."""
    model = user(urn(0, 0.999))
    report = check_filter(
        model, sample(model, rollouts=100, length=64), CheckSettings(effort=0.3, families=False)
    )
    swaps = report.exchangeability
    assert not swaps.exact and 0 < swaps.lean.value < swaps.threshold / 2
    assert swaps.p_value > 0.5 and not report.alarms
    assert "matters past 0.1" in report.verdict
    assert f"lean of {report.power.exchangeability:.2g}" in power_text(report.power)


def test_leans_are_those_of_the_two_probabilities():
    """By hand: |p - p'| / (p + p')."""
    model = user(urn(0, 0.5))
    found = check_exchangeability(model, rollouts=64, length=8, seed=0)
    odds = [math.exp(nats) for nats in found.differences]
    by_hand = np.mean([abs(one - 1) / (one + 1) for one in odds])
    assert found.lean.value == pytest.approx(by_hand, rel=1e-9)


def rolled(process, n, length, seed):
    prior = open_process(process)
    latents = prior.sample(n, np.random.default_rng(seed))
    tokens = latents.roll_out(length, torch.Generator().manual_seed(seed))
    return prior.family.count(tokens).int()


PRIORS = [
    "beta-bernoulli",
    "urn",
    "markov(vocab=3,order=1)",
    "mixture([[0.995,0.005],[1.0,0.0]],[[0.96,0.04],[0.0,1.0]])",
]


@pytest.mark.parametrize(
    "process", [PRIORS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in PRIORS[1:])]
)
def test_moments_of_the_right_prior_alarm_as_often_as_stated(process):
    """100 banks: at 5 % more than 11 have a chance of 0.4 %, at 1 % more than 4 one of 0.3 %."""
    centre = open_process(process).sample_kernels(5000, np.random.default_rng(0)).mean(0)
    banks = rolled(process, 100 * 500, 64, 1).split(500)
    p_values = [check_moments(bank[:100], bank[100:], centre).p_value for bank in banks]
    assert sum(p < 0.05 for p in p_values) <= 11
    assert sum(p < 0.01 for p in p_values) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("process", ["beta-bernoulli", "urn"])
def test_the_concentration_said_to_be_seen_is_seen(process):
    """80 banks: 90 % less four standard deviations, and far fewer at a third of the departure."""
    model = open_model(f"exact:{process}")
    report = check_filter(
        model, sample(model, rollouts=300, length=128), CheckSettings(effort=0.1, families=False)
    )
    factor = report.power.concentration
    assert 1.2 < factor < 2
    centre = torch.full((model.family.space.n_contexts, 2), 0.5, dtype=torch.float64)
    exact = rolled(process, 4096, 128, 999)

    def share(concentration):
        claimed = f"markov(vocab=2,order={model.order},concentration={concentration})"
        banks = rolled(claimed, 80 * 300, 128, 2).split(300)
        found = [check_moments(bank, exact, centre).p_value for bank in banks]
        return sum(2 * p < ALARM / 4 for p in found) / 80

    assert share(0.5 * factor) > 0.9 - 4 * math.sqrt(0.09 / 80)
    assert share(0.5 * factor ** (1 / 3)) < 0.5


def test_a_lean_said_to_be_seen_is_seen():
    """400 times as many leans as there were, spread as exponentials are."""
    model = open_model("exact:beta-bernoulli")
    settings = CheckSettings(effort=0.5, length=32, future=8, families=False)
    report = check_filter(model, sample(model, rollouts=64, length=32), settings)
    n, lean = report.exchangeability.moved, report.power.exchangeability
    stream = torch.Generator().manual_seed(0)

    def share(mean):
        drawn = -torch.rand(400, n, generator=stream, dtype=torch.float64).log() * mean
        return np.mean([p_value_beyond(row, 0.1) < ALARM / 4 for row in drawn])

    assert 0.8 < share(lean) < 0.97
    assert share(0.1) < 0.01


@pytest.mark.slow
def test_filters_are_told_otherwise_no_more_often_than_stated():
    """20 whole reports at an alarm of 1 %: more than 2 have a chance of 0.1 %."""
    settings = CheckSettings(effort=0.25, length=48, future=16, families=False)
    alarms = []
    for process in PRIORS:
        model = open_model(f"exact:{process}")
        for seed in range(5):
            bank = sample(model, rollouts=150, length=64, seed=seed)
            report = check_filter(model, bank, replace(settings, seed=seed))
            alarms += [(process, seed, report.alarms)] if report.alarms else []
    assert len(alarms) <= 2, alarms


def test_tails_and_powers_are_those_of_scipy():
    degrees = torch.tensor([29.0, 99.0, 400.0]).double()
    for t in (0.5, 2.0, 3.5, 5.0):
        ours = student_tail(torch.full_like(degrees, t), degrees)
        theirs = 2 * stats.t.sf(t, degrees.numpy())
        assert ours.numpy() == pytest.approx(theirs, rel=0.02)
    assert upper_tail(1.7) == pytest.approx(stats.norm.sf(1.7))
    assert normal_quantile(0.99) == pytest.approx(stats.norm.ppf(0.99))
    critical = stats.chi2.isf(0.001, 7)
    needed = least_noncentrality(8, 0.001, 0.9)
    assert stats.ncx2.sf(critical, 7, needed) == pytest.approx(0.9, abs=1e-6)
