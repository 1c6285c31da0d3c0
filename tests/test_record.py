"""The record: its schema, its JSON, its row of a frame, and its reasons in words."""

import json
import math
from dataclasses import fields

import pytest
from examples import PROMISED
from networks import small

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
from posteer.results import Elicitation, Judged, columns, flat
from posteer.sweeps.results import FIGURES
from posteer.views import sentences

SCHEMA = {
    "model": str,
    "utility": str,
    "horizon": int,
    "length": int,
    "method": str,
    "seed": int,
    "prompt": list,
    "expected_utility": float,
    "standard_error": float,
    "surrogate": (float, None),
    "surrogate_standard_error": (float, None),
    "snapped_surrogate": (float, None),
    "held_out_surrogate": (float, None),
    "held_out_standard_error": (float, None),
    "ess_fraction": (float, None),
    "pareto_k": (float, None),
    "rank": (int, None),
    "optimum": (float, None),
    "bound": (float, None),
    "best_prompt": (list, None),
    "steps": (int, None),
    "stop_reason": (str, None),
    "certificate": (
        {"scope": str, "count": int, "estimator": str, "standard_error": float},
        None,
    ),
    "estimator": (
        {
            "name": str,
            "asked": bool,
            "pareto_k": (float, None),
            "trusted": (float, None),
            "misfit": (float, None),
            "fits": (bool, None),
            "relative_error": (float, None),
        },
        None,
    ),
    "verified": (
        {
            "outcome": str,
            "compared": int,
            "place": (int, None),
            "tokens": int,
            "standard_error": (float, None),
        },
        None,
    ),
    "choice": ({"method": str, "reasons": list}, None),
    "drawn": ({"rollouts": int, "rollout_length": int, "settings": (str, None)}, None),
    "cost": {
        "forward_tokens": int,
        "backward_tokens": int,
        "bank_tokens": int,
        "drawn_tokens": int,
        "judging_tokens": int,
    },
    "seconds": float,
}
"""Keys that are always there. `context` and `allowed` come with what they hold."""


def check(value, kind, where):
    """Whether a value of JSON is as the schema says."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if value is None:
        assert None in kinds, where
    elif isinstance(kinds[0], dict):
        assert value.keys() == kinds[0].keys(), where
        for key, inner in kinds[0].items():
            check(value[key], inner, f"{where}.{key}")
    else:
        assert type(value) is kinds[0], f"{where}: {value!r}"


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
    conditions = {"context", "allowed"} & RUNS[method].keys()
    assert record.keys() == SCHEMA.keys() | conditions
    assert record.keys() >= PROMISED
    for key, kind in SCHEMA.items():
        check(record[key], kind, key)
    if record["stop_reason"] is not None:
        assert record["stop_reason"] in set(StopReason)


def test_the_schema_check_can_fail():
    with pytest.raises(AssertionError):
        check(1, float, "a whole number is no float")
    with pytest.raises(AssertionError):
        check({"scope": "classes"}, SCHEMA["certificate"], "keys are missing")


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
    row = flat(found)
    assert row["choice_reasons"] == "prior-known,all-tried"
    assert set(FIGURES) - row.keys() == set(), "a record with all its parts fills every column"


def test_other_records_print_what_they_promise():
    judged = evaluate("exact:urn", "dyck", "0101").to_json()
    assert judged.keys() == {
        "model",
        "utility",
        "horizon",
        "prompt",
        "expected_utility",
        "standard_error",
        "rank",
        "optimum",
        "bound",
        "best_prompt",
        "judging_tokens",
    }
    both = compare("exact:urn", "dyck", length=4, methods=["beam", "random(prompts=3)"], seeds=2)
    assert json.loads(json.dumps(both.to_json()))["methods"][0]["method"] == "beam"


FIGURES_OF = {
    Because.ROLLED_OUT: {"tokens": 12345},
    Because.NO_EXACT_MEAN: {"utility": "mine", "horizon": 9},
    Because.NO_EXPECTED_UTILITY: {"utility": "forward-xent(tau-0.2)"},
    Because.NO_LATENTS: {"model": "mine"},
    Because.FEW_TOKENS_LEFT: {"tokens": 7},
    Because.BANK_TOO_DEAR: {"tokens": 12345, "budget": 10},
    Because.FEW_PROMPTS: {"prompts": 64},
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
        "optimal over all 2,452 classes for this bank (conjugate), standard error 0.0008"
    )
    told = EstimatorChoice(
        "conjugate", pareto_k=-0.64, trusted=1.0, misfit=0.8, fits=True, relative_error=0.082
    )
    assert sentences.estimator_text(told) == (
        "conjugate: k-hat -0.64, weights trusted in 100% of probes; misfit 0.8; "
        "the fit errs 0.082 times as much"
    )
    assert sentences.estimator_text(EstimatorChoice("psis", asked=True)) == "psis: as asked"
    ranked = Verification(Asked.RANKED, 8, 3, 273, 0.0)
    assert sentences.verified_text(ranked) == (
        "best of 8 on the model itself: the one it had in place 3; 273 model tokens"
    )
    for outcome in (Asked.ONE_CANDIDATE, Asked.NO_BUDGET):
        assert sentences.verified_text(Verification(outcome)).startswith("no: ")
