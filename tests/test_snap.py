import itertools

import pytest
import torch
from examples import random_kernels, random_prompts
from hypothesis import given, settings
from hypothesis import strategies as st

from posteer.families.markov.tilt import PromptKernel
from posteer.families.markov.walks import (
    eulerian_walk,
    every_walk,
    greedy_walk,
    largest_remainder,
    may_be_walks,
)
from posteer.methods.ppt.snap import (
    propose,
    rounded_counts,
    score_candidates,
    single_edge_swaps,
    snap,
)
from posteer.tokens.contexts import ContextSpace, count_transitions

spaces = st.sampled_from([(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (4, 1)])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=6), st.integers(0, 30))
def test_largest_remainder_sums_and_stays_close(weights, total):
    if sum(weights) == 0:
        weights = [1.0] * len(weights)
    shares = [weight / sum(weights) * total for weight in weights]
    rounded = largest_remainder(shares, total)
    assert sum(rounded) == total
    assert all(abs(r - s) < 1 + 1e-9 for r, s in zip(rounded, shares, strict=True))


@given(spaces, st.integers(1, 25), st.randoms(use_true_random=False))
def test_the_counts_of_any_walk_give_a_walk_with_exactly_those_counts(shape, steps, random):
    space = ContextSpace(*shape)
    walk = [random.randrange(space.vocab_size) for _ in range(space.order + steps)]
    counts = count_transitions(space, torch.tensor(walk)).long()
    start = int(space.encode(torch.tensor(walk[: space.order], dtype=torch.long)))
    assert bool(may_be_walks(space, counts[None], torch.tensor([start]))[0])
    found = eulerian_walk(space, counts, start)
    assert found is not None
    again = torch.cat([space.decode(torch.tensor(start)), torch.tensor(found)])
    assert torch.equal(count_transitions(space, again).long(), counts)


@pytest.mark.parametrize(("vocab", "order", "length"), [(2, 0, 5), (2, 1, 8), (2, 2, 8), (3, 1, 6)])
def test_every_walk_against_all_sequences(vocab, order, length):
    """Each class of prompts is listed whole, in lexicographic order."""
    space, members = ContextSpace(vocab, order), {}
    for tokens in itertools.product(range(vocab), repeat=length):
        prompt = torch.tensor(tokens)
        start = int(space.encode(prompt[:order]))
        counts = count_transitions(space, prompt).long()
        members.setdefault((start, *counts.flatten().tolist()), []).append(list(tokens[order:]))
    for (start, *table), expected in members.items():
        counts = torch.tensor(table).view(space.n_contexts, vocab)
        assert list(every_walk(space, counts, start)) == expected
    broken = torch.zeros(space.n_contexts, vocab, dtype=torch.long)
    broken[0, 1] = 2
    assert order == 0 or list(every_walk(space, broken, 0)) == []


def test_existence_of_walks_against_all_sequences():
    """Every count table up to 4 steps, V=2, orders 1 and 2: a walk is found iff one exists."""
    for order, steps in itertools.product((1, 2), (1, 2, 3, 4)):
        space = ContextSpace(2, order)
        real = set()
        for tokens in itertools.product((0, 1), repeat=order + steps):
            counts = count_transitions(space, torch.tensor(tokens)).long()
            start = int(space.encode(torch.tensor(tokens[:order])))
            real.add((start, *counts.flatten().tolist()))
        cells = space.n_contexts * 2
        tables = [t for t in itertools.product(range(steps + 1), repeat=cells) if sum(t) == steps]
        for start, table in itertools.product(range(space.n_contexts), tables):
            counts = torch.tensor(table).view(space.n_contexts, 2)
            degrees = bool(may_be_walks(space, counts[None], torch.tensor([start]))[0])
            walk = eulerian_walk(space, counts, start) if degrees else None
            assert (walk is not None) == ((start, *table) in real)


@settings(max_examples=60)
@given(spaces, st.integers(1, 20), st.integers(0, 10**6))
def test_every_candidate_is_a_walk_with_the_counts_it_claims(shape, extra, seed):
    space = ContextSpace(*shape)
    length = space.order + extra
    candidates = propose(space, random_prompts(space, 1, seed), length)
    assert candidates.tokens.shape[1] == length
    assert torch.equal(count_transitions(space, candidates.tokens).long(), candidates.counts)
    assert torch.equal(space.encode(candidates.tokens[:, : space.order]), candidates.starts)


@settings(max_examples=40)
@given(spaces, st.integers(1, 20), st.integers(0, 10**6))
def test_rounded_counts_are_near_the_expected_ones(shape, steps, seed):
    space = ContextSpace(*shape)
    table = random_prompts(space, 1, seed).transitions[0]
    counts = rounded_counts(space, table, 0, steps)
    assert int(counts.sum()) == steps
    assert bool(((counts - counts.sum(-1, keepdim=True) * table).abs() < 1 + 1e-9).all())


@given(spaces, st.integers(1, 12), st.integers(0, 10**6))
def test_greedy_walks_have_the_right_length(shape, steps, seed):
    space = ContextSpace(*shape)
    wanted = rounded_counts(space, random_prompts(space, 1, seed).transitions[0], 0, steps)
    walk = greedy_walk(space, wanted, 0, steps)
    assert len(walk) == steps
    assert all(0 <= token < space.vocab_size for token in walk)


def test_swaps_move_one_unit_within_a_row():
    counts = torch.tensor([[2, 0, 1], [0, 0, 0], [0, 3, 0]])
    swaps = single_edge_swaps(counts)
    assert len(swaps) == 6
    change = swaps - counts
    assert bool((change.sum(-1) == 0).all())
    assert bool((change.abs().sum((1, 2)) == 2).all())
    assert bool((swaps >= 0).all())


@pytest.mark.parametrize(("alpha", "ones"), [(0.71, {4, 5}), (0.5, {3}), (0.0, {0}), (1.0, {6})])
def test_binary_order_zero_tries_floor_and_ceil(alpha, ones):
    space = ContextSpace(2, 0)
    prompt = PromptKernel(torch.tensor([[[1 - alpha, alpha]]]).double(), torch.ones(1, 1).double())
    assert set(propose(space, prompt, 6).tokens.sum(-1).tolist()) == ones


def test_ternary_order_zero_tries_the_neighbours_of_the_largest_remainder():
    space = ContextSpace(3, 0)
    prompt = PromptKernel(torch.tensor([[[0.45, 0.35, 0.2]]]).double(), torch.ones(1, 1).double())
    counts = {tuple(c) for c in propose(space, prompt, 7).counts[:, 0].tolist()}
    # shares 3.15, 2.45, 1.4: floors 3, 2, 1 and one unit to give, any of the three ways
    assert counts == {(3, 3, 1), (4, 2, 1), (3, 2, 2)}


def test_scores_against_weighting_by_hand():
    space, length = ContextSpace(2, 1), 6
    prompt, kernels = random_prompts(space, 1, 3), random_kernels(space, 50)
    means = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()
    candidates = propose(space, prompt, length)
    own = score_candidates(space, prompt, candidates, kernels, means, "own-context")
    frozen = score_candidates(space, prompt, candidates, kernels, means, "optimum-context")
    nu = prompt.final_context(space, 5)[0]
    for row, tokens in enumerate(candidates.tokens.tolist()):
        weights = torch.ones(50).double()
        for a, b in itertools.pairwise(tokens):
            weights = weights * kernels[:, a, b]
        weights = weights / weights.sum()
        assert float(own[row]) == pytest.approx(float(weights @ means[:, tokens[-1]]))
        assert float(frozen[row]) == pytest.approx(float(weights @ (means @ nu)))


def test_own_kernel_is_the_surrogate_at_the_empirical_table():
    """For an alternating prompt the empirical table is deterministic: both readings coincide."""
    space = ContextSpace(2, 1)
    almost = torch.tensor([[[1e-6, 1 - 1e-6], [1 - 1e-6, 1e-6]]]).double()
    prompt = PromptKernel(almost, torch.tensor([[0.5, 0.5]]).double())
    kernels = random_kernels(space, 50)
    means = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()
    candidates = propose(space, prompt, 6)
    assert candidates.tokens.tolist() == [[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]]
    own = score_candidates(space, prompt, candidates, kernels, means, "own-context")
    kernel = score_candidates(space, prompt, candidates, kernels, means, "own-kernel")
    assert torch.allclose(own, kernel)


def test_snap_picks_the_best_candidate():
    space = ContextSpace(2, 1)
    almost = torch.tensor([[[1e-6, 1 - 1e-6], [1 - 1e-6, 1e-6]]]).double()
    prompt = PromptKernel(almost, torch.tensor([[0.5, 0.5]]).double())
    kernels = random_kernels(space, 50)
    ends_in_zero = torch.tensor([1.0, 0.0]).double().expand(50, 2)
    tokens, value = snap(space, prompt, kernels, ends_in_zero, 6)
    assert tokens.tolist() == [1, 0, 1, 0, 1, 0]
    assert value == pytest.approx(1.0)


def test_candidates_that_no_latent_can_emit_lose():
    space = ContextSpace(2, 1)
    almost = torch.tensor([[[1e-6, 1 - 1e-6], [1 - 1e-6, 1e-6]]]).double()
    prompt = PromptKernel(almost, torch.tensor([[0.5, 0.5]]).double())
    stays = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).double()
    means = torch.ones(1, 2).double()
    candidates = propose(space, prompt, 4)
    for score in ("own-context", "optimum-context", "own-kernel"):
        values = score_candidates(space, prompt, candidates, stays, means, score)
        assert values.tolist() == [-torch.inf, -torch.inf]


def test_a_table_one_swap_from_a_walk_is_repaired():
    """Two edges 0 -> 1 and none back cannot be walked; each single swap that can is offered."""
    space = ContextSpace(2, 1)
    table = torch.tensor([[0.2, 0.8], [0.4, 0.6]]).double()
    prompt = PromptKernel(table[None], torch.tensor([[1.0, 0.0]]).double())
    assert rounded_counts(space, table, 0, 3).tolist() == [[0, 2], [0, 1]]
    found = propose(space, prompt, 4, torch.tensor([True, False]))
    assert found.counts.tolist() == [[[1, 1], [0, 1]], [[0, 2], [1, 0]]]
    assert found.tokens.tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]


def test_snapping_at_a_lifted_order_scores_the_whole_prompt():
    """Beta-Bernoulli with a Markov target: the score must approach the exact J of the prompt.

    50,000 latents; the estimate's error is about 0.02, the mistake it guards against was 1.4.
    """
    from posteer.banks import draw_analytic
    from posteer.evaluation import expected_utility
    from posteer.families.markov.means import utility_of_kernels
    from posteer.goals.utilities import open_utility
    from posteer.models import open_model

    model = open_model("exact:beta-bernoulli")
    utility = open_utility("reverse-xent(sym-0.9)", model.family.space)
    bank = draw_analytic(model.prior, 50_000, 0).at_order(1)
    means = utility_of_kernels(utility, bank.space, bank.kernels, 4)
    uniform = PromptKernel(torch.full((1, 2, 2), 0.5).double(), torch.full((1, 2), 0.5).double())
    candidates = propose(bank.space, uniform, 6)
    found = score_candidates(
        bank.space, uniform, candidates, bank.kernels, means, "own-context", bank.first_likelihood
    )
    exact = expected_utility(model, utility, candidates.tokens, 4).expected_utility
    assert torch.allclose(found, exact, atol=0.1)
