"""Finite-state latents against brute force: sums over hidden paths and over continuations."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import posteer
from posteer.core.randomness import numpy_stream
from posteer.families.atoms.ginc import memory_matrix, of_permutations
from posteer.families.atoms.prior import AtomPrior
from posteer.families.atoms.side_by_side import side_by_side
from posteer.families.finite_state.machines import StateLatents, padded
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.models import ExactModel, open_model
from posteer.tokens.contexts import ContextSpace, all_sequences


class Machine:
    """One hidden Markov model in plain numpy; a kernel is one whose state is what was read."""

    def __init__(self, start, operators):
        self.start, self.operators = start, operators

    def belief(self, tokens):
        """The unnormalised law of the last state: a sum over all paths, one by one."""
        n = len(self.start)
        found = np.zeros(n)
        for path in product(range(n), repeat=len(tokens) + 1):
            chance = self.start[path[0]]
            for token, here, there in zip(tokens, path, path[1:], strict=False):
                chance *= self.operators[here, token, there]
            found[path[-1]] += chance
        return found


class Kernel:
    """A Markov kernel in plain numpy; its first tokens are uniform."""

    def __init__(self, table, order):
        self.table, self.order, self.vocab = table, order, table.shape[1]

    def belief(self, tokens):
        chance = 1.0
        for at, token in enumerate(tokens):
            row = 0
            for one in tokens[at - self.order : at] if at >= self.order else ():
                row = row * self.vocab + one
            chance *= self.table[row, token] if at >= self.order else 1 / self.vocab
        return np.array([chance])


def drawn(stream, shape, zeros):
    """Laws along the last axis, some entries zero."""
    found = stream.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    keep = stream.random(shape) >= zeros
    keep[..., 0] = True
    found = np.where(keep, found, 0.0)
    return found / found.sum(-1, keepdims=True)


def problem(kind, vocab, seed, zeros):
    """Latents of a kind, and the same in plain numpy."""
    stream = numpy_stream(seed, "finite-state", kind)
    plain, parts = [], []
    if kind in ("hmm", "mixed"):
        machines = []
        for states in (2, 3):
            start = drawn(stream, (states,), 0.0)
            flat = drawn(stream, (states, vocab * states), zeros)
            operators = flat.reshape(states, vocab, states)
            plain.append(Machine(start, operators))
            one = StateLatents(torch.tensor(start)[None], torch.tensor(operators)[None])
            machines.append(one)
        parts.append(padded(machines))
    if kind in ("unifilar", "mixed"):
        tables = [drawn(stream, (vocab**order, vocab), zeros) for order in (0, 1, 2)]
        plain += [Kernel(table, order) for order, table in enumerate(tables)]
        parts.append(from_kernels([torch.tensor(table) for table in tables]))
    weights = drawn(stream, (len(plain),), 0.0)
    return AtomPrior.of(side_by_side(parts), torch.tensor(weights), "test"), plain, weights


CASES = {
    "kind": st.sampled_from(["hmm", "unifilar", "mixed"]),
    "vocab": st.sampled_from([2, 3]),
    "utility": st.sampled_from(["frequency(0.3)", "dyck", "reverse-xent(tau-0.3)"]),
    "horizon": st.integers(1, 2),
    "length": st.integers(1, 3),
    "zeros": st.sampled_from([0.0, 0.0, 0.3]),
    "seed": st.integers(0, 10**6),
}


@given(**CASES)
@settings(max_examples=12)
def test_families_are_what_brute_force_says(**case):
    check_family(**case)


@pytest.mark.slow
@given(**{**CASES, "horizon": st.integers(1, 3)})
@settings(max_examples=40)
def test_families_are_what_brute_force_says_in_more_cases(**case):
    check_family(**case)


def check_family(kind, vocab, utility, horizon, length, zeros, seed):
    """Likelihood, belief, mean utility, posterior, evidence and J, to 1e-10."""
    if utility.startswith("reverse") and vocab != 2:
        utility = "dyck"
    prior, plain, weights = problem(kind, vocab, seed, zeros)
    goal = open_utility(utility, ContextSpace(vocab, 0))
    length = max(length, goal.order + 1)
    prompts, tails = all_sequences(vocab, length)[::2], all_sequences(vocab, horizon)
    latents = prior.latents
    likelihood = np.array([[one.belief(p).sum() for one in plain] for p in prompts.tolist()])
    assert np.allclose(latents.log_likelihood(prompts).exp(), likelihood, atol=1e-12, rtol=1e-10)
    last = ContextSpace(vocab, goal.order).suffix(prompts)
    worth = goal(tails.expand(len(prompts), -1, -1), last[:, None].expand(-1, len(tails))).numpy()
    means = np.zeros_like(likelihood)
    for row, prompt in enumerate(prompts.tolist()):
        for at, one in enumerate(plain):
            if likelihood[row, at] > 0:
                chances = [one.belief(prompt + tail).sum() for tail in tails.tolist()]
                means[row, at] = np.dot(chances, worth[row]) / likelihood[row, at]
    found = latents.mean_utility(goal, prompts, horizon).numpy()
    possible = likelihood > 0
    assert np.allclose(found[possible], means[possible], atol=1e-10)
    evidence = (likelihood * weights).sum(1)
    assert np.allclose(prior.evidence(prompts).exp(), evidence, atol=1e-12, rtol=1e-10)
    some = evidence > 0
    posterior = (likelihood * weights)[some] / evidence[some, None]
    joint = prior.read(prompts[torch.tensor(some)]).log_joint
    assert np.allclose(joint.softmax(-1), posterior, atol=1e-10)
    expected = (posterior * means[some]).sum(1)
    asked = prompts[torch.tensor(some)]
    value = posteer.expected_utility(ExactModel(prior), goal, asked, horizon)
    assert np.allclose(value.expected_utility, expected, atol=1e-10)


@given(vocab=st.sampled_from([2, 3]), seed=st.integers(0, 10**6))
@settings(max_examples=6)
def test_beliefs_are_laws_of_the_last_state(vocab, seed):
    prior, plain, _ = problem("hmm", vocab, seed, 0.0)
    prompts = all_sequences(vocab, 3)
    belief = prior.latents.read(prompts).belief.numpy()
    for row, prompt in enumerate(prompts.tolist()):
        for at, one in enumerate(plain):
            expected = one.belief(prompt)
            n = len(expected)
            assert np.allclose(belief[row, at, :n], expected / expected.sum(), atol=1e-10)
            assert not belief[row, at, n:].any(), "states that are added are never entered"


@pytest.mark.parametrize("text", ["urn", "markov(vocab=3,order=1)", "mess3(x=[0.1,0.2],a=0.6)"])
def test_draws_are_draws_of_the_prior(text):
    """J of a prompt under 4,000 draws is that of the prior within five standard errors of plain
    weights: a false alarm in 2e-6 of cases."""
    vocab = open_process(text).family.vocab_size
    goal = open_utility("dyck", ContextSpace(vocab, 0))
    prompt = all_sequences(vocab, 3)[[5]]
    many = open_process(f"draws({text},n=4000,seed=5)")
    latents = many.as_atoms().latents
    chance = latents.log_likelihood(prompt)[0].exp()
    means = latents.mean_utility(goal, prompt, 3)[0]
    value = float((chance * means).sum() / chance.sum())
    error = float(((chance * (means - value)) ** 2).sum().sqrt() / chance.sum())
    exact = float(posteer.expected_utility(f"exact:{text}", goal, prompt, 3).expected_utility[0])
    found = posteer.expected_utility(ExactModel(many), goal, prompt, 3)
    assert abs(float(found.expected_utility[0]) - value) < 1e-10, "of the draws it is exact"
    assert abs(value - exact) <= 5 * error + 1e-12


def test_chains_are_counted_and_say_their_text():
    prior = open_process("chains(n=2000,vocab=10)")
    assert prior.spec == "chains(n=2000,vocab=10,order=1,concentration=1.0,seed=0)"
    assert prior.kernels.shape == (2000, 10, 10)
    assert torch.equal(open_process(prior.spec).kernels, prior.kernels)
    other = open_process("chains(n=2000,vocab=10,seed=1)")
    assert not torch.equal(other.kernels, prior.kernels)
    model = open_model("exact:chains(n=2000,vocab=10)")
    assert model.batch_limit(8) * 2000 * 10 <= 2**24, "so many histories as memory holds"
    rows = prior.kernels.flatten(0, 1)  # uniform on the simplex: variance 9 / (100 * 11)
    assert abs(float(rows.var()) - 9 / 1100) < 5 * 9 / 1100 * (8 / len(rows)) ** 0.5


def test_random_machines_have_rows_of_the_dirichlet_asked_for():
    prior = open_process("random-hmm(states=2,vocab=3,n=3000,concentration=2,seed=4)")
    emits = prior.latents.emission.flatten(0, 1)
    variance = (1 / 3) * (2 / 3) / 7
    assert torch.allclose(emits.mean(0), torch.full((3,), 1 / 3).double(), atol=0.01)
    assert abs(float(emits[:, 0].var()) - variance) < 5 * variance * (2 / len(emits)) ** 0.5


def test_ginc_is_as_it_is_published():
    """States are (entity, property): tokens from the memory matrix, moves independent, entities
    alike in all concepts and mostly staying, properties not."""
    prior = open_process("ginc")
    operators = prior.atoms.operators.numpy()
    assert operators.shape == (5, 25, 20, 25)
    memory = memory_matrix(0, 20, 5, 5)
    assert (memory[:, 0] == 0).all() and memory[:, 1:].min() >= 1
    emitted = operators.sum(-1)
    assert (emitted.argmax(-1) == memory.ravel()).all() and np.allclose(emitted.max(-1), 1)
    moves = operators.sum(2).reshape(5, 5, 5, 5, 5)
    of_entities, of_properties = moves.sum(4).mean(2), moves.sum(3).mean(1)
    assert np.allclose(of_entities, of_entities[:1]), "one matrix for all concepts"
    assert (of_entities[0].diagonal() >= 0.9 - 1e-12).all()
    assert not np.allclose(of_properties[0], of_properties[1])
    independent = np.einsum("cij,ckl->cikjl", of_entities, of_properties)
    assert np.allclose(moves, independent)
    for matrix in of_properties:  # a mixture of permutations: columns add up to one as rows do
        assert np.allclose(matrix.sum(0), 1) and np.allclose(matrix.sum(1), 1)
    starts = prior.atoms.initial.numpy()
    spread = starts.max(1) / starts.min(1)
    assert (spread <= np.exp(1 / 10) + 1e-12).all(), "softmax of (u - 0.5) / 10"


def test_weights_of_permutations_are_a_softmax():
    """At a low temperature one permutation is left."""
    mixed = of_permutations(numpy_stream(0, "test"), 6, 1e-3)
    assert np.allclose(np.sort(mixed.max(1))[0], 1, atol=1e-3)


def test_the_size_of_the_paper_opens():
    model = open_model("exact:ginc(vocab=150,entities=10,properties=10)")
    law = model.log_predictive(torch.tensor([[0, 3, 0]]))
    assert torch.allclose(law.exp().sum(-1), torch.ones(1, 4).double())
