"""What every goal promises: values by definition, automata that say the same, laws scored alike."""

import pytest
import torch
from strangers import Zeros

from posteer.families.markov.means import utility_of_kernels
from posteer.goals.objectives import ForwardCrossEntropy, objective_of
from posteer.goals.protocol import Utility
from posteer.goals.utilities import UTILITIES, open_goal
from posteer.tokens.contexts import ContextSpace, all_sequences, continuation_log_probabilities

EXAMPLES = {
    "dyck": ["dyck"],
    "frequency": ["frequency(0.3)", "frequency(0.9)"],
    "reverse-xent": ["reverse-xent(tau-0.2)", "reverse-xent(sym-0.1)", "reverse-xent(dir-4)"],
    "forward-xent": ["forward-xent(tau-0.2)", "forward-xent(sym-0.3)"],
}


def counts_ones(continuation):
    return float(sum(continuation))


def ends_alike(continuation, before):
    return float(continuation[-1] == before[-1])


SPACE = ContextSpace(2, 1)
GOALS = [open_goal(text, SPACE) for texts in EXAMPLES.values() for text in texts]
GOALS += [open_goal(counts_ones, SPACE), open_goal(ends_alike, SPACE), Zeros()]
every_goal = pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
every_utility = pytest.mark.parametrize(
    "utility", [goal for goal in GOALS if isinstance(goal, Utility)], ids=lambda goal: goal.name
)


def kernels(n=5):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, 2, 2, generator=generator, dtype=torch.float64).softmax(-1)


def test_every_registered_goal_is_here():
    assert set(UTILITIES.names()) == set(EXAMPLES)


@every_utility
@pytest.mark.parametrize("horizon", [1, 2, 4, 5])
def test_means_are_sums_over_continuations(utility, horizon):
    """By automaton or by enumeration: sum_y kernel(y | c) u(y; c) for every latent and context."""
    continuations = all_sequences(2, horizon)
    logs = continuation_log_probabilities(SPACE, kernels(), continuations)
    contexts = torch.arange(2) % 2**utility.order
    values = torch.stack(
        [utility(continuations, context.expand(len(continuations))) for context in contexts]
    )
    expected = (logs.exp() * values.double()).sum(-1)
    assert torch.allclose(utility_of_kernels(utility, SPACE, kernels(), horizon), expected)


@every_goal
def test_a_goal_scores_laws_and_has_a_slope_in_them(goal):
    objective = objective_of(goal, 2, 3)
    laws = torch.randn(4, 8, dtype=torch.float64).log_softmax(-1).requires_grad_()
    contexts = torch.arange(4) % 2**goal.order
    value = objective.of_laws(laws, contexts)
    assert value.shape == (4,) and bool(torch.isfinite(value).all())
    (slope,) = torch.autograd.grad(value.sum(), laws)
    assert slope.shape == laws.shape and bool(torch.isfinite(slope).all())


@every_goal
def test_a_goal_reads_no_further_back_than_it_says(goal):
    assert 0 <= goal.order <= 1 and goal.name
    assert isinstance(goal, Utility | ForwardCrossEntropy)
