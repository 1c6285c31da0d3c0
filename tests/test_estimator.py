import numpy as np
import pytest
import torch
from examples import batch, random_kernels, random_prompts
from oracles import final_context, surrogate, value_of

from posteer.core.counters import key_of
from posteer.core.weights import ess_fraction
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import PromptKernel
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.estimator import ExactMeans, SingleRollouts, TiltedRuns, estimate
from posteer.tokens.contexts import ContextSpace

TERNARY = [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.05, 0.25, 0.7]]
BINARY = [[0.15, 0.85], [0.6, 0.4]]
CASES = [
    # vocabulary, order, length, horizon, utility, the oracle's copy of it
    (2, 0, 6, 4, "dyck", value_of("dyck")),
    (2, 0, 5, 3, "frequency(0.3)", value_of("frequency", share=0.3)),
    (2, 1, 6, 4, "dyck", value_of("dyck")),
    (2, 1, 4, 4, "reverse-xent([[0.15,0.85],[0.6,0.4]])", value_of("r", target=BINARY)),
    (2, 2, 6, 3, "frequency(0.8)", value_of("frequency", share=0.8)),
    (3, 0, 4, 2, "reverse-xent([[0.2,0.5,0.3]])", value_of("r", target=TERNARY[:1])),
    (3, 1, 4, 2, f"reverse-xent({TERNARY})", value_of("r", target=TERNARY)),
    (3, 2, 6, 4, "dyck", value_of("dyck")),
]


def setup(vocab, order, horizon, text, n_latents=3):
    space = ContextSpace(vocab, order)
    kernels, prompts = random_kernels(space, n_latents, seed=1), random_prompts(space, 1, seed=2)
    utility = open_utility(text, space)
    means = utility_of_kernels(utility, space, kernels, horizon).T[None]
    return space, kernels, prompts, utility, means


@pytest.mark.parametrize(("vocab", "order", "length", "horizon", "text", "value"), CASES)
def test_surrogate_and_gradient_against_all_prompts_and_continuations(
    vocab, order, length, horizon, text, value
):
    """J_tilt is a rational function of A: its gradient by complex steps through enumeration."""
    space, kernels, prompts, _, means = setup(vocab, order, horizon, text)
    at = estimate(TiltedRuns(space, batch(kernels, 1), length - order, ExactMeans(means)), prompts)
    table, initial = prompts.transitions[0].numpy(), prompts.initial[0].tolist()
    arguments = (value, order, vocab, length, horizon)
    expected = surrogate(kernels.tolist(), table.tolist(), initial, *arguments)
    assert float(at.surrogate[0]) == pytest.approx(expected, abs=1e-11)
    edges = [(c, v) for c in range(space.n_contexts) for v in range(vocab)]
    for c, v in edges if len(edges) <= 9 else edges[:: len(edges) // 6]:
        moved = table.astype(complex)
        moved[c, v] += 1e-30j
        expected = _complex_surrogate(kernels.tolist(), moved.tolist(), initial, *arguments)
        assert float(at.gradient[0, c, v]) == pytest.approx(expected.imag / 1e-30, abs=1e-9)


def _complex_surrogate(kernels, transitions, initial, value, order, vocab, length, horizon):
    from oracles import context_number, mean_utility, prompt_law, sequences, tilt

    nu = [0j] * vocab**order
    for prompt, weight in prompt_law(transitions, initial, order, vocab, length):
        nu[context_number(prompt[length - order :], vocab)] += weight
    total = weighted = 0j
    for kernel in kernels:
        w = tilt(kernel, transitions, initial, order, vocab, length)
        total += w
        for tokens in sequences(vocab, order):
            mu = mean_utility(value(tokens), kernel, tokens, order, vocab, horizon)
            weighted += w * nu[context_number(tokens, vocab)] * mu
    return weighted / total


@pytest.mark.parametrize(("vocab", "order", "length"), [(2, 1, 6), (2, 2, 7), (3, 1, 5)])
def test_gradient_in_rho_with_frozen_weights(vocab, order, length):
    """Linear in rho once the weights are frozen: unit starts give the gradient directly."""
    space, kernels, prompts, _, means = setup(vocab, order, 4, "frequency(0.3)")
    at = estimate(TiltedRuns(space, batch(kernels, 1), length - order, ExactMeans(means)), prompts)
    weights = at.log_tilt[0].softmax(0).numpy()
    mu_w = means[0].numpy() @ weights
    for start in range(space.n_contexts):
        initial = np.eye(space.n_contexts)[start]
        nu = final_context(prompts.transitions[0].tolist(), initial, order, vocab, length)
        assert float(at.initial_gradient[0, start]) == pytest.approx(nu @ mu_w, abs=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_gradient_agrees_with_autograd_on_a_large_bank(order):
    """The straightforward differentiable version, at a length enumeration cannot reach."""
    space, steps = ContextSpace(2, order), 20
    kernels, prompts = random_kernels(space, 400, seed=3), random_prompts(space, 2, seed=4)
    means = utility_of_kernels(open_utility("dyck", space), space, kernels, 4)
    source = ExactMeans(means.T.expand(2, -1, -1))
    at = estimate(TiltedRuns(space, batch(kernels, 2), steps, source), prompts)
    for b in range(2):
        table = prompts.transitions[b].clone().requires_grad_()
        law = prompts.initial[b].expand(400, -1)
        nu = prompts.initial[b]
        for _ in range(steps):
            edges = (law[..., None] * table * kernels).flatten(1)
            law = edges[:, space.incoming].sum(-1)
            nu = (nu[:, None] * table).flatten()[space.incoming].sum(-1)
        w = law.sum(-1)
        value = (w * (means @ nu)).sum() / w.sum()
        value.backward()
        assert float(at.surrogate[b]) == pytest.approx(value.item(), abs=1e-12)
        assert torch.allclose(at.gradient[b], table.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [0, 1])
def test_single_rollouts_are_unbiased(order):
    """PPT's estimate, averaged over its rollouts, is PPT-RB's: z-scores over 3,000 repetitions.

    Eleven statistics at most, bound 5 standard errors: false alarm below 1e-5.
    """
    space, steps, n = ContextSpace(2, order), 5, 3000
    kernels, prompts = random_kernels(space, 40, seed=5), random_prompts(space, 1, seed=6)
    utility = open_utility("reverse-xent(sym-0.2)" if order else "frequency(0.3)", space)
    means = utility_of_kernels(utility, space, kernels, 4).T[None]
    exact = estimate(TiltedRuns(space, batch(kernels, 1), steps, ExactMeans(means)), prompts)
    source = SingleRollouts(
        space,
        batch(kernels, n),
        [utility] * n,
        4,
        torch.tensor([key_of(seed, "rollouts") for seed in range(n)]),
    )
    many = PromptKernel(prompts.transitions.expand(n, -1, -1), prompts.initial.expand(n, -1))
    noisy = estimate(TiltedRuns(space, batch(kernels, n), steps, source), many)
    for name in ("surrogate", "gradient", "initial_gradient"):
        draws = getattr(noisy, name).flatten(1) if name != "surrogate" else noisy.surrogate[:, None]
        error = draws.std(0) / n**0.5
        gap = (draws.mean(0) - getattr(exact, name).flatten()).abs()
        assert bool((gap <= 5 * error + 1e-12).all()), name
    assert float(noisy.surrogate.std()) > 0, "rollouts must add noise"


def test_more_latents_bring_the_estimate_to_the_posterior_mean():
    """A prompt kernel that always emits 0 1 0 1 0 1: J_tilt must be the exact J of that prompt.

    Self-normalised error at 100,000 latents is about 0.002; the bound is five times that.
    """
    from posteer.banks import draw_analytic
    from posteer.evaluation import expected_utility
    from posteer.models import open_model

    model = open_model("exact:urn")
    utility = open_utility("dyck", model.family.space)
    bank = draw_analytic(model.prior, 100_000, seed=0)
    alternating = PromptKernel(
        torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double(), torch.tensor([[1.0, 0.0]]).double()
    )
    means = utility_of_kernels(utility, model.family.space, bank.kernels, 4).T[None]
    at = estimate(
        TiltedRuns(model.family.space, batch(bank.kernels, 1), 5, ExactMeans(means)), alternating
    )
    exact = expected_utility(model, utility, torch.tensor([[0, 1, 0, 1, 0, 1]]), 4)
    gap = abs(float(at.surrogate[0]) - float(exact.expected_utility[0]))
    assert gap < 5 * float(at.standard_error[0])
    assert float(at.standard_error[0]) < 0.003
    assert float(at.ess_fraction[0]) == pytest.approx(float(ess_fraction(at.log_tilt[0])))
