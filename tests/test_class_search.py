"""The search over classes against every prompt, and local search against all classes."""

import math
from dataclasses import asdict, replace

import pytest
import torch
from oracles import is_dyck, says
from posing import posed

from posteer.api.eliciting import elicit, elicit_many
from posteer.banks import draw_analytic
from posteer.core.errors import InputError
from posteer.evaluation import estimate_from_bank
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.families.markov.urns import UrnMeans
from posteer.goals.utilities import open_utility
from posteer.methods.answers import Certificate, Scope, StopReason
from posteer.methods.classes import ClassSearch, candidates_of
from posteer.methods.climbing.search import (
    BestClasses,
    SearchSettings,
    narrowed,
    random_prompts,
    search_classes,
    spread_prompts,
)
from posteer.methods.registry import open_method
from posteer.methods.scorers.protocol import BankScorer, HardScores
from posteer.models import Metered, open_model
from posteer.tokens.conditions import AllowedPrompts, parse_allowed
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions
from posteer.views.sentences import certificate_text

CASES = [
    # model, utility, length
    ("exact:beta-bernoulli", "frequency(0.3)", 8),
    ("exact:beta-bernoulli", "reverse-xent(dir-4)", 7),
    ("exact:urn", "dyck", 9),
    ("exact:urn", "reverse-xent(dir-2)", 8),
    ("exact:markov(vocab=2,order=2)", "frequency(0.6)", 9),
    ("exact:markov(vocab=3,order=0)", "frequency(0.4,token=2)", 6),
    ("exact:markov(vocab=3,order=1)", "dyck", 6),
    ("exact:markov(vocab=4,order=1)", "reverse-xent(sym-0.7)", 4),
    ("exact:coins(0.2,0.7)", "frequency(1.0)", 5),
]


def setup(model, utility, length, samples=400, seed=0, allowed=None):
    metered = Metered(open_model(model))
    goal = open_utility(utility, metered)
    bank = draw_analytic(metered.prior, samples, seed)
    return metered, goal, bank, posed(metered, goal, length, 4, seed, allowed=allowed)


@pytest.mark.parametrize("search", ["", ",limit=0,steps=60"])
@pytest.mark.parametrize(("model", "utility", "length"), CASES)
def test_the_answer_is_the_best_of_all_prompts_for_its_bank(model, utility, length, search):
    """Enumerated or climbed, the answer is the argmax of the estimate over all V**m prompts."""
    metered, goal, bank, problem = setup(model, utility, length)
    (answer,) = open_method(f"classes-analytic(samples=400,estimator=importance{search})").solve(
        [problem]
    )
    prompts = all_sequences(metered.vocab_size, length)
    values = estimate_from_bank(bank, goal, prompts, 4)
    assert answer.surrogate == pytest.approx(float(values.max()), abs=1e-12)
    own = estimate_from_bank(bank, goal, answer.prompt[None], 4)
    assert float(own) == pytest.approx(answer.surrogate, abs=1e-12)
    assert (answer.certificate is None) == bool(search)
    assert answer.stop_reason == ("local optimum" if search else "all classes")
    assert answer.steps == len(answer.history)
    assert metered.queries.forward_tokens == answer.queries.forward_tokens == 0
    held_out = draw_analytic(metered.prior, 400, 0, held_out=True)
    other = estimate_from_bank(held_out, goal, answer.prompt[None], 4)
    assert answer.held_out_surrogate == pytest.approx(float(other), abs=1e-12)
    assert torch.equal(answer.candidates[0], answer.prompt)
    # the best ten values over all prompts, each class once
    order = max(metered.family.space.order, goal.order)
    keys = torch.cat(
        [
            count_transitions(metered.family.space, prompts).long().flatten(1),
            ContextSpace(metered.vocab_size, order).suffix(prompts)[:, None],
        ],
        -1,
    )
    best = {tuple(key): float(value) for key, value in zip(keys.tolist(), values, strict=True)}
    expected = sorted(best.values(), reverse=True)[: len(answer.candidates)]
    found = estimate_from_bank(bank, goal, answer.candidates, 4)
    assert float(found[0]) == pytest.approx(expected[0], abs=1e-12)
    assert len({tuple(row) for row in answer.candidates.tolist()}) == len(found)
    if not search:  # candidates are prompts of the best classes, those near the best one first
        assert len(answer.candidates) == min(10, len(best))
        for value in found.tolist():
            assert min(abs(value - other) for other in expected) < 1e-12
        error = answer.surrogate_standard_error
        assert answer.certificate == Certificate(Scope.CLASSES, len(best), "importance", error)
        assert f"all {len(best):,} classes" in certificate_text(answer.certificate)


@pytest.mark.slow
def test_local_search_finds_the_enumerated_optimum_at_length_fifty():
    """The urn has 2,452 classes at length 50: the climb must not miss the best of them."""
    utilities = ["dyck", "frequency(0.3)", "frequency(0.7)"]
    utilities += [f"reverse-xent({t})" for t in ("sym-0.1", "sym-0.7", "dir-2", "dir-4", "dir-7")]
    every = "classes-analytic(samples=1000,estimator=importance)"
    climb = "classes-analytic(samples=1000,estimator=importance,limit=0,steps=100)"
    whole = elicit_many("exact:urn", utilities, length=50, method=every)
    local = elicit_many("exact:urn", utilities, length=50, method=climb)
    for best, found in zip(whole, local, strict=True):
        assert found.surrogate == pytest.approx(best.surrogate, abs=1e-9), found.utility
        assert found.stop_reason == "local optimum"
        assert len(found.prompt) == 50


def test_the_climb_needs_no_ascent_to_find_the_optimum():
    """From random prompts alone, the scorer being any callable: here the exact J of the urn."""
    model = open_model("exact:urn")
    means = UrnMeans(open_utility("dyck", model), model.family.space, 4)
    asked = []

    def scorer(counts, first, last):
        asked.append(len(counts))
        value = means((model.prior.concentration + counts)[:, None], last)[:, 0]
        return HardScores.of(value, torch.zeros_like(value))

    problem = ClassProblem(model.family.space, 50)
    found = search_classes(problem, scorer, SearchSettings(limit=0, keep=3))
    best = search_classes(problem, scorer, SearchSettings(keep=3))
    assert torch.allclose(found.scores.value, best.scores.value)
    assert float(best.scores.value[0]) == pytest.approx(0.9256, abs=1e-4)
    assert sum(asked) < 2 * 2452 + 6, (
        "a class is scored once, and the best once more for their errors"
    )


def test_dyck_at_length_fifty_is_solved_where_ppt_is_not():
    found = elicit("exact:urn", "dyck", length=50, method="classes-analytic")
    assert found.expected_utility >= 0.92
    assert (found.certificate.scope, found.certificate.count) == ("classes", 2452)
    words = certificate_text(found.certificate)
    assert words.startswith("the best of all 2,452 classes of prompts, as far as the bank")
    assert {found.cost[name] for name in found.cost if name != "judging_tokens"} == {0}
    assert found.to_json()["certificate"] == asdict(found.certificate)
    assert abs(found.surrogate - found.expected_utility) < 4 * found.surrogate_standard_error


def test_shipped_and_given_banks_are_searched():
    import posteer

    found = elicit("urn", "dyck", length=20, method="classes")
    assert found.cost["bank_tokens"] == 9_995_000
    assert found.cost["forward_tokens"] == 0
    assert found.held_out_surrogate is not None
    bank = posteer.sample("exact:urn", rollouts=200, length=60)
    own = elicit("exact:urn", "dyck", length=6, method="classes", bank=bank)
    assert own.cost["bank_tokens"] == 200 * 59
    assert own.held_out_surrogate is None
    with pytest.raises(InputError, match=r"uses no bank: use auto, classes, climb, ppt, ppt-rb$"):
        elicit("exact:urn", "dyck", length=6, method="classes-analytic", bank=bank)


@pytest.mark.slow
def test_the_same_call_gives_the_same_answer_alone_or_in_a_batch():
    method = "classes-analytic(samples=300,limit=0,steps=40,restarts=3)"
    alone = elicit("exact:urn", "dyck", length=20, seed=3, method=method)
    batch = elicit_many(
        "exact:urn", ["frequency(0.3)", "dyck"], length=20, seeds=[1, 3], method=method
    )
    assert batch[3].prompt == alone.prompt
    assert batch[3].surrogate == pytest.approx(alone.surrogate, abs=1e-12)


ALLOWED = [
    ("exact:urn", "dyck", 8, "first=1;last=1;ban=10"),
    ("exact:urn", "dyck", 8, "count(1)<=2"),
    ("exact:urn", "dyck", 8, "first=110"),
    ("exact:urn", "dyck", 8, "ban=0101,1010"),
    ("exact:urn", "reverse-xent(dir-2)", 7, "position(3)=1;count(0)=3"),
    ("exact:beta-bernoulli", "frequency(0.3)", 8, "ban=00;last=1"),
    ("exact:markov(vocab=3,order=1)", "dyck", 6, "ban=01;count(2)>=1"),
    ("exact:markov(vocab=3,order=1)", "dyck", 5, "position(2)=2;last=0"),
]


@pytest.mark.parametrize("search", ["", ",limit=0,steps=40"])
@pytest.mark.parametrize(("model", "utility", "length", "text"), ALLOWED)
def test_the_best_allowed_prompt(model, utility, length, text, search):
    allowed = parse_allowed(text, open_model(model).vocab_size)
    metered, goal, bank, problem = setup(model, utility, length, allowed=allowed)
    method = f"classes-analytic(samples=400,estimator=importance{search})"
    (answer,) = open_method(method).solve([problem])
    prompts = all_sequences(metered.vocab_size, length)
    kept = torch.tensor([says(text, prompt) for prompt in prompts.tolist()])
    best = estimate_from_bank(bank, goal, prompts[kept], 4).max()
    assert answer.surrogate == pytest.approx(float(best), abs=1e-12)
    for candidate in answer.candidates.tolist():
        assert says(text, candidate)
    if not search:
        assert answer.certificate.scope in ("classes of allowed prompts", "allowed prompts")
        assert "allowed prompts, as far as the bank of latents tells" in certificate_text(
            answer.certificate
        )


@pytest.mark.slow
def test_a_predicate_is_honoured_at_a_length_no_one_can_enumerate():
    """Palindromes of 24 tokens: found by changing tokens, since counts do not show them."""
    mirror = AllowedPrompts(vocab_size=2, predicate=lambda prompt: prompt == prompt[::-1])
    *_, problem = setup("exact:urn", "dyck", 24, allowed=mirror)
    with pytest.raises(InputError, match="no allowed prompt of 24 tokens was found"):
        ClassSearch(analytic=True, search=SearchSettings(restarts=1)).solve([problem])
    often = AllowedPrompts(vocab_size=2, predicate=lambda prompt: sum(prompt) % 3 == 0)
    method = ClassSearch(analytic=True)
    (answer,) = method.solve([posed("exact:urn", "dyck", 24, allowed=often)])
    assert int(answer.prompt.sum()) % 3 == 0
    (free,) = open_method("classes-analytic").solve([posed("exact:urn", "dyck", 24)])
    assert free.surrogate - 0.2 < answer.surrogate <= free.surrogate


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        ("classes-analytic(keep=0)", "keep 0"),
        ("classes-analytic(restarts=0)", "restarts 0"),
        ("classes-analytic(rounds=0)", "rounds 0"),
        ("classes-analytic(limit=-1)", "limit -1"),
        ("classes-analytic(top-k=3)", "unknown setting"),
        ("classes-analytic(allowed=first=1)", "unknown setting"),
        ("classes-analytic(samples=1)", "at least 2"),
    ],
)
def test_bad_searches_are_refused(method, complaint):
    with pytest.raises(InputError, match=complaint):
        elicit("exact:urn", "dyck", length=5, method=method)
    with pytest.raises(InputError, match="no expected utility"):
        elicit("exact:urn", "forward-xent(sym-0.1)", length=5, method="classes-analytic")


def test_conditions_of_another_vocabulary_are_refused():
    with pytest.raises(InputError, match="over 3 tokens: exact:urn has 2"):
        setup("exact:urn", "dyck", 5, allowed=parse_allowed("ban=22", 3))


def test_latents_that_can_emit_nothing():
    model = Metered(open_model("exact:coins(0.2,0.7)"))
    scorer = lambda counts, first, last: HardScores.of(  # noqa: E731
        torch.full((len(counts),), -math.inf).double(),
        torch.zeros(len(counts)).double(),
        torch.zeros(len(counts)).double(),
    )
    with pytest.raises(InputError, match="no latent of the bank can emit any prompt"):
        search_classes(ClassProblem(model.family.space, 4), scorer, SearchSettings())


def test_counts_of_a_lower_order_from_those_of_a_higher_one():
    for low, high in ((0, 1), (0, 2), (1, 3)):
        own, wide = ContextSpace(3, low), ContextSpace(3, high)
        prompts = random_prompts(ClassProblem(wide, 9), 20, seed=1)
        counts = count_transitions(wide, prompts).long()
        first = wide.encode(prompts[:, :high])
        assert torch.equal(
            narrowed(own, wide, counts, first), count_transitions(own, prompts).long()
        )


def test_a_bank_scorer_reads_last_contexts_of_any_length():
    _, goal, bank, problem = setup("exact:beta-bernoulli", "reverse-xent(dir-4)", 6)
    scorer = BankScorer.of(bank, problem)
    prompts = all_sequences(2, 6)
    counts = count_transitions(bank.space, prompts).long()
    for order in (1, 2, 4):
        ends = ContextSpace(2, order)
        found = scorer(counts, prompts[:, 0], ends.suffix(prompts)).value
        assert torch.allclose(found, estimate_from_bank(bank, goal, prompts, 4))
    assert is_dyck((0, 1, 0, 1))


def test_starts_are_repetitive_and_random_and_keep_to_their_positions():
    problem = ClassProblem(ContextSpace(2, 1), 8)
    starts = spread_prompts(problem, 8, seed=0).tolist()
    assert starts[:3] == [[0] * 8, [1] * 8, [0, 1] * 4]
    assert len({tuple(prompt) for prompt in starts}) > 5
    fixed = parse_allowed("first=1;last=0", 2)
    held = spread_prompts(ClassProblem(ContextSpace(2, 1), 8, allowed=fixed), 8, seed=0)
    assert held[:, 0].tolist() == [1] * 8
    assert held[:, -1].tolist() == [0] * 8


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("classes-analytic(samples=300)", marks=pytest.mark.slow),
        "ppt-rb-analytic(steps=5)",
    ],
)
def test_the_experiment_prints_its_tables(method, capsys):
    from class_search import main

    main(["--models", "beta-bernoulli", "--lengths", "6", "--method", method])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| beta-bernoulli | 6 | 20 |")
    assert sum(line.startswith("| beta-bernoulli | 6 | tau-") for line in lines) == 8
    with pytest.raises(InputError, match="expected one that works on latents"):
        main(["--method", "gcg"])


@pytest.mark.parametrize("what", ["banks", "optima"])
def test_the_experiment_on_climbing_prints_its_tables(what, capsys, monkeypatch):
    import class_climb

    monkeypatch.setattr(class_climb, "PAST_BINARY", [("vocab=2,order=1", 8)])
    monkeypatch.setattr(class_climb, "ENUMERABLE", [("vocab=2,order=1", 8)])
    class_climb.main([what, "--samples", "50", "--restarts", "2", "--seeds", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == (3 if what == "banks" else 1)
    assert all(row.startswith("| vocab=2,order=1 | 8 |") for row in rows)


def test_candidates_take_turns_among_classes_that_errors_cannot_tell_apart():
    model = Metered(open_model("exact:beta-bernoulli"))
    problem = ClassProblem(model.family.space, 5)
    prompts = torch.tensor([[0, 1, 0, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    value = torch.tensor([1.0, 0.98, 0.2, 0.1], dtype=torch.float64)
    scores = HardScores.of(value, torch.full_like(value, 0.01))
    nothing = torch.zeros(4, 1, 2, dtype=torch.long)
    last = torch.zeros(4, dtype=torch.long)
    found = BestClasses(
        prompts, nothing, last, scores, StopReason.ALL_CLASSES, Scope.CLASSES, 4, []
    )
    chosen = ["".join(map(str, row)) for row in candidates_of(problem, found).tolist()]
    assert chosen == ["00011", "00010", "00110", "00001"]
    apart = replace(found, scores=HardScores.of(value, torch.full_like(value, 0.001)))
    chosen = ["".join(map(str, row)) for row in candidates_of(problem, apart).tolist()]
    assert chosen == ["00011", "00110", "00101", "01010"]
