"""Ascent by shares of a neighbourhood: its ends are local optima of all of it."""

import pytest
import torch

from posteer.core.randomness import numpy_stream
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.methods.climbing.climb import climb
from posteer.methods.climbing.moves import ClassMoves
from posteer.methods.climbing.search import random_prompts
from posteer.methods.climbing.token_moves import TokenMoves
from posteer.methods.scorers.protocol import HardScores
from posteer.tokens.contexts import ContextSpace

SPACE, LENGTH = ContextSpace(3, 1), 14
MOVES = ClassMoves.of(SPACE, LENGTH - 1)
ROUNDING = 1e-12
"""Of a value in two batches: five sines of sums of nine products, each below 40 in size, differ by
at most 5 * 9 * 40 * 1.1e-16 = 2e-13."""


def rugged(counts, first, last):
    """A landscape with many local optima."""
    slopes = torch.from_numpy(numpy_stream(0, "rugged").normal(size=(3, 3, 5)))
    phases = torch.einsum("kcv,cvp->kp", counts.double(), slopes) + last[:, None]
    value = phases.sin().sum(-1)
    return HardScores.of(value, torch.zeros_like(value))


def begin(n, seed=0):
    return MOVES.rows_of(random_prompts(ClassProblem(SPACE, LENGTH), n, seed))


def climbed(starts, share, seed=0, violations=None, max_rounds=10_000, keep=1):
    stream = numpy_stream(seed, "test-climb")
    return climb(
        MOVES,
        MOVES.parts_of,
        rugged,
        violations,
        starts,
        stream,
        keep,
        max_rounds,
        share=share,
    )


def value_of(rows):
    return rugged(*MOVES.parts_of(rows)).value


@pytest.mark.parametrize("share", [40, 400, 10**6])
@pytest.mark.parametrize("seed", range(2))
def test_the_end_of_a_climb_is_a_local_optimum_of_the_whole_neighbourhood(share, seed):
    found = climbed(begin(1, seed), share, seed)
    assert found.finished
    assert float(value_of(found.rows)) == pytest.approx(float(found.values), abs=ROUNDING)
    assert bool((value_of(MOVES(found.rows)[0]) <= found.values + ROUNDING).all())


def test_the_best_of_many_ends_is_one_as_well_and_one_round_is_no_end():
    starts = begin(6)
    found = climbed(starts, 100, keep=5)
    assert bool((value_of(MOVES(found.rows[:1])[0]) <= found.values[0] + ROUNDING).all())
    assert found.values.tolist() == sorted(found.values.tolist(), reverse=True)
    assert found.n_scored == sum(new for _, new, _ in found.history) + len(starts)
    again = climbed(starts, 100, keep=5)
    assert torch.equal(found.rows, again.rows)
    cut = climbed(starts, 100, max_rounds=1)
    assert not cut.finished and cut.rounds == 1


def test_a_whole_neighbourhood_at_a_time_is_steepest_ascent():
    for seed in range(4):
        row = begin(1, seed)
        while True:
            near = MOVES(row)[0]
            values = value_of(near)
            if float(values.max()) <= float(value_of(row)) + ROUNDING:
                break
            row = near[values.argmax()][None]
        found = climbed(begin(1, seed), MOVES.size)
        assert float(found.values) == pytest.approx(float(value_of(row)), abs=ROUNDING)


@pytest.mark.parametrize("share", [30, 10**6])
def test_fewer_violations_come_before_any_utility(share):
    def violations(rows):  # at most two transitions that stay where they are
        return (rows[:, :-1:4].sum(-1) - 2).clamp(min=0)

    found = climbed(begin(4), share, violations=violations, keep=20)
    assert found.finished
    assert int(violations(found.rows).sum()) == 0
    near = MOVES(found.rows[:1])[0]
    assert bool((value_of(near[violations(near) == 0]) <= found.values[0] + ROUNDING).all())
    nothing = climbed(begin(4), share, violations=lambda rows: torch.ones_like(rows[:, 0]))
    assert len(nothing.rows) == len(nothing.values) == nothing.n_scored == 0


def test_neighbours_by_parts_are_all_neighbours():
    rows = begin(3)
    tokens = random_prompts(ClassProblem(SPACE, LENGTH), 3, 0)
    mask = torch.ones(LENGTH, 3, dtype=torch.bool)
    by_tokens = TokenMoves.of(ClassProblem(SPACE, LENGTH).describe, mask, numpy_stream(0, "test"))
    for moves, some in ((MOVES, rows), (by_tokens, tokens)):
        whole = {
            (int(o), *row) for row, o in zip(moves(some)[0].tolist(), moves(some)[1], strict=True)
        }
        parts = set()
        for share in torch.randperm(moves.size).split(97):
            found, owners = moves(some, share)
            parts |= {(int(o), *row) for row, o in zip(found.tolist(), owners, strict=True)}
        assert parts == whole
