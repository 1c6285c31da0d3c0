"""Branch and bound against enumeration: bounds hold for all prompts, proofs are of the best."""

import pytest
import torch
from posing import posed

from posteer.api import elicit
from posteer.core.errors import InputError
from posteer.families.finite_state.suffixes import suffixes_of
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.answers import StopReason
from posteer.methods.bounds.method import BoundedSearch
from posteer.methods.bounds.odds import Odds, whole_values
from posteer.methods.bounds.search import BranchAndBound, Limits
from posteer.methods.climbing.prompts import PromptSearchSettings
from posteer.tokens.conditions import parse_allowed
from posteer.tokens.contexts import ContextSpace, all_sequences

PRIORS = [
    "mess3(x=0.15,a=0.6)",
    "mess3(x=[0.05,0.2,0.3],a=[0.6,0.85,0.4],weights=[0.2,0.5,0.3])",
    "rrxor",
    "sticky(states=3,vocab=2,stay=0.8,sharp=0.9)",
    "atoms(rrxor,coins(0.2,0.9),weights=[0.3,0.7])",
    "mixture([0.3,0.7],[[0.2,0.8],[0.5,0.5]],[[0.9,0.1],[0.4,0.6],[0.1,0.9],[0.7,0.3]])",
    "mixture([[0.9,0.1],[0.2,0.8]],[[0,1],[1,0]],[[0.5,0.5],[0.5,0.5]])",
]
UTILITIES = ["dyck", "frequency(0.7)", "reverse-xent([[0.2,0.8],[0.7,0.3]])"]


def values(prior, utility, prompts, horizon=4):
    """J of every prompt by the prior's own predictions: all continuations, one after another."""
    vocab = prior.family.vocab_size
    continuations = all_sequences(vocab, horizon)
    whole = torch.cat(
        [prompts.repeat_interleave(len(continuations), 0), continuations.repeat(len(prompts), 1)], 1
    )
    logs = prior.evidence(whole).view(len(prompts), -1) - prior.evidence(prompts)[:, None]
    last = ContextSpace(vocab, utility.order).suffix(prompts)
    gains = utility(
        continuations.repeat(len(prompts), 1), last.repeat_interleave(len(continuations))
    )
    value = (logs.exp() * gains.view(len(prompts), -1)).sum(-1)
    return torch.where(prior.evidence(prompts).isneginf(), -torch.inf, value)


def opened(text, goal):
    prior = open_process(text)
    vocab = prior.family.vocab_size
    if vocab != 2 and "xent" in goal:
        pytest.skip("a target over two tokens")
    return prior, open_utility(goal, ContextSpace(vocab, 1))


@pytest.mark.parametrize("goal", UTILITIES)
@pytest.mark.parametrize("text", PRIORS)
@pytest.mark.parametrize("read", [(), (0, 1, 1)])
def test_bounds_hold_for_every_prompt_and_are_met_by_whole_ones(text, goal, read):
    prior, utility = opened(text, goal)
    prior = prior.after(read) if read else prior
    atoms, length = prior.as_atoms(), 6
    prompts = all_sequences(atoms.family.vocab_size, length)
    exact = values(prior, utility, prompts)
    suffixes = suffixes_of(atoms.atoms, atoms.context, length, utility, 4)
    odds = Odds(suffixes, atoms.log_weights, length)
    shares = torch.arange(1.0, len(atoms.atoms) + 1).double()
    odds.against(shares / shares.sum())
    nodes, depth = suffixes.roots(), suffixes.memory
    tails = all_sequences(atoms.family.vocab_size, depth)
    checked = 0
    while depth < length:
        least = float(exact[exact > -torch.inf].min()) - 1
        most = torch.full((len(nodes),), 10.0).double()
        bound = odds.bounds(nodes, length - depth, least, most)
        for tail, limit in zip(tails, bound.tolist(), strict=True):
            own = exact[(prompts[:, length - depth :] == tail).all(-1)]
            assert float(own.max()) <= limit + 1e-9
            checked += 1
        grown = [suffixes.before(nodes, token) for token in range(atoms.family.vocab_size)]
        nodes = type(nodes)(
            *(torch.cat([getattr(one, name) for one in grown]) for name in vars(nodes))
        )
        tails = torch.cat(
            [
                torch.cat([torch.full((len(tails), 1), token), tails], 1)
                for token in range(atoms.family.vocab_size)
            ]
        )
        depth += 1
    found = whole_values(suffixes, nodes, atoms.log_weights)
    assert checked > 0 and torch.equal(tails, prompts)
    possible = exact > -torch.inf
    assert torch.allclose(found[possible], exact[possible], atol=1e-10)


def roots_hold(prior, utility, length, prompts, shares=None):
    """No prompt exceeds the bound of the context that it ends in; the atoms, and J of prompts."""
    atoms, vocab = prior.as_atoms(), prior.family.vocab_size
    belief = atoms.read(prompts)
    last = ContextSpace(vocab, utility.order).suffix(prompts)
    means = atoms.latents.mean_after(utility, 4)(belief.reading, last)
    exact = (belief.log_joint.softmax(-1) * means).sum(-1)
    exact = exact.masked_fill(belief.log_joint.isneginf().all(-1), -torch.inf)
    suffixes = suffixes_of(atoms.atoms, atoms.context, length, utility, 4)
    odds = Odds(suffixes, atoms.log_weights, length)
    if shares is not None:
        odds.against(shares)
    roots, memory = suffixes.roots(), suffixes.memory
    most = torch.full((len(roots),), 10.0).double()
    bounds = odds.bounds(roots, length - memory, -10.0, most)
    own = bounds[ContextSpace(vocab, memory).suffix(prompts)]
    assert bool((exact <= own + 1e-9).all())
    return atoms, exact


@pytest.mark.parametrize("goal", UTILITIES)
@pytest.mark.parametrize(
    "text",
    [
        "mixture([[0.9,0.1],[0.2,0.8]],[[0,1],[1,0]],[[0,1],[0.5,0.5]])",
        "mixture([[0.9,0.1],[0.2,0.8]],[[0,1],[0.9,0.1]],[[0,1],[0.5,0.5]],[[1,0],[0.5,0.5]])",
        "atoms(rrxor,mixture([[0,1],[1,0]]),coins(0.3))",
    ],
)
def test_latents_that_can_be_ruled_out_may_have_any_share(text, goal):
    prior, utility = opened(text, goal)
    n = len(prior.as_atoms().atoms)
    for held in range(1, 2**n):
        shares = torch.tensor([held >> at & 1 for at in range(n)]).double()
        roots_hold(prior, utility, 6, all_sequences(2, 6), shares / shares.sum())


@pytest.mark.parametrize("goal", UTILITIES)
def test_a_latent_that_is_hopeless_after_a_long_context_takes_nothing_from_bounds(goal):
    prior, utility = opened("mixture([0.3,0.7],[0.7,0.3],[0.999,0.001])", goal)
    roots_hold(prior.after((0, 1) * 100), utility, 6, all_sequences(2, 6))


@pytest.mark.parametrize("goal", UTILITIES)
def test_what_all_but_rules_out_others_may_be_ruled_out_itself(goal):
    """After 1200 tokens in turn others have weights of e**-800, until a token comes twice."""
    prior, utility = opened("mixture([[0,1],[1,0]],[0.5,0.5],[0.45,0.55])", goal)
    prior = prior.after((0, 1) * 600)
    prompts = all_sequences(2, 5)
    atoms, exact = roots_hold(prior, utility, 5, prompts)
    suffixes = suffixes_of(atoms.atoms, atoms.context, 5, utility, 4)
    nodes = suffixes.roots()
    rest = prompts[:, : 5 - suffixes.memory]
    nodes = nodes.select(ContextSpace(2, suffixes.memory).suffix(prompts))
    for place in reversed(range(rest.shape[1])):
        grown = [suffixes.before(nodes, token) for token in range(2)]
        pick = rest[:, place] * len(nodes) + torch.arange(len(nodes))
        joined = (torch.cat([getattr(one, name) for one in grown]) for name in vars(nodes))
        nodes = type(nodes)(*joined).select(pick)
    assert torch.allclose(whole_values(suffixes, nodes, atoms.log_weights), exact, atol=1e-9)


@pytest.mark.parametrize("goal", UTILITIES)
def test_states_that_fade_away_take_nothing_from_bounds(goal):
    """The first state is left for good: after 90 tokens it is likely to 1e-180 at most."""
    first = "[[0,0.495,0],[0.01,0,0.495]]"
    rest = "[[0,0.8,0.1],[0,0.05,0.05]],[[0,0.05,0.05],[0,0.1,0.8]]"
    prior, utility = opened(f"hmm([{first},{rest}],start=[1,0,0])", goal)
    generator = torch.Generator().manual_seed(0)
    roots_hold(prior, utility, 90, torch.randint(0, 2, (200, 90), generator=generator))


def test_prompts_that_end_against_their_latent_keep_their_value():
    """160 zeros, then 120 ones under which the latent of zeros is 1e-360 as likely as the other."""
    prior, utility = opened(
        "mixture([0.999,0.001],[[0.001,0.999],[0.001,0.999]])", "frequency(0.9)"
    )
    tokens = [0] * 160 + [1] * 120
    prompt = torch.tensor([tokens])
    pinned = parse_allowed(";".join(f"position({at})={one}" for at, one in enumerate(tokens, 1)), 2)
    atoms, exact = roots_hold(prior, utility, len(tokens), prompt)
    suffixes = suffixes_of(atoms.atoms, (), len(tokens), utility, 4)
    limits = Limits(0.0, 10**6, 1e9)
    search = BranchAndBound(suffixes, atoms.log_weights, len(tokens), pinned, limits)
    found = search.run(prompt[0], float(exact))
    assert found.value == float(exact) <= found.bound
    assert found.stop_reason is StopReason.NODE_LIMIT


def test_odds_that_do_not_fit_are_left_out(monkeypatch):
    from posteer.methods.bounds import odds

    monkeypatch.setattr(odds, "MOST_NUMBERS", 8)
    prior, utility = opened(PRIORS[5], "dyck")
    roots_hold(prior, utility, 6, all_sequences(2, 6), torch.tensor([0.5, 0.5, 0.0]).double())
    atoms = prior.as_atoms()
    bare = Odds(suffixes_of(atoms.atoms, (), 6, utility, 4), atoms.log_weights, 6)
    bare.against(torch.tensor([0.5, 0.5, 0.0]).double())
    assert bare.kept is None and bare.mixed == []


def proven(text, goal, length, **more):
    """The answer of a search that may not try everything."""
    method = BoundedSearch(search=PromptSearchSettings(limit=0, width=2, restarts=1), seconds=1e9)
    return elicit(f"exact:{text}", goal, length=length, method=method, **more)


@pytest.mark.parametrize("goal", UTILITIES)
@pytest.mark.parametrize("text", PRIORS)
def test_what_is_proven_is_the_best_of_all(text, goal):
    prior, utility = opened(text, goal)
    prompts = all_sequences(prior.family.vocab_size, 7)
    exact = values(prior, utility, prompts)
    found = proven(text, goal, 7)
    best = float(exact.max())
    assert found.expected_utility == pytest.approx(best, abs=1e-9)
    assert found.surrogate == pytest.approx(best, abs=1e-9)
    assert best - 1e-9 <= found.proof.bound <= best + 2e-9
    assert found.stop_reason is StopReason.PROVEN and found.surrogate_standard_error == 0


def test_only_allowed_prompts_are_answered_and_bounded():
    text = PRIORS[1]
    prior, utility = opened(text, "dyck")
    prompts = all_sequences(3, 7)
    kept = (prompts[:, -1] == 2) & ((prompts == 0).sum(1) <= 2)
    best = float(values(prior, utility, prompts[kept]).max())
    found = proven(text, "dyck", 7, allowed="last=2;count(0)<=2")
    assert found.expected_utility == pytest.approx(best, abs=1e-9)
    assert found.proof.bound >= best - 1e-9
    assert found.prompt[-1] == 2 and found.prompt.count(0) <= 2


def test_a_search_that_stops_early_says_how_far_it_is():
    """The bound of few nodes holds, is no better than that of more, and is the record's own."""
    mixture = "mess3(x=[0.05,0.1,0.2],a=[0.6,0.85,0.6])"
    few = proven(mixture, "dyck", 10, nodes=0)
    more = proven(mixture, "dyck", 10, nodes=4000)
    assert few.stop_reason is StopReason.NODE_LIMIT and few.proof.gap > 0
    assert few.bound == few.proof.bound >= more.proof.bound >= more.expected_utility
    assert proven(mixture, "dyck", 10, gap=1.0).stop_reason is StopReason.PROVEN


def test_long_prompts_of_one_machine_are_proven_at_once():
    found = proven("mess3(x=0.15,a=0.6)", "dyck", 40)
    assert found.proof.gap <= 1e-9 and found.cost["forward_tokens"] == 0


def test_interrupting_keeps_the_best_so_far(monkeypatch):
    """Ctrl-C while nodes are split: the answer is there, with the bound it had."""

    def stop(*given):
        raise KeyboardInterrupt

    from posteer.methods.bounds import search

    monkeypatch.setattr(search.BranchAndBound, "split", stop)
    found = proven("mess3(x=[0.05,0.1,0.2],a=[0.6,0.85,0.6])", "dyck", 10)
    assert found.stop_reason is StopReason.INTERRUPTED
    assert found.proof.bound >= found.expected_utility > 0


def test_limits_are_for_methods_that_prove():
    with pytest.raises(InputError, match="proves no bound"):
        elicit("exact:mess3", "dyck", length=6, method="coordinate", gap=0.1)
    for wrong in ({"gap": -1.0}, {"gap": "small"}, {"nodes": -1}, {"nodes": 2.5}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            elicit("exact:mess3", "dyck", length=6, **wrong)
    with pytest.raises(InputError, match="finitely many"):
        elicit("exact:urn", "dyck", length=6, method="bounds")


def test_auto_keeps_to_limits_and_refuses_them_where_nothing_is_proven():
    mixture = "exact:mess3(x=[0.05,0.1,0.2],a=[0.6,0.85,0.6])"
    found = elicit(mixture, "dyck", length=16, nodes=0)
    assert found.choice.method == "bounds" and found.stop_reason is StopReason.NODE_LIMIT
    assert elicit(mixture, "dyck", length=16, gap=1.0).stop_reason is StopReason.PROVEN
    forward = "forward-xent([[0.2,0.8],[0.7,0.3]])"
    for model, goal in (("exact:context-tree", "dyck"), ("exact:rrxor", forward)):
        with pytest.raises(InputError, match="gap and nodes are limits of a proof"):
            elicit(model, goal, length=6, nodes=10)


def test_a_problem_of_its_own_is_posed():
    assert posed("exact:mess3", "dyck", length=6, nodes=3).request.nodes == 3


def test_long_horizons_are_exact_where_all_latents_are_known():
    """2**40 continuations: the induction over states against the law of a coin."""
    found = elicit("exact:coins(0.3)", "frequency(0.3,token=1)", length=4, horizon=40)
    assert found.standard_error == 0 and found.judged.exact
    ones = torch.distributions.Binomial(40, torch.tensor(0.3).double())
    counts = torch.arange(41).double()
    worth = -((counts / 40 - 0.3) ** 2)
    expected = float((ones.log_prob(counts).exp() * worth).sum())
    assert found.expected_utility == pytest.approx(expected, abs=1e-9)
