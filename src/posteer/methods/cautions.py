"""How far a record is to be doubted: kinds of warnings, their figures, and what decides them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from posteer.methods.answers import Answer, Asked
from posteer.models.shares import SMALL_SHARE, Share

BLAMED_BEYOND = 5.0
"""Standard errors between a bank's estimate and the model's own J that are not chance."""

ROUNDING = 1e-6
"""Of J on a network, relative to its size: an error of zero is no reason to blame anybody."""

DEPARTURE = 0.05
"""Of J, by which a model may be off from exact Bayes under its own prior before it is said."""

FIRST_CHOICE = "of_first_choice"
"""The figure that says that others are of the prompt a method had first, not of the answer."""

LEAST_ESS_FRACTION, MOST_PARETO_K = 0.01, 0.7


class Doubt(StrEnum):
    """What a record warns of."""

    MODEL_IS_NO_SUCH_FILTER = "model-is-no-such-filter"
    MODEL_DEPARTS = "model-departs"
    SURROGATE_IS_OFF = "surrogate-is-off"
    READING_LEFT_OUT = "reading-left-out"
    LOW_ESS = "low-ess"
    HIGH_PARETO_K = "high-pareto-k"
    ALL_ROLLOUTS_ALIKE = "all-rollouts-alike"
    BANK_MISMATCH_ALLOWED = "bank-mismatch-allowed"
    SMALL_ALPHABET_SHARE = "small-alphabet-share"


@dataclass(frozen=True)
class Caution:
    """One warning and its figures."""

    kind: Doubt
    figures: dict[str, Any] = field(default_factory=dict)


def errors_off(
    estimate: float | None, standard_error: float | None, expected_utility: float
) -> float | None:
    """By how many standard errors a model is to blame for not doing what its latents say.

    None where it is not: there is no error to compare with, or the two are too close.
    """
    if estimate is None or standard_error is None:
        return None
    off = abs(expected_utility - estimate)
    rounding = ROUNDING * max(1.0, abs(expected_utility))
    if not off > BLAMED_BEYOND * standard_error + rounding:
        return None
    return off / standard_error if standard_error > 0 else math.inf


def of_search(answer: Answer, expected_utility: float, exact: bool) -> Iterator[Caution]:
    """What a search gives reason to doubt, by its figures and the J of its prompt.

    A model is blamed by plain weights alone, where they are sound: a fit that it disagrees with may
    be a poor fit. Estimates are of the prompt that a method had first: where the model itself
    preferred another, they are compared with what it says of that first one.
    """
    preferred = _preferred_another(answer)
    value = answer.verified.first if preferred and answer.verified else expected_utility
    if exact and value is not None:
        for doubt in _of_estimates(answer, value):
            figures = {**doubt.figures, FIRST_CHOICE: True} if preferred else doubt.figures
            yield Caution(doubt.kind, figures)
    if answer.read_off is not None and answer.surrogate_standard_error is not None:
        yield Caution(Doubt.READING_LEFT_OUT, {"rollout_length": answer.read_off})
    ess = answer.ess_fraction
    if ess is not None and not ess >= LEAST_ESS_FRACTION:
        yield Caution(Doubt.LOW_ESS, {"ess_fraction": ess})
    if weighs(answer) and answer.pareto_k is not None and answer.pareto_k > MOST_PARETO_K:
        yield Caution(Doubt.HIGH_PARETO_K, {"pareto_k": answer.pareto_k})


def _preferred_another(answer: Answer) -> bool:
    """Whether the model itself chose another prompt than the one that was estimated."""
    asked = answer.verified
    return asked is not None and asked.outcome is Asked.RANKED and asked.place != 1


def _of_estimates(answer: Answer, value: float) -> Iterator[Caution]:
    """What the model's own J of the prompt that was estimated says of the estimates, or of it."""
    known = answer.plain_surrogate if answer.plain_standard_error == 0 else None
    if known is not None:  # nothing was estimated: how much, not whether
        if abs(value - known) > DEPARTURE * max(abs(known), abs(value)) + ROUNDING:
            departs = {"plain_surrogate": known, "expected_utility": value}
            yield Caution(Doubt.MODEL_DEPARTS, departs)
        return
    off = errors_off(answer.plain_surrogate, answer.plain_standard_error, value)
    if off is not None:
        figures = {
            "plain_surrogate": answer.plain_surrogate,
            "plain_standard_error": answer.plain_standard_error,
            "expected_utility": value,
            "standard_errors": off,
        }
        yield Caution(Doubt.MODEL_IS_NO_SUCH_FILTER, figures)
    elif answer.snapped_surrogate is None:
        off = errors_off(answer.surrogate, answer.surrogate_standard_error, value)
        if off is not None:
            figures = {
                "surrogate": answer.surrogate,
                "expected_utility": value,
                "standard_errors": off,
            }
            yield Caution(Doubt.SURROGATE_IS_OFF, figures)


def weighs(answer: Answer) -> bool:
    """Whether the surrogate is a mean over weights, so that their tail matters."""
    return answer.estimator is None or answer.ess_fraction is not None


def of_judgement(
    standard_error: float, exact: bool, share: Share | None = None
) -> Iterator[Caution]:
    """What there is to doubt of a prompt's J, and of what it is J of."""
    if not exact and standard_error == 0:
        yield Caution(Doubt.ALL_ROLLOUTS_ALIKE)
    if share is not None and not share.mean >= SMALL_SHARE:
        yield Caution(Doubt.SMALL_ALPHABET_SHARE, {"mean": share.mean, "least": share.least})
