"""Prompt kernels over machines with states: beside all prompts, differences and Markov's own."""

import math

import pytest
import torch

from posteer.core.randomness import numpy_stream
from posteer.families.finite_state.machines import StateLatents, state_latents
from posteer.families.finite_state.tilt import TiltedStates
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.markov.tilt import PromptKernel, latents_last, tilt_and_score
from posteer.tokens.contexts import ContextSpace, all_sequences

EXACTLY, NEARLY = 1e-10, 1e-6


def machines(n, states, vocab, seed=0):
    stream = numpy_stream(seed, "tilted-machines")
    rows = stream.dirichlet([0.5] * (vocab * states), size=(n, states))
    start = stream.dirichlet([1.0] * states, size=n)
    operators = torch.from_numpy(rows).reshape(n, states, vocab, states)
    return state_latents(torch.from_numpy(start), operators)


def kernel(space, seed=0):
    stream = numpy_stream(seed, "tilting-kernel")
    table = stream.dirichlet([1.0] * space.vocab_size, size=(1, space.n_contexts))
    return torch.from_numpy(table), torch.from_numpy(stream.dirichlet([1.0] * space.n_contexts))[
        None
    ]


def values_of(space, latents, seed=0):
    """Any values of (context, state)."""
    shape = (1, space.n_contexts, *latents.initial.shape)
    return torch.from_numpy(numpy_stream(seed, "values").normal(size=shape))


def by_enumeration(space, latents, length, transitions, initial, values):
    """`W` and `N` as sums over all prompts, each read by the machines."""
    prompts = all_sequences(space.vocab_size, length)
    chance = initial[0, space.encode(prompts[:, : space.order])]
    for place in range(space.order, length):
        before = space.encode(prompts[:, place - space.order : place])
        chance = chance * transitions[0, before, prompts[:, place]]
    reading = latents.read(prompts)
    joint = chance[:, None] * reading.log_likelihood.exp()
    means = (reading.belief * values[0, space.suffix(prompts)]).sum(-1)
    return joint.sum(0), (joint * means).sum(0)


SIZES = [(2, 1, 1), (2, 1, 6), (2, 2, 5), (3, 1, 5), (3, 2, 4)]


@pytest.mark.parametrize(("vocab", "order", "length"), SIZES)
def test_tilt_and_means_are_sums_over_all_prompts(vocab, order, length):
    space, latents = ContextSpace(vocab, order), machines(3, 3, vocab)
    transitions, initial = kernel(space)
    values = values_of(space, latents)
    tilt = TiltedStates.of(space, [latents], length).under(transitions, initial)
    weight, total = by_enumeration(space, latents, length, transitions, initial, values)
    assert torch.allclose(tilt.log_tilt[0], weight.log(), atol=EXACTLY)
    assert torch.allclose(tilt.means(values)[0], total / weight, atol=EXACTLY)


def surrogate(tilted, transitions, initial, values):
    tilt = tilted.under(transitions, initial)
    weights = tilt.log_tilt.softmax(-1)
    return tilt, weights, (weights * tilt.means(values)).sum(-1)


@pytest.mark.parametrize(("vocab", "order", "length"), SIZES)
def test_slopes_are_differences(vocab, order, length):
    space, latents = ContextSpace(vocab, order), machines(3, 3, vocab)
    transitions, initial = kernel(space)
    values = values_of(space, latents)
    tilted = TiltedStates.of(space, [latents], length)
    tilt, weights, value = surrogate(tilted, transitions, initial, values)
    of_edges, of_starts = tilt.slopes(values - value, weights)
    scores, step = tilt.scores()[0], 1e-6
    for table, slope, is_edge in ((transitions, of_edges, True), (initial, of_starts, False)):
        for place in torch.ones_like(table[0]).nonzero().tolist():
            moved = []
            for sign in (1, -1):
                other = table.clone()
                other[(0, *place)] += sign * step
                given = (other, initial) if is_edge else (transitions, other)
                again, _, there = surrogate(tilted, *given, values)
                moved.append((float(there), again.log_tilt[0]))
            found = (moved[0][0] - moved[1][0]) / (2 * step)
            assert float(slope[(0, *place)]) == pytest.approx(found, abs=NEARLY)
            if is_edge:
                of_tilt = (moved[0][1] - moved[1][1]) / (2 * step)
                assert torch.allclose(scores[(slice(None), *place)], of_tilt, atol=NEARLY)


@pytest.mark.parametrize("order", [1, 2])
def test_markov_kernels_are_tilted_as_the_markov_family_does(order):
    """Their first tokens are uniform as machines, and of no account as kernels."""
    space, length = ContextSpace(2, order), 7
    stream = numpy_stream(0, "kernels")
    kernels = torch.from_numpy(stream.dirichlet([1.0] * 2, size=(4, space.n_contexts)))
    transitions, initial = kernel(space)
    latents = from_kernels(list(kernels)).as_machines()
    tilt = TiltedStates.of(space, [latents], length).under(transitions, initial)
    log_w, score = tilt_and_score(
        space, PromptKernel(transitions, initial), latents_last(kernels)[None], length - order
    )
    uniform = order * torch.tensor(2.0).double().log()
    assert torch.allclose(tilt.log_tilt + uniform, log_w, atol=EXACTLY)
    assert torch.allclose(tilt.scores().permute(0, 2, 3, 1), score, atol=EXACTLY)


def test_long_prompts_do_not_underflow():
    """A machine of one state: W is that of a coin, `(A0 p0 + A1 p1)**m`."""
    law = torch.tensor([0.01, 0.99]).double()
    coin = StateLatents(torch.ones(1, 1).double(), law.reshape(1, 1, 2, 1))
    space, length = ContextSpace(2, 1), 3000
    transitions = torch.tensor([[[0.9, 0.1], [0.9, 0.1]]]).double()
    tilt = TiltedStates.of(space, [coin], length).under(transitions, transitions[:, 0])
    each = float((transitions[0, 0] * law).sum())
    expected = length * math.log(each)
    assert float(tilt.log_tilt) == pytest.approx(expected, rel=1e-12)
    assert bool(tilt.scores().isfinite().all())


def test_a_machine_that_can_emit_no_prompt_has_no_weight_and_no_slope():
    ones = torch.tensor([0.0, 1.0]).double().reshape(1, 1, 2, 1)
    fair = torch.tensor([0.5, 0.5]).double().reshape(1, 1, 2, 1)
    both = StateLatents(torch.ones(2, 1).double(), torch.cat([ones, fair]))
    space = ContextSpace(2, 1)
    zeros = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]).double()
    tilt = TiltedStates.of(space, [both], 4).under(zeros, zeros[:, 0])
    assert tilt.log_tilt[0].tolist() == [-torch.inf, pytest.approx(-4 * 0.6931471805599453)]
    assert bool(tilt.scores().isfinite().all())


def test_runs_are_tilted_by_their_own_machines():
    space = ContextSpace(2, 1)
    sets = [machines(2, 2, 2, seed) for seed in range(2)]
    transitions, initial = (
        torch.cat(pair) for pair in zip(kernel(space, 0), kernel(space, 1), strict=True)
    )
    together = TiltedStates.of(space, sets, 5)
    tilt = together.under(transitions, initial)
    for run in range(2):
        alone = TiltedStates.of(space, sets[run : run + 1], 5)
        own = alone.under(transitions[run : run + 1], initial[run : run + 1])
        assert torch.allclose(tilt.log_tilt[run], own.log_tilt[0], atol=EXACTLY)
    chosen = together.select(torch.tensor([1]))
    assert len(chosen) == 1 and torch.equal(chosen.first[0], together.first[1])
