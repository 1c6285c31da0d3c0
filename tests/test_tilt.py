import math

import numpy as np
import pytest
import torch
from examples import batch, random_kernels, random_prompts
from oracles import final_context, tilt

from posteer.families.markov.family import MarkovLatents
from posteer.families.markov.tilt import PromptKernel, log_tilt, tilt_and_score
from posteer.tokens.contexts import ContextSpace

SMALL = [(2, 0, 6), (2, 1, 2), (2, 1, 6), (2, 2, 6), (3, 0, 4), (3, 1, 5), (3, 2, 6)]
ALGORITHMS = ["powers", "sweep"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("vocab", "order", "length"), SMALL)
def test_tilt_against_all_prompts(vocab, order, length, algorithm):
    space = ContextSpace(vocab, order)
    prompts, kernels = random_prompts(space, 2), random_kernels(space, 3)
    logs, _ = tilt_and_score(space, prompts, batch(kernels, 2), length - order, algorithm)
    laws = prompts.final_context(space, length - order)
    for b in range(2):
        transitions, initial = prompts.transitions[b].tolist(), prompts.initial[b].tolist()
        expected = final_context(transitions, initial, order, vocab, length)
        assert laws[b].tolist() == pytest.approx(expected.tolist(), abs=1e-12)
        for j, kernel in enumerate(kernels.tolist()):
            expected = tilt(kernel, transitions, initial, order, vocab, length)
            assert float(logs[b, j].exp()) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("vocab", "order", "length"), SMALL)
def test_score_against_finite_differences_of_the_enumerated_tilt(vocab, order, length, algorithm):
    """W is a polynomial in A of degree n: differentiated by enumeration at complex steps.

    The complex step has no cancellation, so 1e-9 is the tolerance of the code under test.
    """
    space = ContextSpace(vocab, order)
    prompts, kernels = random_prompts(space, 1, seed=7), random_kernels(space, 2, seed=8)
    _, score = tilt_and_score(space, prompts, batch(kernels, 1), length - order, algorithm)
    table, initial = prompts.transitions[0].numpy(), prompts.initial[0].tolist()
    for c in range(space.n_contexts):
        for v in range(vocab):
            moved = table.astype(complex)
            moved[c, v] += 1e-30j
            for j, kernel in enumerate(kernels.tolist()):
                w = tilt(kernel, moved.tolist(), initial, order, vocab, length)
                expected = w.imag / 1e-30 / w.real
                assert float(score[0, c, v, j]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("vocab", "order", "steps"), [(2, 1, 49), (3, 1, 64), (2, 2, 100)])
def test_both_algorithms_agree_on_long_prompts(vocab, order, steps):
    space = ContextSpace(vocab, order)
    prompts = random_prompts(space, 3)
    latents = batch(random_kernels(space, 200, concentration=0.2), 3)
    log_a, score_a = tilt_and_score(space, prompts, latents, steps, "powers")
    log_b, score_b = tilt_and_score(space, prompts, latents, steps, "sweep")
    assert torch.allclose(log_a, log_b, rtol=1e-11)
    assert torch.allclose(score_a, score_b, rtol=1e-8, atol=1e-8)


def test_order_zero_is_the_papers_power():
    space = ContextSpace(2, 0)
    prompts, kernels = random_prompts(space, 1), random_kernels(space, 5)
    alpha, p = float(prompts.transitions[0, 0, 1]), kernels[:, 0, 1]
    logs, score = tilt_and_score(space, prompts, batch(kernels, 1), 50)
    inner = alpha * p + (1 - alpha) * (1 - p)
    assert torch.allclose(logs[0], 50 * inner.log())
    # d/d alpha moves A[0, 1] up and A[0, 0] down
    expected = 50 * (p - (1 - p)) / inner
    assert torch.allclose(score[0, 0, 1] - score[0, 0, 0], expected)


@pytest.mark.parametrize(("vocab", "order"), [(2, 0), (2, 1), (3, 2)])
def test_length_ten_thousand_does_not_underflow(vocab, order):
    """Expected transition counts must add up to the number of steps, whatever the scale of W."""
    space, steps = ContextSpace(vocab, order), 10_000 - order
    prompts = random_prompts(space, 2)
    latents = batch(random_kernels(space, 50, concentration=0.1), 2)
    logs, score = tilt_and_score(space, prompts, latents, steps)
    assert bool(torch.isfinite(logs).all())
    assert float(logs.max()) < -700
    counts = (prompts.transitions[..., None] * score).sum((1, 2))
    assert torch.allclose(counts, torch.full_like(counts, steps), rtol=1e-7)
    law = prompts.final_context(space, steps)
    assert torch.allclose(law.sum(-1), torch.ones(2).double())


@pytest.mark.parametrize("steps", [5, 9_999])
def test_a_deterministic_prompt_is_its_own_likelihood(steps):
    """Stay in context 1 for ever, while every latent would rather be in context 0."""
    space = ContextSpace(2, 1)
    prompts = PromptKernel(
        torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).double(), torch.tensor([[0.0, 1.0]]).double()
    )
    kernels = torch.tensor([[[0.9, 0.1], [0.9, 0.1]], [[0.5, 0.5], [0.7, 0.3]]]).double()
    logs, score = tilt_and_score(space, prompts, batch(kernels, 1), steps)
    assert logs[0].tolist() == pytest.approx([steps * math.log(0.1), steps * math.log(0.3)])
    assert score[0, 1, 1].tolist() == pytest.approx([steps, steps])
    assert bool((score[0, 0] == 0).all()), "context 0 is never reached"


def test_latents_that_cannot_emit_any_prompt_have_no_weight():
    space = ContextSpace(2, 1)
    prompts = PromptKernel(
        torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double(), torch.tensor([[1.0, 0.0]]).double()
    )
    kernels = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]]).double()
    logs, score = tilt_and_score(space, prompts, batch(kernels, 1), 3)
    assert logs[0].tolist() == pytest.approx([-math.inf, 3 * math.log(0.5)])
    assert bool(torch.isfinite(score).all())


def test_zero_frequencies_of_rollout_banks_are_harmless():
    """Counted kernels hold exact zeros; both algorithms must treat them alike."""
    space = ContextSpace(3, 1)
    kernels = random_kernels(space, 30)
    kernels[:10, 0, 1] = 0.0
    kernels[5:20, 2, :2] = 0.0
    kernels = kernels / kernels.sum(-1, keepdim=True)
    prompts = random_prompts(space, 2)
    for steps in (4, 300):
        log_a, score_a = tilt_and_score(space, prompts, batch(kernels, 2), steps, "powers")
        log_b, score_b = tilt_and_score(space, prompts, batch(kernels, 2), steps, "sweep")
        assert torch.allclose(log_a, log_b, rtol=1e-11)
        assert torch.allclose(score_a, score_b, rtol=1e-8, atol=1e-9)


def test_chunks_of_latents_change_nothing(monkeypatch):
    space = ContextSpace(2, 1)
    prompts, latents = random_prompts(space, 2), batch(random_kernels(space, 1000), 2)
    whole = tilt_and_score(space, prompts, latents, 20)
    monkeypatch.setattr("posteer.families.markov.tilt.CHUNK_ELEMENTS", 1)
    parts = tilt_and_score(space, prompts, latents, 20)
    assert torch.allclose(whole[0], parts[0], rtol=1e-13)
    assert torch.allclose(whole[1], parts[1], rtol=1e-12)
    assert torch.allclose(log_tilt(space, prompts, latents, 20), parts[0], rtol=1e-13)


def test_large_context_spaces_take_the_sweep():
    from posteer.families.markov.tilt import cheaper_algorithm

    choice = {
        (v, k): cheaper_algorithm(ContextSpace(v, k), random_prompts(ContextSpace(v, k), 1), 49)
        for v, k in [(2, 0), (2, 1), (3, 1), (4, 3), (2, 8)]
    }
    assert choice == {
        (2, 0): "powers",
        (2, 1): "powers",
        (3, 1): "powers",
        (4, 3): "sweep",
        (2, 8): "sweep",
    }
    assert np.prod(random_prompts(ContextSpace(2, 8), 1).transitions.shape) == 512


@pytest.mark.parametrize("steps", [49, 127, 2000, 9_999])
@pytest.mark.parametrize("initial", [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
def test_contexts_a_latent_cannot_leave_do_not_overflow(steps, initial):
    """Counted kernels with exact zeros: one row can be thousands of nats above another."""
    space = ContextSpace(2, 1)
    prompts = PromptKernel(
        torch.tensor([[[1e-6, 1 - 1e-6], [0.5, 0.5]]]).double(), torch.tensor([initial]).double()
    )
    kernels = torch.tensor(
        [[[1.0, 0.0], [0.5, 0.5]], [[0.9, 0.1], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]
    ).double()
    log_a, score_a = tilt_and_score(space, prompts, batch(kernels, 1), steps, "powers")
    log_b, score_b = tilt_and_score(space, prompts, batch(kernels, 1), steps, "sweep")
    assert bool(torch.isfinite(log_a).all())
    assert bool(torch.isfinite(score_b).all())
    assert torch.allclose(log_a, log_b, rtol=1e-10)
    assert torch.allclose(score_a, score_b, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("low", "high", "length"), [(0, 1, 4), (0, 2, 5), (1, 2, 5)])
def test_latents_of_a_lower_order_also_weigh_the_first_context(low, high, length, algorithm):
    """The model updates on all tokens past *its* order, also those of a longer first context."""
    from oracles import kernel_probability, prompt_law

    own, space = ContextSpace(2, low), ContextSpace(2, high)
    kernels = random_kernels(own, 3)
    bank = MarkovLatents(own, kernels).lifted(high)
    prompts = random_prompts(space, 1, seed=5)
    first = bank.first_likelihood.T[None]
    logs, score = tilt_and_score(
        space, prompts, batch(bank.kernels, 1), length - high, algorithm, first
    )
    table, initial = prompts.transitions[0].numpy(), prompts.initial[0].tolist()
    for j, kernel in enumerate(kernels.tolist()):
        moved = table.astype(complex)
        moved[1, 0] += 1e-30j
        w = sum(
            weight * kernel_probability(prompt, kernel, low, 2, low)
            for prompt, weight in prompt_law(moved.tolist(), initial, high, 2, length)
        )
        assert float(logs[0, j].exp()) == pytest.approx(w.real, rel=1e-11)
        assert float(score[0, 1, 0, j]) == pytest.approx(w.imag / 1e-30 / w.real, abs=1e-9)
