import math

import numpy as np
import pytest
import torch
from oracles import context_number, dirichlet_sequence_probability, kernel_probability, sequences

from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.mixtures import FiniteMixture
from posteer.families.registry import open_process
from posteer.models import ExactModel
from posteer.tokens.contexts import ContextSpace, count_transitions

TABLE = [[0.5, 1.5, 0.2], [2.0, 0.3, 1.0], [0.7, 0.7, 0.1]]


def mixture():
    space = ContextSpace(2, 1)
    tables = [[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [1.0, 0.0]]]
    kernels = torch.tensor(tables, dtype=torch.float64)
    return FiniteMixture.of(space, kernels, torch.tensor([0.3, 0.7], dtype=torch.float64))


@pytest.mark.parametrize(
    ("text", "vocab", "order", "concentration"),
    [
        ("beta-bernoulli", 2, 0, [[0.5, 0.5]]),
        ("urn", 2, 1, [[0.5, 0.5]] * 2),
        ("markov(vocab=3,order=2,concentration=0.25)", 3, 2, [[0.25] * 3] * 9),
        (
            "markov(vocab=3,order=1,concentration=[[0.5,1.5,0.2],[2,0.3,1],[0.7,0.7,0.1]])",
            3,
            1,
            TABLE,
        ),
    ],
)
def test_exact_predictive_is_polyas_urn(text, vocab, order, concentration):
    """The chain rule of predictions, the evidence and sequential urn draws are one number."""
    process = open_process(text)
    model = ExactModel(process)
    for length in range(order + 3):
        tokens = torch.tensor(list(sequences(vocab, length)), dtype=torch.long).view(
            vocab**length, length
        )
        laws = model.log_predictive(tokens)
        chained = laws[:, :-1].gather(-1, tokens[..., None]).squeeze(-1).sum(-1)
        for row, text_tokens in enumerate(tokens.tolist()):
            expected = dirichlet_sequence_probability(text_tokens, concentration, order, vocab)
            assert float(chained[row].exp()) == pytest.approx(expected, rel=1e-12)
        assert float(chained.exp().sum()) == pytest.approx(1.0, abs=1e-12)
        if length >= order:
            evidence = process.log_marginal(count_transitions(process.space, tokens))
            assert torch.allclose(evidence - order * math.log(vocab), chained, atol=1e-12)


def test_posterior_is_the_prior_after_the_same_counts():
    process = open_process("urn")
    tokens = torch.tensor([[0, 1, 1, 0, 1]])
    counts = count_transitions(process.space, tokens)
    later = torch.tensor([[0, 3], [2, 1]]).double()[None]
    updated = process.posterior(counts[0])
    context = torch.tensor([1])
    direct = process.predictive(counts + later, context)
    assert torch.allclose(updated.predictive(later, context), direct, atol=1e-14)
    both = process.log_marginal(counts + later)
    assert torch.allclose(process.log_marginal(counts) + updated.log_marginal(later), both)


def test_mixture_against_bayes_rule_by_hand():
    process = mixture()
    kernels, weights = process.kernels.tolist(), [0.3, 0.7]
    for tokens in sequences(2, 4):
        joint = [
            w * kernel_probability(tokens, k, 1, 2, 1)
            for w, k in zip(weights, kernels, strict=True)
        ]
        counts = count_transitions(process.space, torch.tensor([tokens]))
        evidence = process.log_marginal(counts)
        assert float(evidence.exp()) == pytest.approx(sum(joint), abs=1e-15)
        expected = [
            sum(j * k[tokens[-1]][v] for j, k in zip(joint, kernels, strict=True)) / sum(joint)
            for v in (0, 1)
        ]
        found = process.predictive(counts, torch.tensor([tokens[-1]]))[0]
        assert found.tolist() == pytest.approx(expected, rel=1e-12)
        posterior = process.posterior(counts[0])
        assert posterior.log_weights.exp().sum() == pytest.approx(1.0)


def test_an_impossible_history_has_no_posterior():
    process = open_process("coins(0.0)")
    with pytest.raises(InputError, match="impossible"):
        process.posterior(torch.tensor([[0.0, 1.0]]).double())


def test_point_mass_ignores_the_past():
    model = ExactModel(open_process("coins(0.3)"))
    laws = model.log_predictive(torch.tensor([[1, 1, 1, 0]])).exp()
    assert torch.allclose(laws[..., 1], torch.full((1, 5), 0.3).double())


def test_two_point_prior_and_general_mixture_agree():
    coins = open_process("coins(0.2,0.7,weights=[0.25,0.75])")
    general = open_process("mixture([0.8,0.2],[0.3,0.7],weights=[0.25,0.75])")
    counts = torch.tensor([[[3.0, 5.0]]]).double()
    zero = torch.tensor([0])
    assert torch.allclose(coins.predictive(counts, zero), general.predictive(counts, zero))


def test_prior_moments():
    """Mean and variance of 40,000 Dirichlet rows; six standard errors, false alarm below 1e-7."""
    table = torch.tensor(TABLE).double()
    process = DirichletRows(ContextSpace(3, 1), table)
    draws = process.sample_kernels(40_000, numpy_stream(0, "moments"))
    assert torch.allclose(draws.sum(-1), torch.ones(40_000, 3).double())
    total = table.sum(-1, keepdim=True)
    mean = table / total
    variance = mean * (1 - mean) / (total + 1)
    error = (variance / 40_000).sqrt()
    assert bool(((draws.mean(0) - mean).abs() < 6 * error).all())
    fourth = (draws - mean).pow(4).mean(0)
    error = ((fourth - variance**2) / 40_000).sqrt()
    assert bool(((draws.var(0) - variance).abs() < 6 * error).all())


def test_tiny_concentrations_do_not_underflow():
    draws = DirichletRows.symmetric(4, 1, 1e-3).sample_kernels(500, numpy_stream(0, "tiny"))
    assert bool(torch.isfinite(draws).all())
    assert torch.allclose(draws.sum(-1), torch.ones(500, 4).double())


def test_sequences_start_anywhere_and_follow_the_process():
    """First contexts uniform, then urn frequencies: chi-square over all 3-token sequences.

    16 degrees of freedom less one; the bound 50 has false-alarm rate below 2e-5.
    """
    process = open_process("markov(vocab=2,order=2,concentration=0.5)")
    n = 40_000
    latents = process.sample(n, numpy_stream(1, "kernels"))
    assert latents.kernels.shape == (n, 4, 2)
    tokens = latents.roll_out(4, torch_stream(1, "sequences"))
    seen = np.bincount([context_number(row, 2) for row in tokens.tolist()], minlength=16)
    expected = np.array(
        [n * dirichlet_sequence_probability(t, [[0.5, 0.5]] * 4, 2, 2) for t in sequences(2, 4)]
    )
    assert ((seen - expected) ** 2 / expected).sum() < 50


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", "unknown process"),
        ("markov(vocab=1)", "vocabulary of 1"),
        ("markov(order=-1)", "order -1"),
        ("markov(vocab=2.5)", "whole number"),
        ("markov(concentration=0)", "expected 1e-12 to"),
        ("markov(concentration=[[1,1],[1,1]])", "shape"),
        ("markov(vocab=2,size=3)", "unknown setting 'size'"),
        ("markov(vocab=2", "not closed"),
        ("coins()", "at least one bias"),
        ("coins(1.5)", "not a distribution"),
        ("coins(0.5,0.6,weights=[0.5,0.6])", "not a distribution"),
        ("mixture([0.5,0.5],[0.2,0.3,0.5])", "one vocabulary"),
        ("urn(2)", "expected none"),
    ],
)
def test_bad_processes_are_refused_with_a_reason(text, complaint):
    with pytest.raises(InputError, match=complaint):
        open_process(text)


def test_mixtures_of_the_wrong_shape_are_refused():
    with pytest.raises(InputError, match="expected"):
        FiniteMixture.of(ContextSpace(2, 1), torch.tensor([[[0.5, 0.5]]]).double())
