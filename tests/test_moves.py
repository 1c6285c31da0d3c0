"""Moves between classes: every neighbour is a walk, and moves lead everywhere."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posteer.core.randomness import numpy_stream
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.families.markov.walks import eulerian_walk, may_be_walks
from posteer.methods.climbing.moves import (
    ClassMoves,
    cycle_exchanges,
    in_one_piece,
    last_context,
    multiples,
    simple_cycles,
)
from posteer.methods.climbing.token_moves import TokenMoves
from posteer.methods.direct.coordinate import single_substitutions
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

spaces = st.sampled_from([(2, 0), (2, 1), (2, 2), (2, 3), (3, 0), (3, 1), (3, 2), (4, 1)])


def test_simple_cycles_of_small_graphs():
    def lengths(vocab, order):
        return sorted(length for length, _ in simple_cycles(ContextSpace(vocab, order), 1000))

    assert lengths(2, 0) == [1, 1]
    assert lengths(2, 1) == [1, 1, 2]
    assert lengths(3, 1) == [1, 1, 1, 2, 2, 2, 3, 3]
    # 0, 1, 01, 001, 011, 0011: six of the binary de Bruijn graph of order 2
    assert lengths(2, 2) == [1, 1, 2, 3, 3, 4]
    assert lengths(4, 1) == [1] * 4 + [2] * 6 + [3] * 8 + [4] * 6


@given(spaces)
def test_cycles_are_balanced_and_exchanges_keep_the_length(shape):
    space = ContextSpace(*shape)
    for length, table in simple_cycles(space):
        assert int(table.sum()) == length
        assert torch.equal(table.sum(-1), table.flatten()[space.incoming].sum(-1))
    exchanges = multiples(cycle_exchanges(space), 20)
    assert bool((exchanges.sum((1, 2)) == 0).all())
    out, into = exchanges.sum(-1), exchanges.flatten(1)[:, space.incoming].sum(-1)
    assert torch.equal(out, into)
    assert len(exchanges.unique(dim=0)) == len(exchanges)


@settings(max_examples=40)
@given(spaces, st.integers(1, 12), st.integers(0, 10**6))
def test_every_neighbour_has_an_eulerian_walk_of_the_same_length(shape, extra, seed):
    space = ContextSpace(*shape)
    length = space.order + extra
    tokens = numpy_stream(seed, "moves").integers(0, space.vocab_size, size=(2, length))
    prompts = torch.from_numpy(tokens)
    moves = ClassMoves.of(space, extra)
    rows = moves.rows_of(prompts)
    counts, first, last = moves.parts_of(rows)
    assert torch.equal(counts, count_transitions(space, prompts).long())
    assert torch.equal(last, space.suffix(prompts))
    neighbours, owners = moves(rows)
    assert set(owners.tolist()) <= {0, 1}
    counts, first, last = moves.parts_of(neighbours)
    assert bool(may_be_walks(space, counts, first).all())
    chosen = range(0, len(neighbours), max(1, len(neighbours) // 40))
    for row in chosen:
        walk = eulerian_walk(space, counts[row], int(first[row]))
        assert walk is not None
        again = torch.cat([space.decode(first[row]), torch.tensor(walk, dtype=torch.long)])
        assert len(again) == length
        assert int(space.suffix(again)) == int(last[row])


def test_one_piece_against_the_existence_of_a_walk():
    """Every balanced table of up to 5 steps, V=2, order 2."""
    space = ContextSpace(2, 2)
    for steps in (1, 3, 5):
        tables = [t for t in itertools.product(range(3), repeat=8) if sum(t) == steps]
        counts = torch.tensor(tables).view(-1, 4, 2)
        for start in range(4):
            first = torch.full((len(counts),), start)
            balanced = may_be_walks(space, counts, first)
            whole = in_one_piece(space, counts[balanced], first[balanced])
            for table, connected in zip(counts[balanced], whole.tolist(), strict=True):
                assert (eulerian_walk(space, table, start) is not None) == connected


@pytest.mark.parametrize(
    ("vocab", "order", "length"), [(2, 1, 9), (2, 2, 9), (2, 3, 9), (3, 1, 6), (3, 2, 6), (4, 1, 4)]
)
def test_moves_lead_from_any_class_to_every_other(vocab, order, length):
    space = ContextSpace(vocab, order)
    moves = ClassMoves.of(space, length - order)
    every = {tuple(row) for row in moves.rows_of(all_sequences(vocab, length)).tolist()}
    seen = {min(every)}
    edge = torch.tensor([min(every)])
    while len(edge):
        neighbours, _ = moves(edge)
        fresh = {tuple(row) for row in neighbours.unique(dim=0).tolist()} - seen
        assert fresh <= every
        seen |= fresh
        edge = torch.tensor(sorted(fresh))
    assert seen == every


@pytest.mark.parametrize(("vocab", "order"), [(2, 0), (2, 1), (2, 2), (3, 1), (8, 1)])
def test_a_changed_inner_token_is_a_neighbour(vocab, order):
    space, length = ContextSpace(vocab, order), 12
    prompt = torch.from_numpy(numpy_stream(vocab, "inner").integers(0, vocab, size=length))
    moves = ClassMoves.of(space, length - order)
    found = {tuple(row) for row in moves(moves.rows_of(prompt[None]))[0].tolist()}
    changed = single_substitutions(prompt, vocab)
    inner = (changed[:, order : length - order] != prompt[order : length - order]).any(-1)
    wanted = {tuple(row) for row in moves.rows_of(changed[inner]).tolist()}
    own = tuple(moves.rows_of(prompt[None])[0].tolist())
    assert wanted and wanted <= found | {own}


def test_last_context_of_closed_walks_is_their_start():
    space = ContextSpace(2, 1)
    counts = torch.tensor([[[1, 1], [1, 0]], [[0, 1], [0, 2]]])
    assert last_context(space, counts, torch.tensor([1, 0])).tolist() == [1, 1]


def test_token_moves_are_all_prompts_within_two_changes_and_keep_to_the_mask():
    mask = torch.ones(4, 3, dtype=torch.bool)
    mask[1, 2] = mask[3, 0] = False
    describe = ClassProblem(ContextSpace(3, 1), 4).describe
    moves = TokenMoves.of(describe, mask, numpy_stream(0, "test"))
    start = torch.tensor([[0, 1, 2, 1]])
    found = {tuple(row) for row in moves(start)[0].tolist()}
    expected = {
        prompt
        for prompt in itertools.product(range(3), repeat=4)
        if sum(a != b for a, b in zip(prompt, start[0].tolist(), strict=True)) <= 2
        and prompt[1] != 2
        and prompt[3] != 0
    }
    assert found == expected
    counts, first, last = moves.parts_of(start)
    assert (int(counts.sum()), int(first), int(last)) == (3, 0, 1)
