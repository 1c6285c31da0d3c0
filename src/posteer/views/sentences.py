"""Reasons in words: what the enums and figures of a record say to a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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
    Scope,
    StopReason,
    Verification,
)
from posteer.methods.cautions import FIRST_CHOICE, Caution, Doubt
from posteer.models.shares import Share
from posteer.results import Elicitation

BECAUSE = {
    Because.BANK_GIVEN: "latents from the bank given",
    Because.BANK_SHIPPED: "latents from the bank that ships with the model",
    Because.PRIOR_KNOWN: "latents drawn from the model's known prior",
    Because.ROLLED_OUT: "latents read off texts that the model writes ({tokens:,} model tokens, "
    "once)",
    Because.BANK_KEPT: "latents kept from an earlier call ({tokens:,} model tokens then)",
    Because.NO_EXACT_MEAN: "{utility} has no exact mean at horizon {horizon}",
    Because.NO_EXPECTED_UTILITY: "{utility} is no mean over continuations",
    Because.NO_LATENTS: "no method works on what is known of {model}'s latents",
    Because.FEW_TOKENS_LEFT: "{tokens} tokens are left for the model to read, too few for latents",
    Because.BANK_TOO_DEAR: "{budget:,} model tokens do not pay for a bank of latents ({tokens:,})",
    Because.FEW_PROMPTS: "there are only {prompts:,} prompts",
    Because.ALL_CHEAPER: "to try all takes {tokens:,} model tokens, a bank {bank:,} or more",
    Because.ALL_QUICKER: "to try all ({tokens:,} model tokens) is quicker than to work on latents",
    Because.GRADIENTS: "the model gives gradients",
    Because.NO_GRADIENTS: "the model gives no gradients",
    Because.PRIOR_FINITE: "all latents of the model are known ({atoms:,})",
    Because.PROVES: "too many prompts to try all: it improves one, then proves a bound",
    Because.ALL_TRIED: "few enough classes of prompts to try all",
    Because.CLIMBS: "too many to try all: it improves one step by step",
}


DOUBTS = {
    Doubt.MODEL_IS_NO_SUCH_FILTER: "its latents foretell {plain_surrogate:.4f} ± "
    "{plain_standard_error:.4f}, {standard_errors} standard errors off: the model is no such "
    "Bayes filter",
    Doubt.MODEL_DEPARTS: "exact Bayes under its prior says {plain_surrogate:.4f}: the model "
    "departs from it",
    Doubt.SURROGATE_IS_OFF: "the bank foretold another value, {standard_errors} standard "
    "errors off: the estimate or the model is to blame, and nothing tells which",
    Doubt.READING_LEFT_OUT: "the bank's error leaves out that its latents were read off "
    "rollouts of {rollout_length:,} tokens",
    Doubt.LOW_ESS: "hardly any of the bank's latents count after this prompt: its estimate is poor",
    Doubt.HIGH_PARETO_K: "a few latents decide the bank's estimate (Pareto k-hat above 0.7): do "
    "not trust it",
    Doubt.ALL_ROLLOUTS_ALIKE: "all sampled continuations are alike: the error is not known",
    Doubt.BANK_MISMATCH_ALLOWED: "the bank was drawn from {bank}, from what it was before, or "
    "after another context: used all the same",
    Doubt.SMALL_ALPHABET_SHARE: "the model would rather say something else than these tokens",
}


MANY_ERRORS = 1000
"""Standard errors off, from which their number says no more."""


def doubt_text(warnings: Sequence[Caution], kind: Doubt) -> str:
    """What a record warns of, of this kind; nothing if it does not."""
    return "".join(_doubted(one.figures, kind) for one in warnings if one.kind is kind)


def _doubted(figures: dict[str, Any], kind: Doubt) -> str:
    off = figures.get("standard_errors", 0.0)
    errors = f"{off:.0f}" if off <= MANY_ERRORS else f"over {MANY_ERRORS:,}"
    text = DOUBTS[kind].format(**{**figures, "standard_errors": errors})
    if not figures.get(FIRST_CHOICE):
        return text
    return f"{text} (its first choice, of which the model says {figures['expected_utility']:.4f})"


IN_SHORT = {
    Doubt.MODEL_IS_NO_SUCH_FILTER: "the model is no such Bayes filter",
    Doubt.MODEL_DEPARTS: "the model departs from exact Bayes under its prior",
    Doubt.SURROGATE_IS_OFF: "surrogate and model disagree",
    Doubt.READING_LEFT_OUT: "errors leave out that latents were read off rollouts",
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
        return "exact: all latents are known, each with its weight"
    if chosen.asked or chosen.trusted is None or chosen.misfit is None:
        return f"{chosen.name}: as asked"
    if chosen.tuned:
        return f"{chosen.name}: the latents were chosen to predict best when so weighed"
    weights = (
        f"plain weights can be trusted on {chosen.trusted:.0%} of test prompts (median Pareto "
        f"k-hat {chosen.pareto_k:.2f}, good below 0.7)"
    )
    if chosen.pareto_k_at_best is not None:
        weights += (
            f", but not at the prompt they like best (k-hat {chosen.pareto_k_at_best:.2f} there)"
        )
    return f"{chosen.name}: {weights}; {_fit_text(chosen)}"


def _fit_text(chosen: EstimatorChoice) -> str:
    """How well a prior that is fitted to the bank agrees with it."""
    if chosen.misfit is None or math.isnan(chosen.misfit):
        return "how well a prior fits the bank is not known"
    fits = f"a prior fitted to the bank is {chosen.misfit:.1f} standard errors off"
    if not chosen.fits:
        return f"{fits}, too far"
    if chosen.relative_error is None:
        return fits
    return f"{fits}, and errs {chosen.relative_error:.2g} times as much as plain weights"


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


SCOPES = {
    Scope.CLASSES: "classes of prompts",
    Scope.ALLOWED_CLASSES: "classes of allowed prompts",
    Scope.PROMPTS: "prompts",
    Scope.ALLOWED_PROMPTS: "allowed prompts",
}
"""What a search that left nothing out has tried all of."""


def certificate_text(found: Certificate, doubted: bool = False, known: bool = True) -> str:
    """What the prompt is provably best of; nothing where the model is no such filter. Of a prior
    alone where it is not `known` that the model filters it exactly."""
    if doubted:
        return "what is best for this bank is not known to be best for this model"
    what = f"the best of all {found.count:,} {SCOPES[found.scope]}"
    if found.estimator == EXACT:
        return f"{what}, exactly" if known else f"{what} for its prior, exactly"
    return f"{what}, as far as the bank of latents tells (± {found.standard_error:.4f})"


def sure_lines(found: Elicitation) -> list[str]:
    """How sure it is that no prompt is better, a line each."""
    answer, judged = found.answer, found.judged
    known = judged.bound is not None  # of exact models alone
    lines = []
    if judged.rank is not None and judged.n_prompts is not None:
        kind = "prompts" if found.asked.allowed is None else "allowed prompts"
        better = "none" if judged.rank == 1 else f"{judged.rank - 1:,}"
        verb = "are" if judged.rank > 2 else "is"
        lines.append(f"{better} of all {judged.n_prompts:,} {kind} {verb} better")
    elif answer.proof is not None:
        lines.append(proof_text(answer.proof, answer.stop_reason, known))
    elif answer.certificate is not None:
        doubted = any(one.kind is Doubt.MODEL_IS_NO_SUCH_FILTER for one in judged.warnings)
        lines.append(certificate_text(answer.certificate, doubted, known))
    else:
        lines.append("not all prompts were tried: there may be better ones")
    if answer.verified is not None and answer.verified.compared > 1:
        place = answer.verified.place
        first = ", which was the search's first choice" if place == 1 else ""
        lines.append(f"best of {answer.verified.compared} asked of the model itself{first}")
    if found.departure is not None:
        lines.append(f"the model is {departure_text(found.departure)}")
    return lines


def cost_text(cost: dict[str, int]) -> str:
    """Model tokens that a run took, and its bank."""
    asked = cost["forward_tokens"] + cost["backward_tokens"]
    own = f"{asked:,} model tokens" if asked else "no model tokens"
    if cost["drawn_tokens"]:
        return f"{own}, and {cost['drawn_tokens']:,} for a bank of latents, which can be kept"
    if cost["bank_tokens"]:
        return f"{own}; its bank of latents took {cost['bank_tokens']:,}, once for all utilities"
    return own


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


DEVIATIONS = {
    "prior": "its latents are not spread as its prior says",
    "ranks": "what it writes is not what it foresees, as often as it should be",
    "martingale": "its predictions drift as it writes",
    "exchangeability": "it matters to it in which order equal pieces come",
    "atoms": "its latents are not as often the known ones as its prior says",
}
"""What a check has found, by its name."""


def answer_text(alarms: Sequence[str], tests: int, departure: Departure | None = None) -> str:
    """Whether a model believes by Bayes' rule, and what that means for steering it."""
    if not tests:
        return "not known: no test applies"
    if not alarms and departure is not None and not _is_near(departure):
        return "not closely, by how far it is from its latents: have prompts confirmed (--verify)"
    if not alarms:
        return "yes, as far as these tests can tell: a bank of its latents foretells its prompts"
    found = "; ".join(DEVIATIONS.get(name, name) for name in alarms)
    return f"no: {found}. Have prompts confirmed by the model itself (--verify)"


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
    worth = (
        "the bank's surrogate will do"
        if _is_near(found)
        else "verify: answers will correct the surrogate"
    )
    return [*lines, f"for steering: {worth}"]


def departure_text(found: Departure) -> str:
    """The same in short."""
    learns = f"it learns {found.explained:.0%} of what a history tells"
    return (
        f"{found.mixture.value:.3f} nats a token from a filter over these latents, {learns}; "
        f"surrogate and J should correlate by {_interval(found.rank_correlation)}"
    )


def _is_near(found: Departure) -> bool:
    return found.mixture.value <= found.corrected.value


def _nats(found: Interval) -> str:
    return f"{_interval(found)} nats a token"


def _interval(found: Interval) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
