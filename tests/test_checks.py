"""The filter checks: quiet on exact Bayes, loud on what is not, and right about which."""

import json

import numpy as np
import pytest
import torch
from examples import Claims
from scipy import stats

from posteer.banks import DrawPlan, draw_analytic, draw_bank, sample
from posteer.banks.checks.exchangeability import check_exchangeability, swap_blocks
from posteer.banks.checks.martingale import check_martingale
from posteer.banks.checks.prior import check_prior
from posteer.banks.checks.ranks import check_ranks
from posteer.banks.checks.reference import reference
from posteer.banks.checks.report import CheckSettings, check_filter
from posteer.banks.checks.statistics import (
    bonferroni,
    kolmogorov_tail,
    two_sample_ks,
    uniformity,
    wasserstein,
)
from posteer.core.errors import InputError
from posteer.families.registry import open_process
from posteer.models import FunctionModel, Metered, open_model
from posteer.tokens.contexts import ContextSpace, count_transitions

EXACT = [
    "exact:beta-bernoulli",
    "exact:urn",
    "exact:markov(vocab=3,order=1)",
    "exact:markov(vocab=2,order=2)",
    "exact:mixture([[0.9,0.1],[0.2,0.8]],[[0.3,0.7],[0.6,0.4]])",
]
SMALL = CheckSettings(effort=0.5, length=64, future=24, families=False)


@pytest.mark.parametrize("name", EXACT)
def test_exact_bayes_raises_no_alarm(name):
    """The alarm is set to 1 %; here a tenth of that, so one of these fails once in 200 changes."""
    model = Metered(open_model(name))
    bank = draw_bank(model, DrawPlan(n_samples=1000, rollout_length=200, seed=4))
    report = check_filter(model, bank, SMALL)
    assert min(report.p_values.values()) * 4 > 0.001, report.p_values
    assert report.verdict.startswith("no deviation")
    assert report.verdict.endswith("exchangeable to rounding")
    assert set(report.p_values) == {"prior", "ranks", "martingale", "exchangeability"}
    assert report.exchangeability.moved > 0.5 * report.exchangeability.sequences
    settled = report.convergence
    assert settled.slope.low - 0.1 < settled.exact_slope < settled.slope.high + 0.1
    json.dumps(report.to_json(), allow_nan=False)


STICKY = "exact:mixture([[0.995,0.005],[1.0,0.0]],[[0.96,0.04],[0.0,1.0]])"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EXACT[1:], STICKY])
def test_false_alarms_are_as_rare_as_stated(name):
    """40 seeds: at most 2 p-values below 1 % each has a chance of 0.7 % to be exceeded."""
    model = open_model(name)
    drift = [
        check_martingale(
            model, rollouts=200, length=64, seed=s, independent_rows="mixture" not in name
        ).p_value
        for s in range(40)
    ]
    ranks = [
        check_ranks(
            model, model.prior, simulations=64, draws=15, observed=8, future=16, seed=s
        ).p_value
        for s in range(40)
    ]
    assert sum(p < 0.01 for p in drift) <= 2
    assert sum(p < 0.01 for p in ranks) <= 2


def test_a_filter_of_another_prior_is_coherent_but_not_calibrated():
    wrong = "markov(vocab=2,order=1,concentration=0.2)"
    model = Claims(wrong, "urn")
    bank = draw_bank(Metered(model), DrawPlan(n_samples=1000, rollout_length=200))
    report = check_filter(
        model, bank, CheckSettings(effort=2.0, length=64, future=24, families=False)
    )
    assert report.prior.p_value < 1e-6
    assert report.ranks.p_value < 0.003
    assert report.martingale.p_value > 0.001
    assert report.exchangeability.exact
    assert report.verdict == (
        "deviates from a Bayes filter of order 1: prior, ranks; exchangeable to rounding"
    )
    worst = max(report.prior.rows, key=lambda row: row.wasserstein)
    assert worst.wasserstein > max(worst.wasserstein_exact)


def forgetful(tokens):
    """Polya's urn with a memory that fades: the order of the past matters."""
    weight = 0.9 ** torch.arange(tokens.shape[1] - 1, -1, -1).double()
    ones = (tokens * weight).sum(-1, keepdim=True) + 0.5
    p = ones / (weight.sum() + 1)
    return torch.cat([1 - p, p], -1)


def boastful(tokens):
    """Polya's urn that overstates what it believes: it expects to change its mind."""
    p = (tokens.sum(-1, keepdim=True).double() + 0.5) / (tokens.shape[1] + 1)
    sharp = p**1.5 / (p**1.5 + (1 - p) ** 1.5)
    return torch.cat([1 - sharp, sharp], -1)


def test_a_fading_memory_is_not_exchangeable():
    model = FunctionModel(forgetful, vocab_size=2, order=0)
    found = check_exchangeability(model, rollouts=200, length=60, seed=0)
    assert not found.exact
    assert found.drift.low > 0.1
    assert found.size.low > 0.5
    assert found.next_token > 0.01
    assert found.verdict.startswith("swaps move 60 tokens by")


def test_overconfidence_drifts_outward():
    model = FunctionModel(boastful, vocab_size=2, order=0)
    found = check_martingale(model, rollouts=1500, length=64, seed=0, independent_rows=False)
    assert found.p_value < 1e-6
    late = [drift for drift in found.drifts if drift.from_visit >= 4]
    assert all(drift.outward.low > 0 for drift in late)


def test_without_a_process_the_other_checks_still_run():
    model = FunctionModel(forgetful, vocab_size=2, order=0)
    bank = sample(model, rollouts=64, length=32)
    report = check_filter(model, bank, CheckSettings(effort=0.2, length=32, families=False))
    assert report.prior is None and report.ranks is None
    assert set(report.p_values) == {"martingale", "exchangeability"}


def test_a_bank_that_was_not_rolled_out_cannot_be_checked():
    model = open_model("exact:urn")
    with pytest.raises(InputError, match="not drawn by rollouts"):
        check_filter(model, draw_analytic(model.prior, 50, 0))
    with pytest.raises(InputError, match="effort 0"):
        CheckSettings(effort=0.0)


@pytest.mark.parametrize("unvisited", ["donor", "uniform"])
@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("urn", ""),
        ("urn", "0110"),
        ("markov(vocab=2,order=3)", "00"),
        ("markov(vocab=2,order=3)", "001"),
        ("markov(vocab=2,order=5)", ""),
    ],
)
def test_the_reference_is_what_exact_rollouts_show(name, context, unvisited):
    """Short rollouts, many rows unvisited, contexts shorter than the order: one in 10,000."""
    model = open_model(f"exact:{name}")
    bank = sample(model, rollouts=1500, length=24, context=context, seed=8, unvisited=unvisited)
    exact = reference(model.prior, bank, seed=1)
    assert len(exact.full) == 4096
    assert sorted(exact.counts) == sorted([*bank.snapshots, 24])
    assert int(exact.full[0].sum()) == int(bank.counts[0].sum())
    found = check_prior(bank, exact)
    assert len(found.rows) == model.family.space.n_contexts
    assert found.p_value > 1e-4


@pytest.mark.parametrize(("vocab", "order"), [(2, 0), (2, 1), (3, 2), (2, 3), (4, 2)])
def test_swaps_keep_every_transition_count(vocab, order):
    space = ContextSpace(vocab, order)
    stream, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    moved = 0
    for _ in range(30):
        tokens = torch.randint(vocab, (80,), generator=generator)
        swapped, made = swap_blocks(space, tokens, stream, 8)
        assert made <= 8
        assert torch.equal(count_transitions(space, tokens), count_transitions(space, swapped))
        assert torch.equal(tokens[:order], swapped[:order])
        moved += int(not torch.equal(tokens, swapped))
    assert moved > 25


def test_statistics_are_those_of_scipy():
    stream = np.random.default_rng(3)
    first, second = stream.beta(0.5, 0.5, 300), stream.beta(0.6, 0.5, 450)
    ours = two_sample_ks(torch.from_numpy(first), torch.from_numpy(second))
    theirs = stats.ks_2samp(first, second, method="asymp")
    assert ours[0] == pytest.approx(theirs.statistic, abs=1e-6)
    assert ours[1] == pytest.approx(theirs.pvalue, abs=0.05)
    distance = wasserstein(torch.from_numpy(first), torch.from_numpy(second))
    assert distance == pytest.approx(stats.wasserstein_distance(first, second), rel=1e-6)
    for x in (0.3, 0.8, 1.36, 2.0):
        assert kolmogorov_tail(x) == pytest.approx(stats.kstwobign.sf(x), abs=1e-9)
    ranks = stream.integers(0, 16, 200)
    seen = np.bincount(ranks // 2, minlength=8)
    expected = stats.chisquare(seen).pvalue
    assert uniformity(torch.from_numpy(ranks), 16, 8) == pytest.approx(expected, rel=1e-6)
    assert bonferroni([0.5, 0.01, 0.2]) == pytest.approx(0.03)
    assert bonferroni([]) == 1.0


def test_a_steady_drift_is_seen():
    """A law that moves on whatever is read: no noise to hide in, and no p-value of one."""

    def clock(tokens):
        p = torch.full((len(tokens), 1), 0.2 + 0.6 * tokens.shape[1] / 100, dtype=torch.float64)
        return torch.cat([1 - p, p], -1)

    model = FunctionModel(clock, vocab_size=2, order=0)
    found = check_martingale(model, rollouts=64, length=64, seed=0, independent_rows=False)
    assert found.p_value < 1e-6


def test_swaps_that_make_the_impossible_are_told():
    """Never three alike in a row, whatever the counts: swapped sequences break the rule."""

    def never_three(tokens):
        law = torch.full((len(tokens), 2), 0.5, dtype=torch.float64)
        if tokens.shape[1] >= 2:
            alike = tokens[:, -1] == tokens[:, -2]
            law[alike] = 0.0
            law[alike, 1 - tokens[alike, -1]] = 1.0
        return law

    model = FunctionModel(never_three, vocab_size=2, order=0)
    bank = sample(model, rollouts=64, length=64)
    report = check_filter(model, bank, CheckSettings(effort=0.2, length=40, families=False))
    assert report.exchangeability.impossible > 10
    assert "swapped sequences are impossible" in report.verdict
    json.dumps(report.to_json()["p_values"], allow_nan=False)


def test_a_bank_of_another_model_is_not_checked():
    bank = sample("exact:urn", rollouts=50, length=30)
    with pytest.raises(InputError, match="drawn from exact:urn, not from"):
        check_filter(open_model("exact:markov(vocab=2,order=1,concentration=1.0)"), bank)


def test_models_with_few_positions_are_checked_within_them():
    from networks import small

    model = small("learned", vocab=2, max_tokens=40)
    model.prior = open_process("urn")
    bank = draw_bank(Metered(model), DrawPlan(n_samples=64, rollout_length=30))
    report = check_filter(model, bank, CheckSettings(effort=0.1))
    assert report.martingale.length == 38
    assert report.ranks.future == 35
