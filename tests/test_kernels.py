import pytest
import torch
from examples import random_kernels
from hypothesis import given
from hypothesis import strategies as st
from oracles import context_number, final_context, kernel_probability, prompt_law

from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.markov import kernels as K
from posteer.tokens.contexts import (
    ContextSpace,
    count_transitions,
    space_of_table,
    validated_kernel,
)

SPACES = [(2, 0), (2, 1), (2, 3), (3, 0), (3, 1), (3, 2), (5, 1)]


@pytest.mark.parametrize(("vocab", "order"), SPACES)
def test_contexts_are_the_last_tokens(vocab, order):
    space = ContextSpace(vocab, order)
    tokens = torch.randint(vocab, (20, order + 5), generator=torch_stream(1, "tokens"))
    windows = space.contexts_of(tokens)
    for row, text in enumerate(tokens.tolist()):
        expected = [context_number(text[i - order : i], vocab) for i in range(order, len(text) + 1)]
        assert windows[row].tolist() == expected
        assert int(space.suffix(tokens[row])) == expected[-1]
    step = space.next_context[windows[:, :-1], tokens[:, order:]]
    assert torch.equal(step, windows[:, 1:])
    everything = torch.arange(space.n_contexts)
    assert torch.equal(space.encode(space.decode(everything)), everything)


@pytest.mark.parametrize(("vocab", "order"), SPACES)
def test_every_context_has_as_many_edges_in_as_out(vocab, order):
    space = ContextSpace(vocab, order)
    arrivals = space.next_context.flatten()[space.incoming]
    assert torch.equal(arrivals, torch.arange(space.n_contexts)[:, None].expand(-1, vocab))
    assert space.incoming.unique().numel() == space.n_contexts * vocab


@pytest.mark.parametrize(("vocab", "order"), SPACES)
def test_likelihood_of_counts_is_that_of_the_sequence(vocab, order):
    space = ContextSpace(vocab, order)
    table = random_kernels(space, 4)
    tokens = torch.randint(vocab, (6, order + 7), generator=torch_stream(2, "tokens"))
    logs = K.log_likelihood(count_transitions(space, tokens), table)
    for row, text in enumerate(tokens.tolist()):
        for j, kernel in enumerate(table.tolist()):
            probability = kernel_probability(text, kernel, order, vocab, order)
            assert float(logs[row, j].exp()) == pytest.approx(probability, rel=1e-12)


def test_impossible_counts_have_no_likelihood_and_unused_zeros_do_no_harm():
    kernel = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64)
    space = ContextSpace(2, 1)
    fine, impossible = torch.tensor([[0, 0, 0], [0, 1, 0]])
    logs = K.log_likelihood(count_transitions(space, torch.stack([fine, impossible])), kernel)
    assert logs.tolist() == [[0.0], [-torch.inf]]


@pytest.mark.parametrize(("vocab", "order"), [(2, 0), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_visits_and_final_context_against_all_prompts(vocab, order):
    space, length = ContextSpace(vocab, order), order + 3
    transitions = random_kernels(space, 1, seed=3)[0]
    initial = torch.tensor(numpy_stream(4, "rho").dirichlet([1.0] * space.n_contexts))
    steps = length - order
    expected = final_context(transitions.tolist(), initial.tolist(), order, vocab, length)
    law = K.final_context(space, transitions, initial, steps)
    assert law.tolist() == pytest.approx(expected.tolist(), abs=1e-14)
    visits = [0.0] * space.n_contexts
    for prompt, weight in prompt_law(transitions.tolist(), initial.tolist(), order, vocab, length):
        for i in range(order, length):
            visits[context_number(prompt[i - order : i], vocab)] += weight
    found = K.expected_visits(space, transitions, initial, steps)
    assert found.tolist() == pytest.approx(visits, abs=1e-14)


def test_lifted_kernels_predict_the_same():
    low, high = ContextSpace(3, 1), ContextSpace(3, 2)
    kernel = random_kernels(low, 1)
    lifted = K.lift(low, kernel, 2)[0]
    for context in range(high.n_contexts):
        assert torch.equal(lifted[context], kernel[0, context % 3])


def test_sampled_chains_follow_their_kernel():
    """Transition frequencies of 200,000 steps; false alarm below 1e-6 at six standard errors."""
    space = ContextSpace(3, 1)
    kernel = random_kernels(space, 1, concentration=2.0)
    tokens = K.sample_chains(
        space,
        kernel.expand(100, -1, -1),
        torch.zeros(100, dtype=torch.long),
        2000,
        torch_stream(5, "chains"),
    )
    counts = count_transitions(space, tokens).sum(0)
    totals = counts.sum(-1, keepdim=True)
    error = (kernel[0] * (1 - kernel[0]) / totals).sqrt()
    assert bool(((counts / totals - kernel[0]).abs() < 6 * error).all())


@given(st.integers(1, 30), st.integers(2, 6))
def test_space_of_table_accepts_exactly_powers(n_rows, n_columns):
    powers = {n_columns**k for k in range(6)}
    if n_rows in powers:
        space = space_of_table(n_rows, n_columns, "table")
        assert (space.n_contexts, space.vocab_size) == (n_rows, n_columns)
    else:
        with pytest.raises(InputError, match="power"):
            space_of_table(n_rows, n_columns, "table")


@pytest.mark.parametrize("row", [[0.5, 0.6], [1.2, -0.2], [float("nan"), 1.0]])
def test_rows_that_are_not_distributions_are_refused(row):
    with pytest.raises(InputError, match="not a distribution"):
        validated_kernel(torch.tensor([row], dtype=torch.float64), "target")


def test_a_space_too_large_for_a_table_is_refused():
    with pytest.raises(InputError, match="table"):
        ContextSpace(50, 5)
