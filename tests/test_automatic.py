"""The default method: what it chooses and why, and the model's last word."""

import json
import math
from dataclasses import replace
from pathlib import Path

import bank_seeds
import beyond
import pytest
import torch
from posing import posed

from posteer.api.eliciting import elicit
from posteer.banks import DrawPlan, draw_analytic, draw_bank
from posteer.core.errors import InputError
from posteer.evaluation import expected_utility
from posteer.families.markov.fit.goodness import Misfit
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.answers import Asked, Because, Choice, EstimatorChoice, Reason, Verification
from posteer.methods.auto import choose
from posteer.methods.registry import open_method
from posteer.methods.scorers.choice import Estimators
from posteer.methods.scorers.posterior import FoldedPrompts
from posteer.methods.verify import verify
from posteer.models import FunctionModel, Metered, open_model
from posteer.paper.cells import Cells
from posteer.sweeps.results import read_rows
from posteer.tokens.contexts import all_sequences, count_transitions
from posteer.views.sentences import choice_text, estimator_text, verified_text

RECORDS = Path(__file__).parent.parent / "docs" / "records"

FORWARD, LONG = "forward-xent(sym-0.1)", {"length": 20}


def fair(max_length=None):
    model = FunctionModel(lambda tokens: None, vocab_size=2, order=1)
    model.max_length = max_length
    return model


def mine():
    return draw_analytic(open_process("urn"), 10, 0)


def ones(continuation):
    return float(sum(continuation))


@pytest.mark.parametrize(
    ("model", "goal", "more", "method", "because", "words"),
    [
        ("exact:urn", "dyck", {}, "classes-analytic", "prior-known", "known prior"),
        (
            "urn",
            "dyck",
            {},
            "classes",
            "bank-shipped",
            "latents from the bank that ships with the model",
        ),
        ("exact:urn", "dyck", {"bank": mine()}, "classes", "bank-given", "the bank given"),
        (
            *("urn", FORWARD, {}, "exhaustive", "no-expected-utility few-prompts"),
            f"{FORWARD} is no mean over continuations; there are only 64 prompts",
        ),
        (
            *("urn", FORWARD, LONG, "gcg", "no-expected-utility gradients"),
            "no mean over continuations; the model gives gradients",
        ),
        (
            *("exact:urn", FORWARD, LONG, "coordinate", "no-expected-utility no-gradients"),
            "the model gives no gradients",
        ),
        (
            *(fair(), "dyck", {}, "exhaustive", "few-prompts all-cheaper"),
            "there are only 64 prompts; to try all takes 1,280 model tokens, a bank 31,744 or more",
        ),
        (
            *(fair(), "dyck", LONG, "classes", "rolled-out"),
            "texts that the model writes (9,995,000 model tokens, once)",
        ),
        (
            *(fair(), "dyck", {"max_model_tokens": 1000}, "coordinate"),
            *("bank-too-dear no-gradients", "tokens do not pay for a bank of latents (31,744)"),
        ),
        (
            *(fair(100), "dyck", LONG, "classes", "rolled-out"),
            "model writes (500,000 model",
        ),
        (
            *(fair(40), "dyck", LONG, "coordinate", "few-tokens-left no-gradients"),
            "40 tokens are left for the model to read, too few",
        ),
        (
            *("exact:urn", ones, {"horizon": 13}, "ppt-analytic", "no-exact-mean prior-known"),
            "ones has no exact mean at horizon 13; latents drawn from the model's known prior",
        ),
    ],
)
def test_what_is_chosen_and_why(model, goal, more, method, because, words):
    found = choose([posed(model, goal, **{"length": 6, **more})])
    assert found.method == method
    assert [reason.because for reason in found.reasons] == because.split()
    assert choice_text(found).startswith(f"{method}: ")
    assert words in choice_text(found)


def test_a_model_that_reads_little_is_rolled_out_as_far_as_it_goes():
    """Latents known by few tokens each: the fit allows for that, and finds the best class."""
    exact = open_model("exact:urn")
    short = FunctionModel(
        lambda tokens: exact.log_predictive(tokens)[:, -1].exp(), vocab_size=2, order=1
    )
    short.max_length = 99
    bank = draw_bank(Metered(short), DrawPlan(n_samples=600, rollout_length=100))
    found = elicit(short, "dyck", length=6, bank=bank)
    assert found.prompt == [0, 1] * 3


def test_the_choice_is_in_the_record():
    found = elicit("exact:urn", "dyck", length=6)
    assert found.method == "auto"
    reasons = (Reason(Because.PRIOR_KNOWN), Reason(Because.ALL_TRIED))
    assert found.choice == Choice("classes-analytic", reasons)
    assert choice_text(found.choice) == (
        "classes-analytic: latents drawn from the model's known prior; few enough classes of "
        "prompts to try all"
    )
    assert not found.estimator.asked and found.estimator.fits
    assert estimator_text(found.estimator).startswith(("conjugate: plain", "importance: plain"))
    named = elicit("exact:urn", "dyck", length=6, method="classes-analytic(estimator=psis)")
    assert named.choice is None and named.estimator == EstimatorChoice("psis", asked=True)
    assert estimator_text(named.estimator) == "psis: as asked"


def test_the_model_has_the_last_word():
    """The best of eight on the network, whatever the bank thinks; what prompts begin with in common
    is paid for once."""
    model = open_model("urn")
    found = elicit(model, "frequency(0.3)", length=6, verify=8)
    goal = open_utility("frequency(0.3)", model)
    problem = posed(model, goal, 6, verify=8)
    (answer,) = open_method("classes").solve([problem])
    values = expected_utility(model, goal, answer.candidates[:8], 4).expected_utility
    own = values[answer.candidates[:8].tolist().index(found.prompt)]
    assert float(own) == pytest.approx(float(values.max()), abs=1e-6), "the best, or tied with it"
    assert found.expected_utility == pytest.approx(float(values.max()), abs=1e-6)
    prefixes = {tuple(p[:n]) for p in answer.candidates[:8].tolist() for n in range(1, 7)}
    tokens = len(prefixes) + 8 * 14
    assert found.cost["forward_tokens"] == tokens < 8 * (6 + 14)
    place = answer.candidates[:8].tolist().index(found.prompt) + 1
    first = pytest.approx(float(values[0]), abs=1e-6)
    told = Verification(Asked.RANKED, 8, place, tokens, 0.0, first=found.verified.first)
    assert found.verified == told and found.verified.first == first
    assert verified_text(found.verified).startswith("best of 8 on the model itself: ")
    assert verified_text(found.verified).endswith(f"{tokens} model tokens")
    needs = open_method("classes").needs
    undeclared = verify(problem, answer, replace(needs, candidates=False))
    alone = verify(problem, replace(answer, candidates=answer.candidates[-1:]), needs)
    assert alone.verified == undeclared.verified == Verification(Asked.ONE_CANDIDATE)
    assert verified_text(alone.verified) == "no: the method has one candidate"
    assert torch.equal(alone.prompt, answer.prompt)


@pytest.mark.slow
def test_verify_asks_for_as_many_as_it_is_told_and_the_budget_pays():
    many = elicit("exact:urn", "dyck", length=8, verify=30)
    assert (many.verified.outcome, many.verified.compared) == (Asked.RANKED, 30)
    assert verified_text(many.verified).startswith("best of 30 on the model itself")
    few = elicit("exact:urn", "dyck", length=8, verify=30, max_model_tokens=3 * (8 + 14))
    assert few.verified.compared == 3 and few.cost["forward_tokens"] <= 66
    assert few.verified.tokens == few.cost["forward_tokens"]
    none = elicit("exact:urn", "dyck", length=8, verify=30, max_model_tokens=40)
    assert none.verified == Verification(Asked.NO_BUDGET)
    assert verified_text(none.verified) == "no: the budget does not pay for two candidates"
    assert none.cost["forward_tokens"] == 0
    with pytest.raises(InputError, match="verify -1: expected at least 0"):
        elicit("exact:urn", "dyck", length=5, verify=-1)


def test_verify_past_enumeration_samples_and_says_so():
    found = elicit("exact:urn", "dyck", length=5, horizon=18, verify=2)
    assert found.verified.standard_error > 0 and not found.exact
    assert "by sampling: " in verified_text(found.verified)


@pytest.mark.slow
def test_the_search_by_smc_is_no_certificate():
    found = elicit(
        "exact:urn", "dyck", length=5, method="classes-analytic(samples=300,estimator=smc)"
    )
    assert found.certificate is None and found.estimator.name == "smc"


def test_prompts_too_long_for_a_model_are_refused_before_any_work():
    with pytest.raises(InputError, match="urn reads 1999 tokens"):
        elicit("urn", "dyck", length=1998, horizon=4)


@pytest.mark.slow
def test_candidates_are_near_classes_then_their_other_prompts_then_farther_classes():
    """A coin's classes are far apart, and the best one holds prompts enough to fill the list."""
    model = open_model("exact:beta-bernoulli")
    (answer,) = open_method("classes-analytic").solve([posed(model, "frequency(0.4)", 6)])
    assert answer.candidates.sum(-1).tolist() == [int(answer.prompt.sum())] * 7
    assert len(answer.candidates.unique(dim=0)) == 7, "as many as there are classes"
    (answer,) = open_method("classes-analytic").solve([posed(model, "frequency(0.0)", 6)])
    assert answer.candidates.sum(-1).tolist() == list(range(7)), "000000 is alone in its class"
    bounded = posed(model, "frequency(0.4)", 6, allowed="first=1;ban=00")
    (answer,) = open_method("classes-analytic").solve([bounded])
    assert bool(bounded.allowed.allows(answer.candidates).all())


def test_verify_is_a_setting_of_auto_for_sweeps_and_refused_if_negative():
    found = elicit("exact:urn", "dyck", length=5, method="auto(verify=3)")
    assert found.verified.compared == 3
    assert 5 + 3 * 14 < found.cost["forward_tokens"] <= 3 * (5 + 14)
    with pytest.raises(InputError, match="verify -1"):
        elicit("exact:urn", "dyck", length=5, method="auto(verify=-1)")
    one = elicit("exact:urn", "dyck", length=5, method="coordinate", verify=3)
    assert one.verified == Verification(Asked.ONE_CANDIDATE)


def probes(space, length=8):
    prompts = all_sequences(space.vocab_size, length)[::17]
    return FoldedPrompts(space, count_transitions(space, prompts), space.suffix(prompts))


def test_the_estimator_is_chosen_by_trust_then_by_precision():
    process = open_process("urn")
    bank = draw_analytic(process, 2000, 0)
    goal = open_utility("dyck", process.space)
    fitted = Estimators(bank).choose(goal, probes(process.space), 4)
    assert fitted.name == "conjugate" and fitted.fits and fitted.relative_error < 1
    assert f"is {fitted.misfit:.1f} standard errors off" in estimator_text(fitted)
    wide = open_process("markov(vocab=4,order=1)")
    few = draw_analytic(wide, 500, 0)
    prompts = all_sequences(4, 5)[::41].repeat(1, 8)
    long = FoldedPrompts(
        wide.space, count_transitions(wide.space, prompts), wide.space.suffix(prompts)
    )
    collapsed = Estimators(few).choose(open_utility("dyck", wide.space), long, 4)
    assert collapsed.name == "conjugate" and collapsed.trusted == 0
    assert "trusted on 0%" in estimator_text(collapsed)


def test_a_fit_that_misses_is_not_used():
    """Plain weights where they are trusted, else SMC. Two coins are two narrow Dirichlets."""
    process = open_process("urn")
    goal = open_utility("dyck", process.space)
    for length, name in ((8, "importance"), (400, "smc")):
        estimators = Estimators(draw_analytic(process, 1000, 0))
        estimators.__dict__["misfit"] = Misfit(5.0, 100)
        prompts = all_sequences(2, 8)[::17].repeat(1, length // 8)
        counts, last = count_transitions(process.space, prompts), process.space.suffix(prompts)
        found = estimators.choose(goal, FoldedPrompts(process.space, counts, last), 4)
        assert (found.name, found.fits, found.misfit) == (name, False, 5.0)
        assert "5.0 standard errors off, too far" in estimator_text(found)
        unknown = replace(found, misfit=math.nan)
        assert "how well a prior fits the bank is not known" in estimator_text(unknown)
    coins = Estimators(draw_analytic(open_process("coins(0.2,0.7)"), 500, 0))
    assert coins.misfit.good and coins.fit.selection.supported == 2


def test_auto_on_the_papers_cells_is_behind_none_of_the_five():
    """Of the committed runs: in all 102 cells within 1e-3 of the best of the five or above."""
    auto, paper = (Cells(read_rows(RECORDS / f"{name}.parquet")) for name in ("auto", "paper"))
    found = beyond.cells_beside(auto, paper)
    assert len(found) == 102
    assert not any(one.behind_ours for one in found)
    ranked = [one.rank for one in found if one.rank is not None]
    assert (ranked.count(1.0), len(ranked)) == (51, 51)
    assert sum(one.tokens for one in found) < 0.02 * sum(one.gcg_tokens for one in found)
    assert len(beyond.shortfalls(found)) == 2 + 5 * 4
    assert len(beyond.summary(found)) == 2 + 4
    dyck = next(one for one in found if (one.model, one.target, one.length) == ("urn", "dyck", 50))
    assert dyck.value > 0.92 and dyck.ours < 0.5


def test_the_papers_cells_from_ten_banks():
    """Of the committed runs: rank 1 from every bank, and nearly all prompts the same. Ten banks of
    the coin and of the shorter urn, the two shipped ones of the urn."""
    lines = (RECORDS / "bank-seeds.jsonl").read_text().splitlines()
    rows = bank_seeds.summary([json.loads(line) for line in lines])
    assert [row.split("|")[-2].strip() for row in rows[2:]] == [
        *("200 of 200", "", "310 of 310", "", "62 of 62", "")
    ]
    assert [int(row.split("|")[5]) for row in rows[2:]] == [20, 20, 31, 23, 31, 29]
    paper = bank_seeds.five_methods(RECORDS / "paper.parquet")
    missed = bank_seeds.misses([json.loads(line) for line in lines], paper)[2:]
    assert [row.split("|")[3].strip() for row in missed] == [
        f"sym-{flip}" for flip in ("0.7", "0.8", "0.9", "1.0")
    ]
