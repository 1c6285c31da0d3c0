"""Context trees against all trees of a depth listed one by one, and against Markov kernels."""

import math
from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import posteer
from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream
from posteer.families.context_trees.closure import Trees, closed
from posteer.families.markov.family import MarkovLatents
from posteer.families.registry import open_process
from posteer.goals.user import CallableUtility
from posteer.goals.utilities import open_utility
from posteer.models import open_model
from posteer.tokens.contexts import ContextSpace, all_sequences


def named(vocab, depth, split, concentration):
    """The prior by its name."""
    text = f"vocab={vocab},depth={depth},split={split},concentration={concentration}"
    return open_process(f"context-tree({text})")


def read_by(prior, prompts):
    """The belief after whole prompts."""
    belief = prior.start(len(prompts))
    for tokens in prompts.unbind(1):
        belief = prior.observe(belief, tokens)
    return belief


# --- the oracle: plain Python over every tree -----------------------------------------------------


def all_trees(vocab, depth, split, node=()):
    """(leaves, prior probability) of every tree below a node; contexts have the oldest first."""
    if len(node) == depth:
        yield (node,), 1.0
        return
    yield (node,), 1 - split
    children = [list(all_trees(vocab, depth, split, (v, *node))) for v in range(vocab)]
    for parts in product(*children):
        yield sum((leaves for leaves, _ in parts), ()), split * math.prod(p for _, p in parts)


def leaf_of(leaves, before):
    return next(leaf for leaf in leaves if leaf == before[len(before) - len(leaf) :])


def marginal(counts, vocab, concentration):
    """Of ordered tokens with these counts under a Dirichlet law, by the chain rule of its urn."""
    value, seen = 1.0, 0
    for times in counts.values():
        for already in range(times):
            value *= (concentration + already) / (vocab * concentration + seen)
            seen += 1
    return value


def joint(vocab, depth, split, concentration, tokens):
    """(leaves, prior probability x probability of the tokens past the first `depth`)."""
    for leaves, probability in all_trees(vocab, depth, split):
        counts = {}
        for at in range(depth, len(tokens)):
            leaf = leaf_of(leaves, tuple(tokens[:at]))
            counts.setdefault(leaf, Counter())[tokens[at]] += 1
        for own in counts.values():
            probability *= marginal(own, vocab, concentration)
        yield leaves, probability


@st.composite
def problems(draw):
    vocab, depth = draw(st.sampled_from([(2, 0), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2)]))
    split = draw(st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.05, 0.95)))
    concentration = draw(st.sampled_from([0.1, 0.5, 1.0, 3.7]))
    tokens = draw(st.lists(st.integers(0, vocab - 1), max_size=11))
    return (vocab, depth, split, concentration), tokens


@given(problems())
@settings(max_examples=60)
def test_evidence_and_predictions_are_sums_over_all_trees(problem):
    """1e-10: sums of at most 26 products of as many factors in double precision."""
    law, tokens = problem
    prior = named(*law)
    evidence = sum(p for _, p in joint(*law, tokens))
    prompts = torch.tensor([tokens], dtype=torch.long)
    assert float(prior.evidence(prompts).exp()) == pytest.approx(evidence, rel=1e-10)
    if len(tokens) >= law[1]:
        longer = [sum(p for _, p in joint(*law, [*tokens, v])) for v in range(law[0])]
        expected = [value / evidence for value in longer]
        found = read_by(prior, prompts).log_probs.exp()[0].tolist()
        assert found == pytest.approx(expected, rel=1e-10)


@given(problems())
@settings(max_examples=60)
def test_the_posterior_tree_is_a_sum_over_all_trees(problem):
    law, tokens = problem
    prior, depth = named(*law), law[1]
    found = prior.posterior_tree(tokens)
    weighed = list(joint(*law, tokens))
    evidence = sum(p for _, p in weighed)
    assert found.log_evidence == pytest.approx(math.log(evidence), rel=1e-10, abs=1e-12)
    met = {
        tuple(tokens[at - d : at]) for at in range(depth, len(tokens)) for d in range(depth + 1)
    } | {()}
    assert set(found.nodes) == met
    for context, node in found.nodes.items():
        leaf = sum(p for leaves, p in weighed if context in leaves) / evidence
        in_tree = (
            leaf
            + sum(
                p
                for leaves, p in weighed
                if any(
                    len(one) > len(context) and one[len(one) - len(context) :] == context
                    for one in leaves
                )
            )
            / evidence
        )
        assert node.leaf == pytest.approx(leaf, abs=1e-10)
        assert node.in_tree == pytest.approx(in_tree, abs=1e-10)
        assert node.split == pytest.approx(in_tree - leaf, abs=1e-10)
    best = max(p for _, p in weighed)
    assert found.log_best == pytest.approx(math.log(best / evidence), rel=1e-10, abs=1e-10)
    winners = [set(leaves) & met for leaves, p in weighed if p >= best * (1 - 1e-9)]
    assert set(found.best_leaves) in winners


def test_leaf_laws_are_means_of_what_followed():
    tree = named(2, 1, 0.5, 0.5).posterior_tree([0, 1, 0, 1, 1, 0])
    assert tree.nodes[(0,)].law.tolist() == pytest.approx([0.5 / 3, 2.5 / 3])
    assert tree.nodes[(1,)].counts.tolist() == [2, 1]


# --- special cases that other priors know ---------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "markov"),
    [
        ("vocab=2,depth=3,split=1", "vocab=2,order=3"),
        ("vocab=3,depth=2,split=1,concentration=1.5", "vocab=3,order=2,concentration=1.5"),
        ("vocab=3,depth=0", "vocab=3,order=0"),
        ("vocab=2,depth=0,split=0", "vocab=2,order=0"),
    ],
)
def test_a_full_tree_is_a_markov_kernel(tree, markov):
    one, other = open_process(f"context-tree({tree})"), open_process(f"markov({markov})")
    prompts = all_sequences(one.family.vocab_size, 7)[::3]
    assert torch.allclose(one.evidence(prompts), other.evidence(prompts), atol=1e-12)
    for at in range(8):
        some = prompts[:, :at]
        laws = read_by(one, some).log_probs, read_by(other, some).log_probs
        assert torch.allclose(*laws, atol=1e-12)


def test_a_tree_that_never_splits_is_a_coin_behind_its_first_tokens():
    prompts = all_sequences(2, 8)
    coin = open_process("beta-bernoulli").evidence(prompts[:, 2:])
    found = open_process("context-tree(depth=2,split=0)").evidence(prompts)
    assert torch.allclose(found, coin, atol=1e-12)


# --- beliefs ----------------------------------------------------------------------------------


def test_beliefs_fork_and_share_nothing():
    prior = named(3, 2, 0.4, 0.5)
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(3, (4, 9), generator=generator)
    belief = read_by(prior, prompts)
    before = belief.log_probs.clone()
    rows = torch.tensor([2, 2, 0])
    forked = prior.observe(belief.select(rows), torch.tensor([0, 1, 2]))
    expected = torch.cat([prompts[rows], torch.tensor([[0], [1], [2]])], 1)
    afresh = read_by(prior, expected).log_probs
    assert torch.allclose(forked.log_probs, afresh, rtol=0, atol=1e-12)
    assert torch.equal(belief.log_probs, before) and belief.tokens.shape == (4, 9)
    forked.tokens.fill_(0)
    forked.log_odds.fill_(0)
    assert torch.equal(read_by(prior, prompts).log_probs, belief.select(torch.arange(4)).log_probs)


def test_large_vocabularies_need_no_table_of_contexts():
    """27**4 numbers would be 531,441 for each history; here they grow with what was read."""
    prior = named(27, 3, 0.5, 0.5)
    generator = torch.Generator().manual_seed(2)
    few = torch.randint(27, (40, 1), generator=generator)
    prompts = (few + torch.randint(3, (40, 100), generator=generator).cumsum(1)) % 27
    batch = prompts.repeat(25, 1)
    belief, total = prior.start(len(batch)), torch.zeros(len(batch)).double()
    for place, tokens in enumerate(batch.unbind(1)):
        if place >= 3:
            total += belief.log_probs.gather(1, tokens[:, None])[:, 0]
        belief = prior.observe(belief, tokens)
    assert torch.allclose(prior.evidence(batch), total, rtol=1e-10)
    assert belief.n_numbers == len(batch) * (100 + 3 * 98)
    assert prior.width(100) * len(batch) >= belief.n_numbers
    assert bool((total > -97 * math.log(27)).all()), "what has a pattern is better than uniform"


def test_an_exact_model_reads_as_many_histories_as_its_prior_has_room_for():
    model = open_model("exact:context-tree(vocab=27,depth=3)")
    assert model.batch_limit(100) > 10_000 > model.batch_limit(10_000) >= 1
    assert open_model("exact:markov(vocab=4,order=2)").batch_limit(100) == 2**24 // 4**3


# --- latents --------------------------------------------------------------------------------------


def as_kernels(latents):
    """The same latents as tables over all contexts."""
    family = latents.family
    space = ContextSpace(family.vocab_size, family.depth)
    rows = latents.leaves(torch.arange(space.n_contexts))
    return MarkovLatents(space, latents.laws[rows].transpose(0, 1).contiguous())


@pytest.mark.parametrize(("vocab", "depth", "split"), [(2, 5, 0.6), (3, 3, 0.4), (4, 1, 0.5)])
@pytest.mark.parametrize("text", ["dyck", "frequency(0.3)", "reverse-xent(dir-4)"])
def test_latents_are_kernels_with_equal_rows(vocab, depth, split, text):
    latents = named(vocab, depth, split, 0.5).sample(12, numpy_stream(0, "trees"))
    kernels = as_kernels(latents)
    generator = torch.Generator().manual_seed(3)
    prompts = torch.randint(vocab, (30, depth + 6), generator=generator)
    expected = kernels.log_likelihood(prompts)
    assert torch.allclose(latents.log_likelihood(prompts), expected, rtol=1e-10)
    reading = latents.start(len(prompts))
    for tokens in prompts.unbind(1):
        reading = latents.observe(reading, tokens)
    assert torch.allclose(reading.log_likelihood, expected, rtol=1e-10)
    utility = open_utility(text, ContextSpace(vocab, 0))
    means = kernels.mean_utility(utility, prompts, 5)
    assert torch.allclose(latents.mean_utility(utility, prompts, 5), means, atol=1e-10)
    rows = torch.tensor([7, 0, 7])
    some = latents.pick(rows)
    assert torch.allclose(some.log_likelihood(prompts), expected[:, rows], rtol=1e-10)
    assert torch.allclose(some.mean_utility(utility, prompts, 5), means[:, rows], atol=1e-10)


def test_utilities_without_an_automaton_are_enumerated():
    latents = named(3, 2, 0.4, 0.5).sample(6, numpy_stream(5, "trees"))
    utility = CallableUtility(lambda tokens: float(tokens[0] == tokens[-1]), vocab_size=3)
    prompts = all_sequences(3, 4)
    expected = as_kernels(latents).mean_utility(utility, prompts, 4)
    assert torch.allclose(latents.mean_utility(utility, prompts, 4), expected, atol=1e-12)


def test_closed_trees_stay_small():
    """One long branch of a binary tree of depth 12: its splits and their shortenings, not 4,096."""
    prior = named(2, 12, 0.02, 0.5).after((0,) * 60 + (1, 0, 1, 0) * 5 + (0,) * 60)
    latents = prior.sample(20, numpy_stream(1, "trees"))
    trees = Trees(latents.family, latents.roots, latents.below, latents.laws)
    _, machine = closed(trees)
    n_states = machine.family.n_states
    assert len(latents.laws) <= n_states <= 12 * len(latents.laws)
    step = machine.next_state
    assert int(step.min()) >= 0 and int(step.max()) < n_states


def test_latents_of_a_posterior_go_on_where_it_ends():
    """Five standard errors of 20,000 draws, 18 comparisons: a false alarm in 1e-5."""
    prior = named(3, 2, 0.4, 0.5).after((0, 1, 2, 0, 1, 2, 0, 1, 1))
    latents = prior.sample(20_000, numpy_stream(2, "trees"))
    prompts = all_sequences(3, 2)
    chance = latents.log_likelihood(prompts).exp()
    error = chance.std(1) / math.sqrt(len(latents))
    assert bool(((chance.mean(1) - prior.evidence(prompts).exp()).abs() <= 5 * error).all())
    generator = torch.Generator().manual_seed(4)
    rolled = latents.roll_out(2, generator)
    found = torch.bincount(rolled[:, 0] * 3 + rolled[:, 1], minlength=9) / len(latents)
    law = prior.evidence(prompts).exp()
    assert bool(((found - law).abs() <= 5 * (law * (1 - law) / len(latents)).sqrt()).all())


def test_the_first_tokens_of_a_rollout_are_uniform():
    """Five standard errors of 20,000 draws, 27 comparisons: a false alarm in 2e-5."""
    latents = named(3, 2, 0.4, 0.5).sample(20_000, numpy_stream(3, "trees"))
    rolled = latents.roll_out(3, torch.Generator().manual_seed(5))
    prompts = all_sequences(3, 3)
    law = named(3, 2, 0.4, 0.5).evidence(prompts).exp() / 9
    codes = rolled[:, 0] * 9 + rolled[:, 1] * 3 + rolled[:, 2]
    found = torch.bincount(codes, minlength=27) / len(latents)
    assert bool(((found - law).abs() <= 5 * (law * (1 - law) / len(latents)).sqrt()).all())


def test_trees_over_a_large_vocabulary_hold_their_leaves_alone():
    prior = named(27, 3, 0.05, 0.5)
    latents = prior.sample(50, numpy_stream(4, "trees"))
    assert len(latents.laws) < 50 * 27**2
    prompts = torch.randint(27, (20, 30), generator=torch.Generator().manual_seed(6))
    utility = open_utility("frequency(0.3)", ContextSpace(27, 0))
    means = latents.mean_utility(utility, prompts, 6)
    assert means.shape == latents.log_likelihood(prompts).shape == (20, 50)
    assert bool(means.isfinite().all())


# --- doors ----------------------------------------------------------------------------------------


def test_prompts_for_context_trees_are_found_and_valued():
    model = "exact:context-tree(vocab=2,depth=2,split=0.3)"
    found = posteer.elicit(model, "dyck", length=5, horizon=4, method="exhaustive")
    prior = open_process("context-tree(vocab=2,depth=2,split=0.3)")
    prompt = torch.tensor([list(found.prompt)])
    tails = all_sequences(2, 4)
    logs = prior.evidence(torch.cat([prompt.expand(len(tails), -1), tails], 1))
    utility = open_utility("dyck", ContextSpace(2, 0))
    value = utility(tails, torch.zeros(len(tails), dtype=torch.long))
    expected = float(((logs - prior.evidence(prompt)).exp() * value).sum())
    judged = posteer.evaluate(model, "dyck", found.prompt, horizon=4)
    assert float(judged.expected_utility) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("settings_of_it", "complaint"),
    [
        ("vocab=1", "vocabulary of 1: expected 2 to"),
        ("vocab=1000000", "vocabulary of 1000000: expected 2 to"),
        ("vocab=27,depth=8", "depth 8 over 27 tokens: expected at most 7"),
        ("depth=-1", "depth -1: expected at least 0"),
        ("depth=2.5", "'2.5' is not a whole number"),
        ("split=1.5", "split 1.5: expected 0 to 1"),
        ("split=-0.1", "split -0.1: expected 0 to 1"),
        ("split=often", "'often' is not a number"),
        ("concentration=0", "concentration 0: expected 1e-12 to 1e"),
        ("deepness=3", "unknown setting 'deepness'"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings_of_it, complaint):
    with pytest.raises(InputError) as refusal:
        open_process(f"context-tree({settings_of_it})")
    assert complaint in str(refusal.value) and "\n" not in str(refusal.value)


def test_more_trees_than_fit_are_refused_before_they_are_drawn():
    with pytest.raises(InputError, match="do not fit: expected at most 4971026 nodes in all"):
        open_process("context-tree(vocab=27,depth=7,split=1)").sample(2, numpy_stream(0, "trees"))


def test_tokens_of_another_vocabulary_have_no_posterior_tree():
    with pytest.raises(InputError, match="tokens: expected 0 to 1"):
        open_process("context-tree").posterior_tree([0, 2])
