"""Machines read off what they emitted: Baum and Welch against all paths, and on known machines."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.finite_state.expectations import (
    Tables,
    expected_moves,
    improved,
    log_likelihoods,
)
from posteer.families.finite_state.fit import (
    choose_states,
    climb,
    fit_each,
    fit_mixture,
    mixture_step,
    random_tables,
)
from posteer.families.finite_state.machines import StateLatents
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.tokens.contexts import ContextSpace, all_sequences


def machines(n, n_states, vocab, seed):
    """Any machines, some of whose moves are impossible."""
    stream = numpy_stream(seed, "machines")
    rows = torch.from_numpy(stream.dirichlet([0.5] * (vocab * n_states), size=(n, n_states)))
    start = torch.from_numpy(stream.dirichlet([1.0] * n_states, size=n))
    return Tables(start, rows.unflatten(2, (vocab, n_states)))


def by_all_paths(tables, row, tokens):
    """Likelihood, first state and moves of one machine, from every path of states."""
    start, operators = tables.initial[row].tolist(), tables.operators[row].tolist()
    n = len(start)
    total, first = 0.0, [0.0] * n
    moves = torch.zeros_like(tables.operators[row])
    for path in itertools.product(range(n), repeat=len(tokens) + 1):
        chance = start[path[0]]
        for place, token in enumerate(tokens):
            chance *= operators[path[place]][token][path[place + 1]]
        total += chance
        first[path[0]] += chance
        for place, token in enumerate(tokens):
            moves[path[place], token, path[place + 1]] += chance
    return total, torch.tensor(first, dtype=torch.float64) / total, moves / total


@pytest.mark.parametrize(
    ("n_states", "vocab", "length"), [(1, 2, 4), (2, 2, 7), (3, 2, 5), (2, 3, 6)]
)
def test_expected_moves_are_those_of_all_paths(n_states, vocab, length):
    """To 1e-10: sums of at most 2187 products in double precision."""
    tables = machines(4, n_states, vocab, seed=length)
    generator = torch_stream(0, "paths")
    sequences = torch.randint(vocab, (4, length), generator=generator)
    found = expected_moves(tables, sequences)
    for row, tokens in enumerate(sequences.tolist()):
        total, first, moves = by_all_paths(tables, row, tokens)
        assert float(found.log_likelihood[row].exp()) == pytest.approx(total, rel=1e-10)
        assert torch.allclose(found.first[row], first, atol=1e-10)
        assert torch.allclose(found.moves[row], moves, atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 9, 100, 101])
def test_words_do_not_change_what_is_read(length):
    """Sequences of any length, long words or short: the same as one token after another."""
    tables = machines(3, 2, 2, seed=1)
    sequences = torch.randint(2, (3, length), generator=torch_stream(1, "words"))
    latents = StateLatents(tables.initial, tables.operators)
    plain = latents.log_likelihood(sequences).diagonal()
    assert torch.allclose(log_likelihoods(tables, sequences), plain, rtol=1e-10)
    moves = expected_moves(tables, sequences).moves
    assert torch.allclose(moves.sum((1, 2, 3)), torch.full((3,), float(length)).double())


def test_what_a_machine_cannot_emit_is_told():
    never = torch.tensor([[[[1.0], [0.0]]]], dtype=torch.float64)
    tables = Tables(torch.ones(1, 1, dtype=torch.float64), never)
    sequences = torch.tensor([[0, 1, 0]])
    assert log_likelihoods(tables, sequences).tolist() == [-torch.inf]
    assert bool(expected_moves(tables, sequences).moves.isfinite().all())


@settings(max_examples=25)
@given(
    n_states=st.integers(1, 3),
    vocab=st.integers(2, 4),
    length=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    pull=st.sampled_from([0.0, 1.0, 7.0]),
)
def test_no_step_lowers_the_value(n_states, vocab, length, seed, pull):
    sequences = torch.randint(vocab, (3, length), generator=torch_stream(seed, "steps"))
    tables = random_tables(sequences, vocab, n_states, numpy_stream(seed, "steps"))
    centre = random_tables(sequences, vocab, n_states, numpy_stream(seed, "centre")).operators
    found = climb(tables, sequences, steps=6, enough=-torch.inf, centre=centre, pull=pull)
    values = torch.stack(found.history)
    assert bool((values.diff(dim=0) >= -1e-9).all())
    after = improved(found.tables, expected_moves(found.tables, sequences))
    assert torch.allclose(after.operators.sum((2, 3)), torch.ones(3, n_states).double())
    assert torch.allclose(after.initial.sum(1), torch.ones(3).double())


@settings(max_examples=25)
@given(components=st.integers(1, 3), length=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_no_step_of_a_mixture_lowers_its_value(components, length, seed):
    stream, generator = numpy_stream(seed, "mixed"), torch_stream(seed, "mixed")
    sequences = torch.randint(2, (5, length), generator=generator)
    tables = random_tables(sequences[:1].repeat(2 * components, 1), 2, 2, stream)
    weights = torch.full((2, components), 1 / components, dtype=torch.float64).log()
    before = torch.full((2,), -torch.inf, dtype=torch.float64)
    for _ in range(5):
        value, tables, weights = mixture_step(tables, weights, sequences)
        assert bool((value >= before - 1e-9).all())
        before = value


def rolled(text, n, length, seed=0):
    prior = open_process(text)
    latents = prior.sample(n, numpy_stream(seed, "rolled"))
    return prior, latents, latents.roll_out(length, torch_stream(seed, "rolled"))


def worth(latents, utility, prompts, log_weights=0.0):
    """J of prompts by latents that are all there are."""
    weights = (latents.log_likelihood(prompts) + log_weights).softmax(1)
    return (weights * latents.mean_utility(utility, prompts, 4)).sum(1)


KNOWN = [
    pytest.param("mess3(x=0.05,a=0.85)", marks=pytest.mark.slow),
    "sticky(states=2,vocab=2,stay=0.9,sharp=0.9)",
    pytest.param("sticky(states=3,vocab=3,stay=0.9,sharp=0.8)", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("text", KNOWN)
def test_prompts_are_worth_to_fitted_machines_what_they_are(text):
    """40 rollouts of 600 tokens: J of all prompts of 4 tokens to 0.02, on average to 0.006, where
    prompts are apart by 0.05 and more (standard deviation)."""
    prior, _, rollouts = rolled(text, 40, 600)
    vocab = prior.family.vocab_size
    found = fit_each(rollouts, vocab, prior.family.n_states, numpy_stream(0, "fit"))
    utility, prompts = (
        open_utility("frequency(0.3)", ContextSpace(vocab, 0)),
        all_sequences(vocab, 4),
    )
    exact = worth(prior.latents, utility, prompts, prior.log_weights)
    off = worth(StateLatents(found.initial, found.operators), utility, prompts) - exact
    assert float(exact.std()) > 0.045
    assert float(off.abs().max()) < 0.02
    assert float(off.square().mean().sqrt()) < 0.006


@pytest.mark.slow
def test_each_machine_explains_its_rollout_as_well_as_the_true_one():
    """A fit of 21 free numbers is above the truth by about half of them, in nats."""
    _, latents, rollouts = rolled("mess3(x=[0.05,0.3],a=[0.9,0.9])", 16, 400)
    found = fit_each(rollouts, 3, 3, numpy_stream(0, "fit"))
    true = log_likelihoods(Tables(latents.initial, latents.operators), rollouts)
    gain = log_likelihoods(found, rollouts) - true
    assert float(gain.min()) > -3.0
    assert 2.0 < float(gain.mean()) < 21.0


def test_a_mixture_finds_the_machines_that_rollouts_share():
    """Two machines that 200 tokens tell apart: all rollouts are sorted, weights to 0.1, and new
    rollouts are explained to 0.01 nats a token."""
    text = "mess3(x=[0.05,0.3],a=[0.9,0.9],weights=[0.3,0.7])"
    prior, latents, rollouts = rolled(text, 60, 200)
    found = fit_mixture(rollouts, 3, 3, 2, numpy_stream(0, "fit"))
    own = found.log_likelihoods(rollouts).argmax(1)
    true = (latents.operators[:, 0, 0, 0] < 0.5).long()
    same = float((own == true).double().mean())
    assert max(same, 1 - same) == 1.0
    share = float(true.double().mean())
    assert min(abs(float(w) - share) for w in found.log_weights.exp()) < 0.1
    _, _, others = rolled(text, 60, 200, seed=1)
    lost = (prior.evidence(others) - found.log_evidence(others)).mean() / 200
    assert float(lost) < 0.01
    steps = torch.tensor(found.history)
    assert bool((steps.diff() >= -1e-9).all())


def test_as_many_states_as_rollouts_ask_for():
    """A coin asks for one, a sticky machine for two."""
    _, _, coins = rolled("coins(0.3)", 24, 200)
    assert choose_states(coins, 2, 2, numpy_stream(0, "states"))[0] == 1
    _, _, two = rolled("sticky(states=2,vocab=2,stay=0.95,sharp=0.9)", 24, 200)
    chosen, tried = choose_states(two, 2, 2, numpy_stream(0, "states"))
    assert chosen == 2 and tried[2] > tried[1]
