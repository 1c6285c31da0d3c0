"""How far a record is to be doubted: kinds of warnings, their figures, and what decides them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from posteer.methods.answers import Answer
from posteer.models.shares import SMALL_SHARE, Share

BLAMED_BEYOND = 5.0
"""Standard errors between a bank's estimate and the model's own J that are not chance."""

ROUNDING = 1e-6
"""Of J on a network, relative to its size: an error of zero is no reason to blame anybody."""

DEPARTURE = 0.05
"""Of J, by which a model may be off from exact Bayes under its own prior before it is said."""

LEAST_ESS_FRACTION, MOST_PARETO_K = 0.01, 0.7


class Doubt(StrEnum):
    """What a record warns of."""

    MODEL_IS_NO_SUCH_FILTER = "model-is-no-such-filter"
    MODEL_DEPARTS = "model-departs"
    SURROGATE_IS_OFF = "surrogate-is-off"
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
    be a poor fit. Estimates are of the prompt that a method had first; they say nothing of one that
    the model itself preferred.
    """
    verified = answer.verified
    same_prompt = verified is None or verified.place in (None, 1)
    known = answer.plain_surrogate if answer.plain_standard_error == 0 else None
    if exact and same_prompt and known is not None:  # nothing was estimated: how much, not whether
        size = max(abs(known), abs(expected_utility))
        if abs(expected_utility - known) > DEPARTURE * size + ROUNDING:
            departs = {"plain_surrogate": known, "expected_utility": expected_utility}
            yield Caution(Doubt.MODEL_DEPARTS, departs)
    elif exact and same_prompt:
        error = answer.plain_standard_error
        off = errors_off(answer.plain_surrogate, error, expected_utility)
        if off is not None:
            figures = {
                "plain_surrogate": answer.plain_surrogate,
                "plain_standard_error": error,
                "expected_utility": expected_utility,
                "standard_errors": off,
            }
            yield Caution(Doubt.MODEL_IS_NO_SUCH_FILTER, figures)
        elif answer.snapped_surrogate is None:
            error = answer.surrogate_standard_error
            off = errors_off(answer.surrogate, error, expected_utility)
            if off is not None:
                yield Caution(Doubt.SURROGATE_IS_OFF, {"standard_errors": off})
    ess = answer.ess_fraction
    if ess is not None and not ess >= LEAST_ESS_FRACTION:
        yield Caution(Doubt.LOW_ESS, {"ess_fraction": ess})
    if weighs(answer) and answer.pareto_k is not None and answer.pareto_k > MOST_PARETO_K:
        yield Caution(Doubt.HIGH_PARETO_K, {"pareto_k": answer.pareto_k})


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
