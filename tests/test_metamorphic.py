"""What must not change when the question is said in another way."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from posing import posed

from posteer.api import elicit
from posteer.banks import draw_analytic
from posteer.evaluation import estimate_from_bank, expected_utility, landscape
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.family import MarkovLatents
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.scorers.choice import Estimators
from posteer.methods.scorers.posterior import FoldedPrompts
from posteer.models import ExactModel, condition, open_model
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

VOCAB = 3
permutations = st.permutations(range(VOCAB)).map(torch.tensor)


def relabelled_space_rows(order, relabel):
    """Where the row of each context goes when tokens are renamed."""
    space = ContextSpace(VOCAB, order)
    contexts = space.decode(torch.arange(space.n_contexts))
    return space.encode(relabel[contexts])


def relabelled(prior, relabel):
    """The prior whose kernels say of renamed tokens what the prior's say of the tokens."""
    rows = relabelled_space_rows(prior.space.order, relabel)
    moved = torch.empty_like(prior.concentration)
    moved[rows[:, None], relabel[None, :]] = prior.concentration
    return DirichletRows(prior.space, moved)


def uneven(order, seed):
    generator = torch.Generator().manual_seed(seed)
    space = ContextSpace(VOCAB, order)
    shape = (space.n_contexts, VOCAB)
    return DirichletRows(space, 0.2 + torch.rand(shape, generator=generator, dtype=torch.float64))


def of_token(token):
    def share(continuation):
        return continuation.count(token) - 0.5 * continuation.count((token + 1) % VOCAB)

    return share


@settings(max_examples=15, deadline=None)
@given(relabel=permutations, order=st.integers(0, 2), seed=st.integers(0, 99))
def test_names_of_tokens_do_not_matter(relabel, order, seed):
    """J of every prompt is that of the renamed prompt under the renamed prior and utility."""
    prior = uneven(order, seed)
    model, other = ExactModel(prior), ExactModel(relabelled(prior, relabel))
    prompts = all_sequences(VOCAB, order + 2)
    back = relabel.argsort().tolist()
    score = of_token(1)
    goal = open_utility(score, ContextSpace(VOCAB, 0))
    renamed = open_utility(
        lambda continuation: score(tuple(back[token] for token in continuation)),
        ContextSpace(VOCAB, 0),
    )
    own = expected_utility(model, goal, prompts, 2).expected_utility
    moved = expected_utility(other, renamed, relabel[prompts], 2).expected_utility
    assert torch.allclose(own, moved, atol=1e-12)
    length = order + 3
    assert landscape(model, goal, length, 2).optimum == pytest.approx(
        landscape(other, renamed, length, 2).optimum, abs=1e-12
    )


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999))
@pytest.mark.parametrize("name", ["importance", "psis"])
def test_the_order_of_latents_does_not_matter(name, seed):
    prior = open_process("markov(vocab=3,order=1)")
    bank = draw_analytic(prior, 200, 0)
    shuffled = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
    other = replace(bank, latents=MarkovLatents(bank.space, bank.kernels[shuffled]))
    prompts = all_sequences(3, 4)[::7]
    goal = open_utility("frequency(0.4)", bank.space)
    assert torch.allclose(
        estimate_from_bank(bank, goal, prompts, 3), estimate_from_bank(other, goal, prompts, 3)
    )
    folded = FoldedPrompts(
        bank.space, count_transitions(bank.space, prompts), bank.space.suffix(prompts)
    )
    one, two = (Estimators(b).named(name).of_folded(goal, folded, 3) for b in (bank, other))
    assert torch.allclose(one.value, two.value, rtol=1e-9)
    assert torch.allclose(one.standard_error, two.standard_error, rtol=1e-9)


@pytest.mark.parametrize("model", ["exact:urn", "exact:coins(0.2,0.7)", "beta-bernoulli"])
@settings(max_examples=10, deadline=None)
@given(tokens=st.lists(st.integers(0, 1), min_size=3, max_size=8), cut=st.integers(0, 8))
def test_a_context_split_off_a_prompt_changes_nothing(model, tokens, cut):
    """J of the whole prompt is J of its rest after its beginning; so is the evidence."""
    opened = open_model(model)
    cut = min(cut, len(tokens) - 1)
    goal = open_utility("reverse-xent(dir-4)", opened)
    whole = expected_utility(opened, goal, torch.tensor([tokens]), 3).expected_utility
    after = condition(opened, tuple(tokens[:cut]))
    rest = expected_utility(after, goal, torch.tensor([tokens[cut:]]), 3).expected_utility
    assert float(whole) == pytest.approx(
        float(rest), abs=1e-5 if model == "beta-bernoulli" else 1e-12
    )


@pytest.mark.parametrize("method", ["classes-analytic(samples=400,estimator=importance)", "beam"])
def test_the_best_prompt_after_a_context_is_the_best_end_of_the_whole(method):
    """The best of all that begin with the context, found by asking for what follows it."""
    found = elicit("exact:urn", "dyck", length=4, context="0110", method="exhaustive")
    begun = elicit("exact:urn", "dyck", length=8, allowed="first=0110", method="exhaustive")
    assert found.expected_utility == pytest.approx(begun.expected_utility, abs=1e-12)
    other = elicit("exact:urn", "dyck", length=4, context="0110", method=method)
    assert other.expected_utility == pytest.approx(found.expected_utility, abs=1e-12)


def test_conditions_that_allow_everything_change_nothing():
    plain = elicit(
        "exact:urn", "dyck", length=5, method="classes-analytic(samples=200,estimator=importance)"
    )
    loose = elicit(
        "exact:urn",
        "dyck",
        length=5,
        method="classes-analytic(samples=200,estimator=importance)",
        allowed="count(1)<=5",
    )
    assert (plain.prompt, plain.rank) == (loose.prompt, loose.rank)
    assert posed("exact:urn", "dyck", 5, allowed="count(1)<=5").allowed is not None
