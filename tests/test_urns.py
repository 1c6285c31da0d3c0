"""Mean utilities of Polya urns, against every continuation one by one."""

import numpy as np
import pytest
import torch
from oracles import dirichlet_sequence_probability, sequences

from posteer.core.errors import InputError
from posteer.families.markov.urns import UrnMeans
from posteer.goals.utilities import open_utility
from posteer.tokens.contexts import ContextSpace


def expected_mean(utility, space, urn, context, wide, horizon):
    vocab, order = space.vocab_size, space.order
    before = tuple(wide.decode(torch.tensor(context)).tolist())
    total = 0.0
    for y in sequences(vocab, horizon):
        suffix = torch.tensor([context % vocab**utility.order])
        value = float(utility(torch.tensor([y]), suffix))
        known = before[len(before) - order :] if order else ()
        chance = dirichlet_sequence_probability(known + y, urn.tolist(), order, vocab)
        total += chance * vocab**order * value
    return total


@pytest.mark.parametrize(
    ("vocab", "order", "horizon", "name"),
    [
        (2, 0, 5, "frequency(0.3)"),
        (2, 0, 4, "reverse-xent(sym-0.1)"),  # reads a token more than the urn remembers
        (3, 1, 4, "reverse-xent(dir-4)"),
        (2, 2, 6, "dyck"),
        (4, 1, 4, "dyck"),  # most beginnings are lost after a token
        (2, 1, 3, "dyck"),  # nothing balances
        (2, 1, 4, lambda y: y[0] + 2.0 * y[1] * y[-1] - 0.5),
    ],
)
def test_means_are_those_over_every_continuation(vocab, order, horizon, name):
    space = ContextSpace(vocab, order)
    utility = open_utility(name, space)
    means = UrnMeans(utility, space, horizon)
    rng = np.random.default_rng(vocab)
    urns = torch.tensor(rng.uniform(0.2, 4, (4, 2, space.n_contexts, vocab)))
    last = torch.arange(4) % means.wide.n_contexts
    found = means(urns, last)
    for row, context in enumerate(last.tolist()):
        for urn in range(2):
            expected = expected_mean(utility, space, urns[row, urn], context, means.wide, horizon)
            assert float(found[row, urn]) == pytest.approx(expected, abs=1e-12)


def test_beginnings_from_which_nothing_can_be_earned_are_not_followed():
    space = ContextSpace(8, 1)
    classes = UrnMeans(open_utility("dyck", space), space, 12).classes(0)
    assert classes is not None, "8**12 continuations, but no more classes than of brackets alone"
    brackets = ContextSpace(2, 1)
    alone = UrnMeans(open_utility("dyck", brackets), brackets, 12).classes(0)
    assert alone is not None and len(classes) == len(alone)


def test_a_million_continuations_are_few_classes():
    """A uniform token each time: the urn's mean frequency follows from its pseudo-counts alone."""
    space = ContextSpace(2, 1)
    means = UrnMeans(open_utility("frequency(0.5)", space), space, 20)
    assert means.possible(torch.tensor([0, 1]))
    classes = means.classes(0)
    assert classes is not None and len(classes) <= 211
    certain = torch.full((1, 1, 2, 2), 1e12, dtype=torch.float64)  # coins that are fair for sure
    flips = np.random.default_rng(0).integers(0, 2, (200_000, 20))
    values = means.utility(torch.tensor(flips), torch.zeros(200_000, dtype=torch.long)).double()
    error = float(values.std()) / 200_000**0.5
    assert abs(float(means(certain, torch.tensor([0]))) - float(values.mean())) < 4.5 * error


def test_too_many_classes_are_refused():
    space = ContextSpace(8, 2)
    means = UrnMeans(open_utility("reverse-xent(dir-4)", space), space, 12)
    assert not means.possible(torch.tensor([0]))
    with pytest.raises(InputError, match="too many classes"):
        means(torch.ones(1, 1, 64, 8, dtype=torch.float64), torch.tensor([0]))


def test_a_utility_that_is_never_earned():
    space = ContextSpace(2, 0)
    means = UrnMeans(open_utility(lambda y: 0.0 * y[0], space), space, 3)
    assert float(means(torch.ones(1, 1, 1, 2, dtype=torch.float64), torch.tensor([0]))) == 0.0


@pytest.mark.slow
def test_horizons_past_what_numbers_hold_are_refused():
    """More continuations than the largest number: no sum over them would be one."""
    space = ContextSpace(2, 0)
    means = UrnMeans(open_utility("reverse-xent(tau-0.2)", space), space, 1040)
    assert not means.possible(torch.tensor([0]))
