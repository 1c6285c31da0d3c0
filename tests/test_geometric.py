"""The geometric tilt against enumeration of all prompts, and where it meets the linear one."""

import cmath
import itertools
import math
import re
from dataclasses import replace

import pytest
import torch
from examples import batch, random_kernels, random_prompts
from oracles import (
    context_number,
    kernel_probability,
    mean_utility,
    prompt_law,
    sequences,
    value_of,
)

from posteer.families.markov.family import MarkovLatents
from posteer.families.markov.geometric import (
    LogLatents,
    expected_counts,
    score_of_rewards,
)
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import PromptKernel, log_tilt
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.estimator import ExactMeans, TiltedRuns, estimate, surrogate_of
from posteer.tokens.contexts import ContextSpace, count_transitions

SMALL = [(2, 0, 6), (2, 1, 2), (2, 1, 6), (2, 2, 6), (3, 0, 4), (3, 1, 5), (3, 2, 5)]


def log_geometric_tilt(space, prompt, latents, steps, first_likelihood=None):
    return LogLatents.of(latents, first_likelihood).log_tilt(space, prompt, steps)


def log_geometric(kernel, transitions, initial, order, vocab, length):
    """The definition: the mean over all prompts of the log-likelihood."""
    return sum(
        weight * math.log(kernel_probability(prompt, kernel, order, vocab, order))
        for prompt, weight in prompt_law(transitions, initial, order, vocab, length)
    )


@pytest.mark.parametrize(("vocab", "order", "length"), SMALL)
def test_tilt_against_all_prompts(vocab, order, length):
    space = ContextSpace(vocab, order)
    prompts, kernels = random_prompts(space, 2), random_kernels(space, 3)
    logs = log_geometric_tilt(space, prompts, batch(kernels, 2), length - order)
    linear = log_tilt(space, prompts, batch(kernels, 2), length - order)
    assert bool((logs < linear).all()), "Jensen"
    for b in range(2):
        transitions, initial = prompts.transitions[b].tolist(), prompts.initial[b].tolist()
        for j, kernel in enumerate(kernels.tolist()):
            expected = log_geometric(kernel, transitions, initial, order, vocab, length)
            assert float(logs[b, j]) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("vocab", "order", "length"), SMALL)
def test_expected_counts_against_all_prompts(vocab, order, length):
    space = ContextSpace(vocab, order)
    prompts = random_prompts(space, 1, seed=3)
    found = expected_counts(space, prompts, length - order)[0]
    total = torch.zeros_like(found)
    for prompt, weight in prompt_law(
        prompts.transitions[0].tolist(), prompts.initial[0].tolist(), order, vocab, length
    ):
        for i in range(order, length):
            total[context_number(prompt[i - order : i], vocab), prompt[i]] += weight
    assert torch.allclose(found, total, rtol=1e-11)


@pytest.mark.parametrize(("vocab", "order", "length"), SMALL)
def test_score_against_complex_steps_through_all_prompts(vocab, order, length):
    """The mean log-likelihood is a polynomial in A and rho: complex steps have no cancellation.

    Steps move probability from token 0 to another, since off the simplex the two sides extend the
    formula differently (by a constant per row, which no step along the simplex sees).
    """
    space = ContextSpace(vocab, order)
    prompts, kernel = random_prompts(space, 1, seed=7), random_kernels(space, 1, seed=8)[0]
    of_transitions, of_initial = score_of_rewards(
        space, prompts, kernel.log()[None], length - order
    )
    table, initial = prompts.transitions[0].numpy(), prompts.initial[0].numpy()
    for c in range(space.n_contexts):
        for v in range(vocab):
            moved = table.astype(complex)
            moved[c, v] += 1e-30j
            moved[c, 0] -= 1e-30j
            w = log_geometric(
                kernel.tolist(), moved.tolist(), initial.tolist(), order, vocab, length
            )
            slope = float(of_transitions[0, c, v] - of_transitions[0, c, 0])
            assert slope == pytest.approx(complex(w).imag / 1e-30, rel=1e-9, abs=1e-9)
        start = initial.astype(complex)
        start[c] += 1e-30j
        w = log_geometric(kernel.tolist(), table.tolist(), start.tolist(), order, vocab, length)
        assert float(of_initial[0, c]) == pytest.approx(w.imag / 1e-30, rel=1e-9)


CASES = [
    (2, 0, 6, 4, "dyck", value_of("dyck")),
    (2, 1, 5, 4, "dyck", value_of("dyck")),
    (2, 2, 5, 3, "frequency(0.8)", value_of("frequency", share=0.8)),
    (3, 1, 4, 2, "frequency(0.4,token=2)", None),
]


@pytest.mark.parametrize(("vocab", "order", "length", "horizon", "text", "value"), CASES)
def test_surrogate_and_both_gradients_against_enumeration(
    vocab, order, length, horizon, text, value
):
    space = ContextSpace(vocab, order)
    kernels, prompts = random_kernels(space, 3, seed=1), random_prompts(space, 1, seed=2)
    utility = open_utility(text, space)
    means = utility_of_kernels(utility, space, kernels, horizon)
    if value is not None:
        for j, tokens in itertools.product(range(3), sequences(vocab, order)):
            own = mean_utility(value(tokens), kernels[j].tolist(), tokens, order, vocab, horizon)
            assert float(means[j, context_number(tokens, vocab)]) == pytest.approx(own)
    latents, source = batch(kernels, 1), ExactMeans(means.T[None])
    runs = TiltedRuns(space, latents, length - order, source, "geometric")
    at = estimate(runs, prompts)
    alone = surrogate_of(runs, prompts)
    assert torch.allclose(alone.value, at.surrogate, rtol=1e-12)
    assert torch.allclose(alone.standard_error, at.standard_error, rtol=1e-12)
    known = estimate(replace(runs, logs=LogLatents.of(latents)), prompts)
    assert torch.allclose(known.gradient, at.gradient, rtol=1e-12)
    table, initial = prompts.transitions[0].numpy(), prompts.initial[0].numpy()

    def surrogate(transitions, start):
        nu = [0j] * space.n_contexts
        for prompt, weight in prompt_law(transitions, start, order, vocab, length):
            nu[context_number(prompt[length - order :], vocab)] += weight
        total = weighted = 0j
        for j, kernel in enumerate(kernels.tolist()):
            w = cmath.exp(log_geometric(kernel, transitions, start, order, vocab, length))
            total += w
            weighted += w * sum(n * mu for n, mu in zip(nu, means[j].tolist(), strict=True))
        return weighted / total

    assert float(at.surrogate[0]) == pytest.approx(
        surrogate(table.tolist(), initial.tolist()).real, abs=1e-11
    )
    for c in range(space.n_contexts):
        start = initial.astype(complex)
        start[c] += 1e-30j
        slope = surrogate(table.tolist(), start.tolist()).imag / 1e-30
        # at order 0 rho is the constant 1 and the paper's formula has no mass to move
        if order > 0:
            assert float(at.initial_gradient[0, c]) == pytest.approx(slope, abs=1e-9)
        for v in range(vocab):
            moved = table.astype(complex)
            moved[c, v] += 1e-30j
            moved[c, 0] -= 1e-30j
            slope = surrogate(moved.tolist(), initial.tolist()).imag / 1e-30
            found = float(at.gradient[0, c, v] - at.gradient[0, c, 0])
            assert found == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("steps", [1, 6, 49])
def test_deterministic_kernels_have_one_prompt_and_both_tilts_its_likelihood(steps):
    space = ContextSpace(2, 1)
    alternating = PromptKernel(
        torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double(), torch.tensor([[1.0, 0.0]]).double()
    )
    latents = batch(random_kernels(space, 20), 1)
    geometric = log_geometric_tilt(space, alternating, latents, steps)
    assert torch.allclose(geometric, log_tilt(space, alternating, latents, steps), rtol=1e-12)


def test_prompts_of_equal_counts_also_make_the_tilts_agree():
    """Alternation over an even number of steps has the same counts from either start."""
    space = ContextSpace(2, 1)
    latents = batch(random_kernels(space, 20), 1)
    alternating = PromptKernel(
        torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double(), torch.tensor([[0.3, 0.7]]).double()
    )
    for steps, agree in ((6, True), (7, False)):
        geometric = log_geometric_tilt(space, alternating, latents, steps)
        linear = log_tilt(space, alternating, latents, steps)
        assert torch.allclose(geometric, linear, rtol=1e-12) is agree


def test_one_transition_is_an_arithmetic_against_a_geometric_mean():
    """One step does not make them agree: only a sure step does."""
    space = ContextSpace(3, 0)
    kernels, share = random_kernels(space, 5), torch.tensor([0.2, 0.5, 0.3]).double()
    prompt = PromptKernel(share.view(1, 1, 3), torch.ones(1, 1).double())
    geometric = log_geometric_tilt(space, prompt, batch(kernels, 1), 1)[0]
    linear = log_tilt(space, prompt, batch(kernels, 1), 1)[0]
    assert torch.allclose(linear, (kernels[:, 0] @ share).log())
    assert torch.allclose(geometric, kernels[:, 0].log() @ share)
    assert not torch.allclose((linear - linear[0]), (geometric - geometric[0]), atol=1e-3)


@pytest.mark.parametrize(
    ("vocab", "order", "prompt"),
    [
        (2, 0, [0, 1, 1, 0, 1]),
        (3, 0, [2, 0, 2, 1]),
        (2, 1, [0, 0, 1, 1, 0, 0]),
        (3, 1, [0, 1, 2, 0]),
    ],
)
def test_realisable_counts_give_the_posterior_of_the_hard_prompt(vocab, order, prompt):
    """Any kernel whose expected counts are a prompt's counts weighs latents as that prompt does."""
    space, tokens = ContextSpace(vocab, order), torch.tensor([prompt])
    counts = count_transitions(space, tokens)
    steps = len(prompt) - order
    totals = counts.sum(-1, keepdim=True)
    table = torch.where(totals > 0, counts / totals.clamp(min=1), 1 / vocab)
    initial = torch.zeros(1, space.n_contexts).double()
    initial[0, int(space.encode(tokens[0, :order]))] = 1.0
    own = PromptKernel(table, initial)
    expected = expected_counts(space, own, steps)
    kernels = random_kernels(space, 30)
    log_w = log_geometric_tilt(space, own, batch(kernels, 1), steps)
    hard = log_likelihood(counts, kernels)
    if order == 0 or bool(((table == 0) | (table == 1)).all()):
        assert torch.allclose(expected, counts)
    if torch.allclose(expected, counts):
        assert torch.allclose(log_w, hard, rtol=1e-12)
        if order == 0:  # while the linear tilt of the same kernel weighs them otherwise
            linear = log_tilt(space, own, batch(kernels, 1), steps).softmax(-1)
            assert float((linear - hard.softmax(-1)).abs().max()) > 0.01
    else:  # the urn: expected counts of an inner kernel are not whole; the tilt is theirs
        assert torch.allclose(log_w, log_likelihood(expected, kernels), rtol=1e-12)


def test_exact_zeros_of_counted_latents():
    """A zero costs nothing where no count is expected, everything at one whole count."""
    space = ContextSpace(2, 0)
    kernels = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]).double()
    for ones, weight in ((0.0, 1.0), (1e-6, None), (1.0, 0.0)):
        prompt = PromptKernel(
            torch.tensor([[[1 - ones, ones]]]).double(), torch.ones(1, 1).double()
        )
        latents = batch(kernels, 1)
        log_w = log_geometric_tilt(space, prompt, latents, 50)
        source = ExactMeans(torch.rand(1, 1, 2).double())
        at = estimate(TiltedRuns(space, latents, 50, source, "geometric"), prompt)
        assert bool(torch.isfinite(log_w).all())
        assert bool(torch.isfinite(at.gradient).all())
        if weight is not None:
            assert float(log_w.softmax(-1)[0, 0]) == pytest.approx(weight, abs=1e-14)
        else:
            assert float(log_w[0, 0]) == pytest.approx(-50e-6 * 708.4, rel=1e-2)


@pytest.mark.parametrize(("low", "high", "length"), [(0, 1, 4), (0, 2, 5), (1, 2, 5)])
def test_latents_of_a_lower_order_also_weigh_the_first_context(low, high, length):
    own, space = ContextSpace(2, low), ContextSpace(2, high)
    kernels = random_kernels(own, 3)
    bank = MarkovLatents(own, kernels).lifted(high)
    prompts = random_prompts(space, 1, seed=5)
    logs = log_geometric_tilt(
        space, prompts, batch(bank.kernels, 1), length - high, bank.first_likelihood.T[None]
    )
    for j, kernel in enumerate(kernels.tolist()):
        expected = sum(
            weight * math.log(kernel_probability(prompt, kernel, low, 2, low))
            for prompt, weight in prompt_law(
                prompts.transitions[0].tolist(), prompts.initial[0].tolist(), high, 2, length
            )
        )
        assert float(logs[0, j]) == pytest.approx(expected, rel=1e-11)


def test_long_prompts_neither_overflow_nor_lose_counts():
    space = ContextSpace(3, 2)
    prompts = random_prompts(space, 2)
    counts = expected_counts(space, prompts, 10_000)
    assert torch.allclose(counts.sum((1, 2)), torch.full((2,), 10_000.0).double())


def test_the_ascent_finds_the_inner_optimum_that_the_linear_tilt_runs_past():
    """frequency(0.3) at length 50 wants an inner kernel, and prompts with a third of ones."""
    from posteer.api.eliciting import elicit

    found = {
        tilt: elicit(
            "exact:beta-bernoulli",
            "frequency(0.3)",
            length=50,
            method=f"ppt-rb-analytic(steps=600,samples=2000,tilt={tilt})",
        )
        for tilt in ("linear", "geometric")
    }
    assert found["geometric"].expected_utility == pytest.approx(
        found["geometric"].optimum, abs=2e-3
    )
    assert found["geometric"].surrogate == pytest.approx(
        found["geometric"].snapped_surrogate, abs=5e-3
    )
    assert found["geometric"].expected_utility > found["linear"].expected_utility + 0.005


@pytest.mark.parametrize(("vocab", "order"), [(2, 0), (3, 0), (2, 1), (3, 1), (2, 2)])
def test_the_linear_tilt_is_bounded_by_the_best_cycle_and_a_corner_attains_it(vocab, order):
    """docs/TILTS.md: the largest eigenvalue of A * k over all latents is A's best cycle mean."""
    from posteer.families.markov.kernels import chain_matrix
    from posteer.methods.climbing.moves import simple_cycles

    space = ContextSpace(vocab, order)
    table = random_prompts(space, 1, seed=9).transitions[0]
    length, cycle = max(
        simple_cycles(space, 1000), key=lambda one: float((one[1] * table.log()).sum()) / one[0]
    )
    best = math.exp(float((cycle * table.log()).sum()) / length)

    def largest(kernels):
        return torch.linalg.eigvals(chain_matrix(space, table * kernels)).abs().amax(-1)

    assert float(largest(random_kernels(space, 2000, concentration=0.2)).max()) <= best + 1e-12
    corner = torch.where(cycle.sum(-1, keepdim=True) > 0, cycle.double(), 1 / vocab)
    assert float(largest(corner[None])[0]) == pytest.approx(best, rel=1e-6)


def test_long_prompts_pull_the_linear_tilt_to_the_corner_and_the_geometric_one_to_the_kernel():
    space = ContextSpace(2, 0)
    kernels = random_kernels(space, 5000, concentration=0.5)
    coin = PromptKernel(torch.tensor([[[0.3, 0.7]]]).double(), torch.ones(1, 1).double())
    ones = kernels[:, 0, 1]
    linear = log_tilt(space, coin, batch(kernels, 1), 500)[0].softmax(0) @ ones
    geometric = log_geometric_tilt(space, coin, batch(kernels, 1), 500)[0].softmax(0) @ ones
    assert float(linear) > 0.99
    assert float(geometric) == pytest.approx(0.7, abs=0.005)


def test_the_figure_is_drawn(tmp_path, monkeypatch, capsys):
    import sys

    from studies import tilts

    out = tmp_path / "tilts.svg"
    monkeypatch.setattr(tilts, "SAMPLES", 200)
    monkeypatch.setattr(sys, "argv", ["tilts", "--out", str(out)])
    tilts.main()
    assert out.read_text().startswith("<?xml")
    told = re.search(r"coin, geometric, m=500: kernel ([\d.]+)", capsys.readouterr().out)
    assert float(told[1]) == pytest.approx(0.7, abs=0.02)
    density = tilts.coin_densities()
    assert density["geometric"][1] == pytest.approx(density["hard prompt, 35 ones"][1], abs=1e-9)
