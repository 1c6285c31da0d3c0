"""Reasons in words: what the enums and figures of a record say to a person."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posteer.banks.checks.departure import Departure
from posteer.banks.checks.statistics import Interval
from posteer.core.errors import Interrupted
from posteer.methods.answers import (
    EXACT,
    Asked,
    Because,
    Certificate,
    Choice,
    EstimatorChoice,
    Proof,
    StopReason,
    Verification,
)
from posteer.methods.cautions import Caution, Doubt
from posteer.models.shares import Share

BECAUSE = {
    Because.BANK_GIVEN: "latents from the bank given",
    Because.BANK_SHIPPED: "latents it ships with",
    Because.PRIOR_KNOWN: "latents from its known prior",
    Because.ROLLED_OUT: "latents by rolling it out ({tokens:,} model tokens, once)",
    Because.NO_EXACT_MEAN: "{utility} has no exact mean at horizon {horizon}",
    Because.NO_EXPECTED_UTILITY: "{utility} is no expected utility",
    Because.NO_LATENTS: "no method works on what is known of {model}'s latents",
    Because.FEW_TOKENS_LEFT: "{tokens} tokens are left for it to read, too few to roll out",
    Because.BANK_TOO_DEAR: "{budget:,} model tokens do not pay for a bank ({tokens:,})",
    Because.FEW_PROMPTS: "there are {prompts:,} prompts",
    Because.GRADIENTS: "it gives gradients",
    Because.NO_GRADIENTS: "it gives no gradients",
    Because.PRIOR_FINITE: "all its latents are known ({atoms:,})",
    Because.PROVES: "too many prompts to try all: it climbs, then proves a bound",
    Because.ALL_TRIED: "few enough classes to try all",
    Because.CLIMBS: "it climbs: too many to try all",
}


DOUBTS = {
    Doubt.MODEL_IS_NO_SUCH_FILTER: "plain weights say {plain_surrogate:.4f} ± "
    "{plain_standard_error:.4f}, {standard_errors:.0f} standard errors off: the model is no such "
    "Bayes filter",
    Doubt.MODEL_DEPARTS: "exact Bayes under its prior says {plain_surrogate:.4f}: the model "
    "departs from it",
    Doubt.SURROGATE_IS_OFF: "{standard_errors:.0f} standard errors off: the estimate or the model "
    "is to blame, and nothing tells which",
    Doubt.LOW_ESS: "low: the bank hardly covers this posterior",
    Doubt.HIGH_PARETO_K: "above 0.7: do not trust the surrogate",
    Doubt.ALL_ROLLOUTS_ALIKE: "Monte Carlo: all rollouts alike",
    Doubt.BANK_MISMATCH_ALLOWED: "drawn from {bank}, from what it was before, or after another "
    "context: used all the same",
    Doubt.SMALL_ALPHABET_SHARE: "little: the model would rather say something else",
}


def doubt_text(warnings: Sequence[Caution], kind: Doubt) -> str:
    """What a record warns of, of this kind; nothing if it does not."""
    return "".join(DOUBTS[kind].format(**one.figures) for one in warnings if one.kind is kind)


IN_SHORT = {
    Doubt.MODEL_IS_NO_SUCH_FILTER: "the model is no such Bayes filter",
    Doubt.MODEL_DEPARTS: "the model departs from exact Bayes under its prior",
    Doubt.SURROGATE_IS_OFF: "surrogate and model disagree",
    Doubt.LOW_ESS: "the bank hardly covers the posterior",
    Doubt.HIGH_PARETO_K: "Pareto k-hat above 0.7, do not trust the surrogate",
    Doubt.ALL_ROLLOUTS_ALIKE: "all Monte Carlo rollouts alike",
    Doubt.BANK_MISMATCH_ALLOWED: "the bank is of another model or context",
    Doubt.SMALL_ALPHABET_SHARE: "the alphabet holds little of the model's law",
}


ABLE = {
    "read-trees": "all continuations in one pass",
    "one-hots": "gradients in tokens (gcg, simplex-pt, real-pt)",
    "embed": "gradients in embeddings (soft-pt)",
    "narrow": "caches of half the size",
    "exact": "exact Bayes under a known prior (analytic methods, proofs)",
    "shares": "any alphabet of its tokens, after any text",
    "declared": "what it says of itself",
    "each": "what all of them can",
}
"""Abilities in words."""

EXAMPLES = {
    "exact": "--model exact:urn",
    "file": "--model ./file.py:name",
    "folder": "--model FOLDER (of posteer train)",
    "hf": "--model hf:FOLDER --alphabet ' H, T' --text '..'",
    "personas": "--model 'personas(urn,exact:urn)'",
    "smollm2": "--model smollm2 --alphabet ' H, T' --text '..'",
}
"""How a kind of model is named."""


def share_text(share: Share) -> str:
    """What the tokens hold that a language model is steered over."""
    return f"{share.mean:.1%} of the model's law on average, {share.least:.1%} at least"


def warned_text(kind: Doubt, runs: int, of: int) -> str:
    """What so many runs of a comparison warn of."""
    return f"{IN_SHORT[kind]} ({runs} of {of} runs)"


def choice_text(choice: Choice) -> str:
    """Which method, and why."""
    reasons = (BECAUSE[one.because].format(**one.figures) for one in choice.reasons)
    return f"{choice.method}: {'; '.join(reasons)}"


def estimator_text(chosen: EstimatorChoice) -> str:
    """What prompts were scored by, and why."""
    if chosen.name == EXACT:
        return "exact: the prior's latents are known, each with its weight"
    if chosen.asked or chosen.trusted is None or chosen.misfit is None:
        return f"{chosen.name}: as asked"
    if chosen.tuned:
        return f"{chosen.name}: latents are those that predict best when so weighed"
    weights = f"k-hat {chosen.pareto_k:.2f}, weights trusted in {chosen.trusted:.0%} of probes"
    fits = "misfit not known" if math.isnan(chosen.misfit) else f"misfit {chosen.misfit:.1f}"
    if chosen.pareto_k_at_best is not None:
        weights += f", not at the prompt they like best (k-hat {chosen.pareto_k_at_best:.2f} there)"
    if not chosen.fits:
        return f"{chosen.name}: {weights}; the fit is not ({fits})"
    if chosen.relative_error is None:
        return f"{chosen.name}: {weights}; {fits}"
    ratio = f"the fit errs {chosen.relative_error:.2g} times as much"
    return f"{chosen.name}: {weights}; {fits}; {ratio}"


def verified_text(found: Verification) -> str:
    """What asking the model itself gave."""
    if found.outcome is Asked.ONE_CANDIDATE:
        return "no: the method has one candidate"
    if found.outcome is Asked.NO_BUDGET:
        return "no: the budget does not pay for two candidates"
    if found.rounds > 1 or found.bound is not None:
        return _adapted_text(found)
    place = "its own first choice" if found.place == 1 else f"the one it had in place {found.place}"
    how = f", each ± {found.standard_error:.4f} by sampling" if found.standard_error else ""
    return (
        f"best of {found.compared} on the model itself{how}: {place}; {found.tokens:,} model tokens"
    )


def _adapted_text(found: Verification) -> str:
    """What asking round after round gave."""
    place = {None: "met on the way", 1: "the bank's first choice"}
    which = place.get(found.place, f"the bank's choice {found.place}")
    if found.settled:
        rest = "no other is expected to be better by two errors"
    elif found.bound is None:
        rest = "nothing is left to ask"
    else:
        rest = f"others may reach {found.bound:.4f} (two errors added)"
    times = "round" if found.rounds == 1 else "rounds"
    return (
        f"best of {found.compared} on the model itself, asked in {found.rounds} {times}: {which}; "
        f"{rest}; {found.tokens:,} model tokens"
    )


def certificate_text(found: Certificate, doubted: bool = False, known: bool = True) -> str:
    """What the prompt is provably best of; nothing where the model is no such filter. Of a prior
    alone where it is not `known` that the model filters it exactly."""
    if doubted:
        return "none: what is best for this bank is not known to be so for this model"
    if found.estimator == EXACT:
        whose = "" if known else " for its prior"
        return f"optimal over all {found.count:,} {found.scope}{whose}, exactly"
    return (
        f"optimal over all {found.count:,} {found.scope} for this bank ({found.estimator}), "
        f"standard error {found.standard_error:.4f}"
    )


def proof_text(found: Proof, stopped: StopReason | None, known: bool = True) -> str:
    """What no prompt exceeds, on the model or on its prior alone."""
    whose = "" if known else " for its prior"
    if found.gap <= 0:
        return f"no prompt is better{whose} ({found.nodes:,} nodes)"
    limits = (StopReason.NODE_LIMIT, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
    why = f", {stopped}" if stopped in limits else ""
    more = f"{found.gap:.1e} more ({found.nodes:,} nodes{why})"
    return f"no prompt exceeds {found.bound:.6g}{whose}, {more}"


def interrupted_text(stop: Interrupted) -> str:
    """What is kept of a draw that was interrupted, and how to go on."""
    if stop.where is not None and not stop.done:
        return "interrupted: no rollout is kept yet; the same command begins again"
    if stop.where is None:
        return (
            "interrupted: no rollout is kept; with a file for the bank (elicit --save-bank, sample "
            "--out) the same command would go on"
        )
    return (
        f"interrupted: {stop.done:,} of at most {stop.wanted:,} rollouts are kept in "
        f"{stop.where}; the same command goes on from there"
    )


def departure_lines(found: Departure) -> list[str]:
    """How far a model is from a filter over its latents, and what that means for steering."""
    lines = [
        f"on its own rollouts the model is {_nats(found.mixture)} from the posterior mixture over "
        f"these latents; one that learns nothing from what it reads is {_nats(found.unweighed)} "
        f"away, the best single latent {_nats(found.fixed)}",
        f"the mixture learns {found.explained:.0%} of what a history has to tell",
        f"on random histories, as prompts are, the model is {_nats(found.on_prompts)} from the "
        f"mixture and {_nats(found.corrected)} from its correction by what was read",
        f"halves of a rollout differ by {_interval(found.drift)} in their frequencies, those of a "
        f"filter over these latents by {_interval(found.drift_of_filter)}",
    ]
    if found.alphabet_share is not None:
        lines.append(f"the alphabet holds {found.alphabet_share:.0%} of the law on such histories")
    lines.append(
        f"the bank's surrogate should order prompts as J does to a rank correlation of "
        f"{_interval(found.rank_correlation)}, as other models foretell"
    )
    near = found.mixture.value <= found.corrected.value
    worth = "the bank's surrogate will do" if near else "verify: answers will correct the surrogate"
    return [*lines, f"for steering: {worth}"]


def _nats(found: Interval) -> str:
    return f"{_interval(found)} nats a token"


def _interval(found: Interval) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
