"""Search over prompts by any score: beside enumeration, and its ends are local optima."""

import itertools

import numpy as np
import pytest
import torch

from posteer import InputError
from posteer.core.randomness import numpy_stream
from posteer.methods.climbing.prompt_moves import MOST_MOVES, kinds_of_moves
from posteer.methods.climbing.prompts import PromptSearchSettings, search_prompts
from posteer.tokens.conditions import parse_allowed
from posteer.tokens.contexts import all_sequences


def rugged(vocab, most=40, seed=0):
    """A score in which every pair of places matters, by any length up to `most`."""
    stream = numpy_stream(seed, "rugged-prompts")
    single = torch.from_numpy(stream.normal(size=(most, vocab)))
    pairs = torch.from_numpy(stream.normal(size=(most, vocab, vocab)))

    def score(prompts):
        at = torch.arange(prompts.shape[1])
        value = single[at, prompts].sum(-1)
        for shift in (1, 2, 5):
            if prompts.shape[1] > shift:
                some = pairs[at[shift:], prompts[:, :-shift], prompts[:, shift:]]
                value = value + (shift * some).sin().sum(-1)
        return value

    return score


def neighbours(prompt, vocab):
    """Written down one by one: what the kinds of moves are to reach."""
    length = len(prompt)
    substituted = {(*prompt[:i], v, *prompt[i + 1 :]) for i in range(length) for v in range(vocab)}
    exchanged = set()
    for i, j in itertools.combinations(range(length), 2):
        other = list(prompt)
        other[i], other[j] = other[j], other[i]
        exchanged.add(tuple(other))
    turned = {(*prompt[r:], *prompt[:r]) for r in range(1, length)}
    moved = set()
    for i in range(length):
        rest = (*prompt[:i], *prompt[i + 1 :])
        moved |= {(*rest[:j], v, *rest[j:]) for j in range(length) for v in range(vocab) if j != i}
    return substituted, exchanged | turned, moved


@pytest.mark.parametrize(("vocab", "length"), [(2, 1), (2, 2), (3, 5), (4, 7)])
def test_each_kind_of_moves_reaches_what_it_says(vocab, length):
    prompt = torch.from_numpy(numpy_stream(0, "moves").integers(0, vocab, size=(1, length)))
    kinds = kinds_of_moves(torch.ones(length, vocab, dtype=torch.bool), numpy_stream(0, "kinds"))
    for kind, expected in zip(kinds, neighbours(prompt[0].tolist(), vocab), strict=True):
        found, owners = kind(prompt, torch.arange(kind.size))
        assert {tuple(row) for row in found.tolist()} == expected
        assert owners.tolist() == [0] * kind.size


def test_moves_of_several_rows_know_their_owners():
    rows = torch.tensor([[0, 1, 1], [2, 0, 1]])
    kind = kinds_of_moves(torch.ones(3, 3, dtype=torch.bool), numpy_stream(0, "kinds"))[0]
    found, owners = kind(rows, torch.arange(kind.size))
    assert bool(((found != rows[owners]).sum(-1) <= 1).all())


def test_where_moves_are_too_many_some_are_drawn():
    kinds = kinds_of_moves(torch.ones(300, 5, dtype=torch.bool), numpy_stream(0, "kinds"))
    assert all(0 < kind.size <= MOST_MOVES for kind in kinds)


def test_where_prompts_are_few_all_are_tried():
    score = rugged(3)
    found = search_prompts(score, 3, 6, None, PromptSearchSettings(keep=5))
    values = score(all_sequences(3, 6)).sort(descending=True).values
    assert found.complete and found.n_scored == 3**6
    assert torch.equal(found.values, values[:5])
    assert torch.equal(score(found.prompts), found.values)


@pytest.mark.parametrize("seed", range(5))
def test_the_climb_finds_the_best_of_all(seed):
    """Not promised, but true of these: sixteen starts on landscapes of 6,561 prompts."""
    score = rugged(3, seed=seed)
    found = search_prompts(score, 3, 8, None, PromptSearchSettings(limit=0), seed)
    assert not found.complete and found.finished
    assert float(found.values[0]) == pytest.approx(float(score(all_sequences(3, 8)).max()))
    assert found.n_scored <= 3**8


@pytest.mark.parametrize("length", [1, 2, 12, 20])
def test_no_move_of_any_kind_improves_the_answer(length):
    score = rugged(4)
    found = search_prompts(score, 4, length, None, PromptSearchSettings(limit=0, restarts=2))
    assert found.finished
    every = set().union(*neighbours(found.prompts[0].tolist(), 4))
    assert bool((score(torch.tensor(sorted(every))) <= found.values[0] + 1e-9).all())
    assert np.all(np.diff(found.values.numpy()) <= 0)
    assert len(found.prompts.unique(dim=0)) == len(found.prompts)


@pytest.mark.parametrize("limit", [0, 2**16])
def test_only_allowed_prompts_are_found_and_the_best_of_them(limit):
    score = rugged(2)
    allowed = parse_allowed("first=0;last=11;ban=000;count(1)<=6;position(3)=1", 2)
    found = search_prompts(score, 2, 10, allowed, PromptSearchSettings(limit=limit))
    every = all_sequences(2, 10)
    every = every[allowed.allows(every)]
    assert bool(allowed.allows(found.prompts).all())
    assert float(found.values[0]) == pytest.approx(float(score(every).max()))


def test_given_starts_are_climbed_from():
    wanted = torch.tensor([[1, 0, 2, 2, 1, 0, 0, 1, 2, 1, 2, 0, 0, 2, 1, 1]])

    def needle(prompts):
        """Nothing leads to it."""
        if prompts.shape[1] < 16:
            return torch.zeros(len(prompts), dtype=torch.float64)
        return (prompts == wanted).all(-1).double()

    settings = PromptSearchSettings(limit=0, restarts=1, width=4)
    assert float(search_prompts(needle, 3, 16, None, settings).values[0]) == 0
    found = search_prompts(needle, 3, 16, None, settings, starts=wanted)
    assert float(found.values[0]) == 1 and torch.equal(found.prompts[:1], wanted)


def test_the_same_seed_finds_the_same():
    settings = PromptSearchSettings(limit=0, restarts=2, width=8)
    one, other = (search_prompts(rugged(5), 5, 12, None, settings, seed=7) for _ in range(2))
    assert torch.equal(one.prompts, other.prompts) and one.n_scored == other.n_scored


def test_impossible_prompts_are_no_answer():
    def impossible(prompts):
        return torch.full((len(prompts),), -torch.inf, dtype=torch.float64)

    for limit in (0, 2**16):
        with pytest.raises(InputError, match="any latent can emit"):
            search_prompts(impossible, 2, 5, None, PromptSearchSettings(limit=limit))


def test_beams_ask_for_no_prompt_shorter_than_there_is_a_value_of():
    asked = set()

    def noted(prompts):
        asked.add(prompts.shape[1])
        return rugged(3)(prompts)

    search_prompts(noted, 3, 9, None, PromptSearchSettings(limit=0, width=4), shortest=4)
    assert min(asked) == 4


def test_progress_is_told_and_rounds_are_bounded():
    told = []
    settings = PromptSearchSettings(limit=0, restarts=1, max_rounds=1)
    found = search_prompts(
        rugged(4), 4, 20, None, settings, progress=lambda *step: told.append(step)
    )
    assert {what for what, _, _ in told} == {"beam search", "climbing"}
    assert not found.finished and len(found.history) == 2
