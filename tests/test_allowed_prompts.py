"""Allowed prompts in every method, against a plain filter over all prompts."""

from functools import cache

import pytest
import torch
from examples import bank_estimate
from oracles import CONDITIONS, says
from posing import posed

from posteer.api.eliciting import elicit
from posteer.core.errors import InputError
from posteer.evaluation import expected_utility, landscape
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.goals.utilities import open_goal
from posteer.methods.direct.coordinate import exchanges
from posteer.methods.registry import open_method
from posteer.models import FunctionModel, Metered, condition, open_model
from posteer.tokens import drawing
from posteer.tokens.conditions import AllowedPrompts, open_allowed, parse_allowed
from posteer.tokens.contexts import ContextSpace, all_sequences
from posteer.tokens.drawing import draw_allowed

# model, utility, length, conditions
CASES = [
    ("exact:urn", "dyck", 6, "first=1;last=1;ban=00"),
    ("exact:urn", "dyck", 6, "count(1)=2"),
    ("exact:urn", "reverse-xent(dir-2)", 6, "ban=0101,1010;position(2)=1"),
    ("exact:beta-bernoulli", "reverse-xent(dir-4)", 6, "first=01;count(0)>=3"),
    ("exact:markov(vocab=3,order=1)", "dyck", 5, "ban=01|10;last=2"),
    ("exact:markov(vocab=2,order=2)", "frequency(0.3)", 6, "ban=111;first=001"),
]
CONTEXTS = ["", "1", "10011"]


def brute_force(model, utility, length, text, context, horizon=4):
    opened = condition(open_model(model), tuple(map(int, context)))
    prompts = all_sequences(opened.vocab_size, length)
    prompts = torch.tensor([prompt for prompt in prompts.tolist() if says(text, prompt)])
    goal = open_goal(utility, opened)
    return prompts, expected_utility(opened, goal, prompts, horizon).expected_utility


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("model", "utility", "length", "text"), CASES)
def test_landscapes_are_of_allowed_prompts(model, utility, length, text, context):
    """By classes and, through the same model as a function, by prompts."""
    prompts, values = brute_force(model, utility, length, text, context)
    tokens = tuple(map(int, context))
    base = open_model(model)
    vocab, order = base.vocab_size, base.order
    blind = FunctionModel(
        lambda tokens: base.log_predictive(tokens)[:, -1].exp(), vocab_size=vocab, order=order
    )
    allowed, goal = parse_allowed(text, vocab), open_goal(utility, base)
    for one in (base, blind):
        field = landscape(condition(one, tokens), goal, length, 4, allowed=allowed)
        assert field.n_prompts == len(prompts)
        assert field.optimum == pytest.approx(float(values.max()), abs=1e-12)
        assert says(text, field.best_prompt.tolist())
        for value in values.tolist():
            better = sum(other > value + 1e-5 for other in values.tolist())
            assert field.rank(value) == 1 + better


METHODS = [
    "exhaustive",
    "random(prompts=40)",
    "coordinate(restarts=3)",
    "beam(width=3)",
    "classes-analytic(samples=200,estimator=importance)",
    "classes-analytic(samples=200,estimator=importance,limit=0,steps=20)",
    "ppt-rb-analytic(samples=200,steps=20)",
    "ppt-analytic(samples=100,steps=10)",
    "ppt-rb-analytic(samples=200,steps=20,tilt=geometric)",
    "ppt-rb(samples=60,rollout-length=50,steps=10)",
]
PLAIN = METHODS[::2]
"""Tried after a context; the others without one."""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("model", "utility", "length", "text"), CASES)
def test_every_method_answers_allowed_prompts_alone(model, utility, length, text, method):
    context = "10011" if method in PLAIN else ""
    prompts, values = brute_force(model, utility, length, text, context)
    found = elicit(model, utility, length=length, method=method, allowed=text, context=context)
    assert says(text, found.prompt), found.prompt
    assert found.optimum == pytest.approx(float(values.max()), abs=1e-12)
    row = prompts.tolist().index(found.prompt)
    assert found.expected_utility == pytest.approx(float(values[row]), abs=1e-12)
    assert found.rank == 1 + int((values > values[row] + 1e-5).sum())
    assert found.to_json()["allowed"] == text
    if method == "exhaustive":
        assert found.rank == 1


@pytest.mark.parametrize("search", ["", ",limit=0,steps=20"])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("model", "utility", "length", "text"), CASES)
def test_classes_are_the_best_allowed_for_their_bank(model, utility, length, text, context, search):
    tokens = tuple(map(int, context))
    metered = Metered(condition(open_model(model), tokens))
    goal = open_goal(utility, metered)
    allowed = parse_allowed(text, metered.vocab_size)
    problem = posed(metered, goal, length, 4, 0, allowed=allowed)
    (answer,) = open_method(f"classes-analytic(samples=200,estimator=importance{search})").solve(
        [problem]
    )
    prompts, _ = brute_force(model, utility, length, text, context)
    values = bank_estimate(metered.prior, tokens, goal, goal.order, prompts, 4, 200)
    assert answer.surrogate == pytest.approx(float(values.max()), abs=1e-12)
    for candidate in answer.candidates.tolist():
        assert says(text, candidate)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("head", ["1", "011"])
@pytest.mark.parametrize(("vocab", "length", "text"), CONDITIONS)
def test_classes_behind_a_head_violate_as_their_prompts_do(vocab, length, text, head, order):
    """What stands before a prompt is not judged, though its transitions are counted."""
    allowed = parse_allowed(text, vocab)
    context = tuple(map(int, head))
    problem = ClassProblem(ContextSpace(vocab, order), length, 1, allowed, context)
    if not problem.decided:
        return
    prompts = all_sequences(vocab, length)
    assert torch.equal(problem.violations(*problem.describe(prompts)), allowed.violations(prompts))


@cache
def network():
    return open_model("urn")


@pytest.mark.parametrize(
    "method",
    [
        "gcg",
        "gcg(top-k=2,candidates=6,buffer=3)",
        "gcg(candidates=8,swaps=2)",
        "beam",
        "coordinate",
        "exhaustive",
    ],
)
@pytest.mark.parametrize("utility", ["dyck", "forward-xent(sym-0.2)"])
def test_searches_on_a_network(method, utility):
    texts = ("ban=11;last=1", "count(1)=2;first=0", "position(3)=1;position(-1)=0")
    for text in texts if method == "gcg" else texts[:1]:
        found = elicit(network(), utility, length=6, method=method, allowed=text, context="011")
        assert says(text, found.prompt)
        assert found.expected_utility <= found.optimum + 1e-6
        if method == "exhaustive":
            assert found.rank == 1
            some = sum(says(text, prompt) for prompt in all_sequences(2, 6).tolist())
            assert found.cost["forward_tokens"] == some * (3 + 6 + 14)


@pytest.mark.parametrize("method", ["simplex-pt", "real-pt", "soft-pt"])
def test_soft_prefixes_refuse_by_name(method):
    with pytest.raises(InputError, match=f"{method}: cannot honour allowed prompts: use ") as told:
        elicit("urn", "dyck", length=4, method=method, allowed="first=0")
    advised = str(told.value).partition(": use ")[2].split(", ")
    assert {"gcg", "coordinate", "classes"} <= set(advised)
    assert not any(name.endswith("-pt") for name in advised)


@pytest.mark.parametrize(
    "method", ["gcg", "coordinate", "random", "beam", "exhaustive", "classes", "ppt-rb(steps=5)"]
)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("first=7", "'first=7' has the symbol '7'"),
        ("count(1)>=4;ban=11", "no allowed prompt of 5 tokens"),
        ("first=1111111", "the prompt has 5 tokens"),
        ("nonsense", "'nonsense': expected a condition"),
    ],
)
def test_what_nothing_satisfies_is_refused(method, text, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit("urn", "dyck", length=5, method=method, allowed=text)


def test_a_predicate_and_an_object_are_conditions_too():
    for method in ("exhaustive", "ppt-rb-analytic(steps=10)", "beam", "random(prompts=20)"):
        found = elicit(
            "exact:urn", "dyck", length=6, method=method, allowed=lambda prompt: sum(prompt) == 4
        )
        assert sum(found.prompt) == 4
        assert found.n_prompts == 15
    assert open_allowed("", 2) is None
    assert open_allowed(None, 2) is None
    given = AllowedPrompts(vocab_size=2, first=(1,))
    assert open_allowed(given, 2) is given
    with pytest.raises(InputError, match="allowed prompts 3: expected such as"):
        open_allowed(3, 2)


@pytest.mark.parametrize(
    "text",
    [
        "count(1)=15;ban=111",
        "ban=00,11;first=1",
        "count(0)>=29",
        "position(7)=1;position(-1)=0;ban=101",
    ],
)
def test_long_prompts_are_drawn_allowed(text):
    """Past what can be listed, tokens are drawn by completions, and mended."""
    drawn = draw_allowed(parse_allowed(text, 2), 30, 20, torch.Generator().manual_seed(0))
    assert all(says(text, prompt) for prompt in drawn.tolist())
    assert len(drawn) == 20
    again = draw_allowed(parse_allowed(text, 2), 30, 20, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again)
    for method in ("coordinate", "beam(width=2)", "random(prompts=5)"):
        found = elicit("exact:urn", "dyck", length=30, method=method, allowed=text)
        assert says(text, found.prompt)


def test_listed_prompts_are_drawn_evenly():
    """Six prompts have two ones among four; each of 6,000 draws has one chance in six, so no count
    strays from 1,000 by more than 5.5 standard deviations of 29, one time in ten million."""
    drawn = draw_allowed(parse_allowed("count(1)=2", 2), 4, 6000, torch.Generator().manual_seed(1))
    _, counts = drawn.unique(dim=0, return_counts=True)
    assert len(counts) == 6
    assert float((counts - 1000).abs().max()) < 160


def test_spelled_prompts_are_drawn_evenly(monkeypatch):
    """A thousand draws for each prompt that fits: a count strays by 5.5 standard deviations, of at
    most 32, one time in ten million."""
    monkeypatch.setattr(drawing, "LISTED_PROMPTS", 0)
    allowed = parse_allowed("ban=00,111;position(2)=0|1;last=1", 2)
    fit = {tuple(p) for p in all_sequences(2, 7).tolist() if says("ban=00,111;last=1", p)}
    drawn = draw_allowed(allowed, 7, 1000 * len(fit), torch.Generator().manual_seed(2))
    found, counts = drawn.unique(dim=0, return_counts=True)
    assert {tuple(prompt) for prompt in found.tolist()} == fit
    assert float((counts - 1000).abs().max()) < 5.5 * 32
    with pytest.raises(InputError, match="no allowed prompt of 9 tokens exists"):
        draw_allowed(parse_allowed("ban=00,11;first=0;last=1", 2), 9, 3, torch.Generator())


@pytest.mark.parametrize(("vocab", "length", "text"), CONDITIONS)
def test_beginnings_that_cannot_be_mended_are_told(vocab, length, text):
    allowed = parse_allowed(text, vocab)
    whole = {tuple(p) for p in all_sequences(vocab, length).tolist() if says(text, p)}
    for so_far in range(length + 1):
        some = all_sequences(vocab, so_far)
        may = allowed.may_begin(some, length)
        for prefix, verdict in zip(some.tolist(), may.tolist(), strict=True):
            alive = any(prompt[:so_far] == tuple(prefix) for prompt in whole)
            assert verdict or not alive
            assert so_far < length or verdict == alive


def test_exchanges():
    found = exchanges(torch.tensor([0, 1, 0]))
    assert found.tolist() == [[1, 0, 0], [0, 0, 1]]
