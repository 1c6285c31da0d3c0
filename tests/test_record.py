"""The record: its schema, its JSON, its row of a frame, and its reasons in words."""

import json
import math
from dataclasses import fields, replace
from io import StringIO

import pytest
import torch
from examples import PROMISED
from networks import small
from rich.console import Console
from schemas import definitions, faults, promised

from posteer.api import compare, elicit, evaluate
from posteer.methods.answers import (
    Answer,
    Asked,
    Because,
    Certificate,
    Choice,
    EstimatorChoice,
    Reason,
    Scope,
    StopReason,
    Verification,
)
from posteer.methods.cautions import Caution, Doubt, errors_off, of_search
from posteer.models.function import FunctionModel
from posteer.models.meter import QueryCount
from posteer.results import Elicitation, Judged, MethodSummary, columns, flat
from posteer.sweeps.results import FIGURES
from posteer.views import sentences
from posteer.views.terminal.record import show_elicitation

RUNS = {
    "auto": {"verify": 2},
    "classes-analytic(samples=50,estimator=psis)": {},
    "ppt-rb-analytic(samples=50,steps=3)": {},
    "ppt-rb(samples=50,rollout-length=20,steps=3)": {},
    "ppt-analytic(samples=50,steps=3)": {},
    "coordinate": {"verify": 3},
    "random(prompts=5)": {"context": "01"},
    "beam": {"allowed": "first=1"},
    "exhaustive": {},
    "gcg(steps=2)": {},
    "simplex-pt(steps=2)": {},
}


@pytest.mark.parametrize("method", RUNS)
def test_every_record_fits_the_schema(method):
    needs_network = method.startswith(("gcg", "simplex"))
    model = small(vocab=2, width=8, heads=2, feedforward=8) if needs_network else "exact:urn"
    found = elicit(model, "dyck", length=5, method=method, **RUNS[method])
    text = json.dumps(found.to_json(), allow_nan=False)
    record = json.loads(text)
    assert list(faults(record, definitions()["run"])) == []
    assert record.keys() == promised("run") and record.keys() >= PROMISED
    if record["stop_reason"] is not None:
        assert record["stop_reason"] in set(StopReason)


def test_figures_that_json_cannot_hold_are_null():
    found = elicit("exact:urn", "dyck", length=3, method="ppt-rb-analytic(samples=4,steps=2)")
    assert math.isnan(found.pareto_k) and found.to_json()["pareto_k"] is None


def test_a_record_is_read_by_its_parts_or_at_once():
    found = elicit("exact:urn", "dyck", length=4, method="exhaustive")
    assert found.prompt == found.answer.prompt.tolist()
    assert found.rank == found.judged.rank == 1 and found.seed == found.asked.seed == 0
    assert found.bound == found.optimum
    assert {"asked", "answer", "judged"} <= {entry.name for entry in fields(Elicitation)}
    with pytest.raises(AttributeError, match="a record has no 'promt'"):
        _ = found.promt


def test_columns_of_a_frame_come_from_the_fields():
    """Every public field of what was found is a column, parts spread out."""
    named = {**columns(Judged), **columns(Answer)}
    assert set(FIGURES) == set(named) - {"prompt"}
    for column in (
        "choice_method",
        "choice_reasons",
        "estimator_name",
        "verified_outcome",
        "certificate_count",
        "bound",
    ):
        assert column in FIGURES
    found = elicit("exact:urn", "dyck", length=4, verify=2).to_json()
    row = flat(found) | flat(
        elicit("exact:coins(0.2)", "dyck", length=4).to_json()["proof"], "proof_"
    )
    assert row["choice_reasons"] == "prior-known,all-tried"
    assert set(FIGURES) - row.keys() == set(), "a record with all its parts fills every column"


def test_other_records_print_what_they_promise():
    judged = evaluate("exact:urn", "dyck", "0101").to_json()
    assert judged.keys() == promised("evaluate") - {"schema_version"}
    both = compare("exact:urn", "dyck", length=4, methods=["beam", "random(prompts=3)"], seeds=2)
    assert json.loads(json.dumps(both.to_json()))["methods"][0]["method"] == "beam"


def order_two(tokens):
    """The next token is the one before the last, nine times in ten; 0 and 1 alike at first."""
    p = torch.full((len(tokens),), 0.5)
    if tokens.shape[1] >= 2:
        p = 0.1 + 0.8 * tokens[:, -2]
    return torch.stack([1 - p, p], -1)


def test_a_model_of_another_order_is_blamed_in_python_json_and_frame():
    """A chain of order 2 that is declared of order 1."""
    model = FunctionModel(order_two, vocab_size=2, order=1, name="two")
    method = "classes(samples=400,rollout-length=200,estimator=importance)"
    found = elicit(model, "dyck", length=6, method=method)
    (blamed,) = [one for one in found.warnings if one.kind is Doubt.MODEL_IS_NO_SUCH_FILTER]
    off = abs(found.expected_utility - found.plain_surrogate) / found.plain_standard_error
    assert blamed.figures["standard_errors"] == pytest.approx(off) and off > 5
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))["warnings"]
    assert {"kind": "model-is-no-such-filter", "figures": blamed.figures} in told
    assert "model-is-no-such-filter" in flat(found.to_json())["warnings"].split(",")
    assert FIGURES["warnings"] == "string"
    summary = MethodSummary("classes", [found, found]).to_json()
    assert summary["warnings"]["model-is-no-such-filter"] == 2
    shown = StringIO()
    show_elicitation(found, Console(file=shown, width=200))
    assert "the model is no such Bayes filter" in shown.getvalue()
    assert found.certificate is not None and "the best of all" not in shown.getvalue()
    own = elicit(model, "dyck", length=6, method=method, verify=4)
    (blamed,) = [one for one in own.warnings if one.kind is Doubt.MODEL_IS_NO_SUCH_FILTER]
    moved = own.verified.place != 1  # then the surrogate is of another prompt than J
    assert blamed.figures.get("of_first_choice", False) == moved
    assert blamed.figures["expected_utility"] == pytest.approx(own.verified.first)


def test_a_filter_is_not_blamed():
    found = elicit("exact:urn", "dyck", length=6)
    assert found.warnings == () and found.to_json()["warnings"] == []
    assert flat(found.to_json())["warnings"] == ""


def answer_of(**figures):
    return Answer(prompt=torch.tensor([0]), queries=QueryCount(), **figures)


def kinds(answer, value=0.0, exact=True):
    return [one.kind for one in of_search(answer, value, exact)]


def test_what_decides_a_warning():
    close = {"plain_surrogate": 0.5, "plain_standard_error": 0.1}
    assert kinds(answer_of(**close)) == []
    assert kinds(answer_of(**close), 1.1) == [Doubt.MODEL_IS_NO_SUCH_FILTER]
    assert kinds(answer_of(**close), 1.1, exact=False) == []
    fitted = {"surrogate": 0.5, "surrogate_standard_error": 0.1}
    assert kinds(answer_of(**fitted), 1.1) == [Doubt.SURROGATE_IS_OFF], "a fit may be a poor one"
    assert kinds(answer_of(**fitted, snapped_surrogate=0.5), 1.1) == []
    for place in (3, None):  # another prompt than the one that was estimated
        moved = Verification(Asked.RANKED, 8, place, 273, 0.0)
        assert kinds(answer_of(**close, verified=moved), 1.1) == []
        assert kinds(answer_of(**close, verified=replace(moved, first=0.5)), 1.1) == []
        for figures, kind in (
            (close, Doubt.MODEL_IS_NO_SUCH_FILTER),
            (fitted, Doubt.SURROGATE_IS_OFF),
            ({**close, "plain_standard_error": 0.0}, Doubt.MODEL_DEPARTS),
        ):
            (one,) = of_search(answer_of(**figures, verified=replace(moved, first=1.1)), 0.5, True)
            assert one.kind is kind and one.figures["of_first_choice"]
            assert "its first choice, of which the model says 1.1000" in sentences.doubt_text(
                (one,), kind
            )
    unasked = Verification(Asked.NO_BUDGET)
    assert kinds(answer_of(**close, verified=unasked), 1.1) == [Doubt.MODEL_IS_NO_SUCH_FILTER]
    assert errors_off(0.5, 0.0, 0.6) == math.inf and errors_off(0.5, 0.0, 0.5) is None
    assert kinds(answer_of(**fitted, read_off=30), 0.5) == [Doubt.READING_LEFT_OUT]
    assert kinds(answer_of(ess_fraction=0.009)) == [Doubt.LOW_ESS]
    assert kinds(answer_of(pareto_k=0.71)) == [Doubt.HIGH_PARETO_K]
    unused = EstimatorChoice("conjugate")
    assert kinds(answer_of(pareto_k=0.71, estimator=unused)) == []
    assert kinds(answer_of(pareto_k=math.nan, ess_fraction=0.5)) == []


def test_an_error_of_rounding_is_not_counted_in():
    """A number of sixteen digits tells a reader nothing."""
    far = Caution(Doubt.SURROGATE_IS_OFF, {"standard_errors": 2957125609270032.0})
    text = sentences.doubt_text((far,), Doubt.SURROGATE_IS_OFF)
    assert ", over 1,000 standard errors off" in text


def test_a_sampled_value_without_spread_is_doubted_wherever_it_is_judged():
    """All rollouts of a coin with two heads are alike; there are too many continuations to list."""
    judged = evaluate("exact:coins(1.0)", lambda tokens: float(sum(tokens)), "11", horizon=40)
    assert judged.standard_error == 0 and not judged.exact
    assert [one["kind"] for one in judged.to_json()["warnings"]] == ["all-rollouts-alike"]


FIGURES_OF_DOUBT = {
    Doubt.MODEL_IS_NO_SUCH_FILTER: {
        "standard_errors": 17.0,
        "plain_surrogate": 0.5,
        "plain_standard_error": 0.1,
    },
    Doubt.MODEL_DEPARTS: {"plain_surrogate": 0.5},
    Doubt.SURROGATE_IS_OFF: {"standard_errors": 9.0},
    Doubt.BANK_MISMATCH_ALLOWED: {"bank": "another"},
    Doubt.READING_LEFT_OUT: {"rollout_length": 2000},
}


@pytest.mark.parametrize("kind", Doubt)
def test_every_warning_has_its_words(kind):
    warnings = (Caution(kind, FIGURES_OF_DOUBT.get(kind, {})),)
    text = sentences.doubt_text(warnings, kind)
    assert len(text) > 15 and "{" not in text and sentences.doubt_text((), kind) == ""
    assert sentences.warned_text(kind, 2, 3).endswith("(2 of 3 runs)")


FIGURES_OF = {
    Because.ROLLED_OUT: {"tokens": 12345},
    Because.NO_EXACT_MEAN: {"utility": "mine", "horizon": 9},
    Because.NO_EXPECTED_UTILITY: {"utility": "forward-xent(tau-0.2)"},
    Because.NO_LATENTS: {"model": "mine"},
    Because.FEW_TOKENS_LEFT: {"tokens": 7},
    Because.BANK_TOO_DEAR: {"tokens": 12345, "budget": 10},
    Because.FEW_PROMPTS: {"prompts": 64},
    Because.BANK_KEPT: {"tokens": 12345},
    Because.ALL_CHEAPER: {"tokens": 1280, "bank": 12345},
    Because.ALL_QUICKER: {"tokens": 1280},
    Because.PRIOR_FINITE: {"atoms": 6},
}


@pytest.mark.parametrize("because", Because)
def test_every_reason_has_its_words(because):
    figures = FIGURES_OF.get(because, {})
    text = sentences.choice_text(Choice("classes", (Reason(because, figures),)))
    assert text.startswith("classes: ") and len(text) > 15 and "{" not in text
    for figure in figures.values():
        shown = f"{figure:,}" if isinstance(figure, int) else figure
        assert str(shown) in text


def test_parts_in_words():
    assert sentences.certificate_text(Certificate(Scope.CLASSES, 2452, "conjugate", 0.00084)) == (
        "the best of all 2,452 classes of prompts, as far as the bank of latents tells (± 0.0008)"
    )
    told = EstimatorChoice(
        "conjugate", pareto_k=-0.64, trusted=1.0, misfit=0.8, fits=True, relative_error=0.082
    )
    assert sentences.estimator_text(told) == (
        "conjugate: plain weights can be trusted on 100% of test prompts (median Pareto k-hat "
        "-0.64, good below 0.7); a prior fitted to the bank is 0.8 standard errors off, and errs "
        "0.082 times as much as plain weights"
    )
    assert sentences.estimator_text(EstimatorChoice("psis", asked=True)) == "psis: as asked"
    ranked = Verification(Asked.RANKED, 8, 3, 273, 0.0)
    assert sentences.verified_text(ranked) == (
        "best of 8 on the model itself: the one it had in place 3; 273 model tokens"
    )
    for outcome in (Asked.ONE_CANDIDATE, Asked.NO_BUDGET):
        assert sentences.verified_text(Verification(outcome)).startswith("no: ")


def test_what_a_check_found_is_said_in_plain_words():
    assert sentences.answer_text([], 4).startswith("yes, as far as these tests can tell")
    assert sentences.answer_text([], 0).startswith("not known")
    told = sentences.answer_text(["martingale", "exchangeability"], 4)
    assert told.startswith("no: its predictions drift") and "--verify" in told
