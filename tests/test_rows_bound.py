"""Bounds on Dirichlet rows against enumeration: none is exceeded, and all are met in the end."""

import pytest
import torch

from posteer.api import elicit, evaluate
from posteer.families.markov.dirichlet import DirichletRows
from posteer.goals.utilities import open_utility
from posteer.methods.answers import StopReason
from posteer.methods.bounds import unrolled
from posteer.methods.bounds.rows import RowsBound
from posteer.tokens.conditions import parse_allowed
from posteer.tokens.contexts import ContextSpace, all_sequences

GOALS = ["dyck", "frequency(0.3)", "reverse-xent", "function"]


def values(prior, utility, prompts, horizon):
    """J of every prompt by the evidence of all its continuations."""
    vocab = prior.space.vocab_size
    continuations = all_sequences(vocab, horizon)
    n = len(continuations)
    whole = torch.cat([prompts.repeat_interleave(n, 0), continuations.repeat(len(prompts), 1)], 1)
    logs = prior.evidence(whole).view(len(prompts), n) - prior.evidence(prompts)[:, None]
    read = torch.tensor(prior.context, dtype=torch.long).expand(len(prompts), -1)
    last = ContextSpace(vocab, utility.order).suffix(torch.cat([read, prompts], 1))
    gains = utility(continuations.repeat(len(prompts), 1), last.repeat_interleave(n))
    return (logs.exp() * gains.view(len(prompts), n)).sum(-1)


def some_problem(seed, goal):
    """A prior of random concentrations, behind a random context, a utility, a horizon, a length."""
    source = torch.Generator().manual_seed(seed)

    def between(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=source))

    vocab, order, horizon = between(2, 3), between(0, 2), between(1, 4)
    length = between(order + 1, 8 if vocab == 2 else 5)
    space = ContextSpace(vocab, order)
    spread = torch.randn(space.n_contexts, vocab, generator=source).double()
    prior = DirichletRows(space, (1.5 * spread).exp())
    read = tuple(torch.randint(0, vocab, (between(0, 3),), generator=source).tolist())
    prior = prior.after(read) if read else prior
    if goal == "reverse-xent":
        n_rows = vocab ** between(0, min(2, length - 1))
        rows = torch.randn(n_rows, vocab, generator=source).double().mul(2).softmax(-1)
        goal = f"reverse-xent({rows.tolist()})"
    elif goal == "function":

        def goal(tokens):
            return float(len(set(tokens)) * tokens[0] - tokens[-1] ** 2)

    return prior, open_utility(goal, space), horizon, length


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("seed", range(4, 8))
def test_no_prompt_exceeds_the_bound_and_the_best_one_meets_it(seed, goal):
    prior, utility, horizon, length = some_problem(seed, goal)
    prompts = all_sequences(prior.space.vocab_size, length)
    exact = values(prior, utility, prompts, horizon)
    best, at = float(exact.max()), int(exact.argmax())
    shape = (prior, utility, horizon, length)
    assert RowsBound(*shape).value(prompts[at]) == pytest.approx(best, abs=1e-9)
    worst = float(exact.min())
    first = RowsBound(*shape).proof(worst, nodes=0)
    proven = RowsBound(*shape).proof(worst)
    assert first.bound >= proven.bound >= best - 1e-10
    assert proven.bound == pytest.approx(best, abs=1e-8)
    assert proven.gap == pytest.approx(proven.bound - worst)
    assert RowsBound(*shape).proof(best).gap <= 1e-9


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("seed", range(20, 22))
def test_moments_that_forget_bound_from_both_sides(seed, goal, monkeypatch):
    monkeypatch.setattr(unrolled, "MOST_MOMENTS", 1)
    prior, utility, horizon, length = some_problem(seed, goal)
    prompts = all_sequences(prior.space.vocab_size, length)
    exact = values(prior, utility, prompts, horizon)
    search = RowsBound(prior, utility, horizon, length)
    at = int(exact.argmax())
    assert search.value(prompts[at]) <= float(exact[at]) + 1e-10
    for nodes in (0, 200):
        proof = RowsBound(prior, utility, horizon, length).proof(float(exact.min()), nodes=nodes)
        assert proof.bound >= float(exact.max()) - 1e-10


@pytest.mark.parametrize("text", ["last=1", "first=2;count(0)<=2", "ban=01", "position(2)=1"])
@pytest.mark.parametrize("order", [0, 1])
def test_allowed_prompts_are_bounded(text, order):
    prior = DirichletRows.symmetric(3, order, 0.5)
    utility = open_utility("frequency(0.4)", prior.space)
    prompts = all_sequences(3, 5)
    allowed = parse_allowed(text, 3)
    exact = values(prior, utility, prompts[allowed.allows(prompts)], 3)
    proof = RowsBound(prior, utility, 3, 5, allowed).proof(float(exact.min()))
    assert proof.bound >= float(exact.max()) - 1e-10


def test_all_classes_of_the_urn_agree():
    """Length 50: the optimum over all classes is what the bound comes down to."""
    among_all = evaluate("exact:urn", "dyck", "01" * 25)
    prior = DirichletRows.symmetric(2, 1, 0.5)
    proof = RowsBound(prior, open_utility("dyck", prior.space), 4, 50).proof(0.0)
    assert proof.bound == pytest.approx(among_all.optimum, abs=1e-9)
    assert proof.bound == pytest.approx(0.926, abs=5e-4)


def test_eight_tokens_and_a_hundred_are_proven():
    prior = DirichletRows.symmetric(8, 1, 0.5)
    search = RowsBound(prior, open_utility("dyck", prior.space), 4, 100)
    value = search.value(torch.tensor([0, 1] * 50))
    assert search.proof(value).gap <= 1e-9 and value == pytest.approx(0.764911, abs=1e-6)


CLIMB = "classes-analytic(samples=60,limit=0,restarts=1,steps=20,estimator=importance)"


def test_a_climb_on_an_exact_model_says_what_no_prompt_exceeds():
    asked = {"length": 9, "method": CLIMB, "rank": False}
    found = elicit("exact:urn", "dyck", **asked)
    assert found.certificate is None and found.stop_reason is StopReason.LOCAL_OPTIMUM
    assert found.bound == found.proof.bound >= found.expected_utility - 1e-9
    assert found.proof.gap == pytest.approx(found.bound - found.expected_utility, abs=1e-9)
    few = elicit("exact:urn", "dyck", nodes=0, **asked)
    assert few.proof.nodes < found.proof.nodes and few.bound > found.bound


def test_a_horizon_that_cannot_be_enumerated_is_bounded_too():
    prior = DirichletRows.symmetric(3, 1, 0.5)
    search = RowsBound(prior, open_utility("frequency(0.5)", prior.space), 14, 30)
    value = search.value(torch.tensor([0, 1] * 15))
    proof = search.proof(value, nodes=20)
    assert value < proof.bound <= 0


def test_interrupting_keeps_the_bound_so_far(monkeypatch):
    def stop(*given):
        raise KeyboardInterrupt

    prior = DirichletRows.symmetric(3, 1, 0.5)
    search = RowsBound(prior, open_utility("dyck", prior.space), 4, 20)
    proof = search.proof(0.0, progress=stop)
    assert search.interrupted and 0 < proof.bound <= 1
