"""`auto`: which method to use when none is asked for, and why.

It reads what methods declare that they need and what the problem has: latents at hand if any method
that works on them can be used, else a search on the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from posteer.banks import DrawPlan
from posteer.banks.kept import is_kept
from posteer.banks.reweighed import effective_latents
from posteer.banks.shipped import shipped_bank
from posteer.banks.sizing import (
    SHORTEST_ROLLOUT,
    is_sized,
    least_of,
    most_of,
    speaks,
    to_tune,
)
from posteer.core import InputError, Progress, Spec, integer, require
from posteer.core.limits import ENUMERABLE_CLASSES, LISTED_PROMPTS
from posteer.families.protocol import Fittable
from posteer.methods.answers import Answer, Because, Choice, Reason, Scope
from posteer.methods.bounds.method import atoms_of
from posteer.methods.latent_source import (
    ENOUGH_LATENTS,
    draw_plan,
    require_no_saving,
    with_tuned_bank,
)
from posteer.methods.needs import unmet
from posteer.methods.prices import FEWEST_LATENTS, cheaper_than_bank, quicker_than_latents
from posteer.methods.protocol import Drawn, LatentsFrom, Needs, Problem, Work
from posteer.methods.registry import open_method
from posteer.models.protocol import Can

FEW_PROMPTS = 256
"""Prompts that are all tried where nothing but the model can tell them apart."""

PASSED_OVER = ("exact_means", "counts")
"""Needs for the lack of which the next method on latents is tried."""

DRAWN = (Because.ROLLED_OUT, Because.BANK_KEPT)
"""Reasons that a bank is drawn for, or has been."""

ON_LATENTS = ("classes", "climb", "ppt")
"""Methods on latents, the better first: classes need counts, and the last no exact means."""


@dataclass(frozen=True, kw_only=True)
class Auto:
    """Chooses by the problems at hand, says so in its answers, and leaves the rest to the choice.

    `verify` as in a request.
    """

    verify: int = 0

    @property
    def needs(self) -> Needs:
        return Needs(
            draw=draw_plan(),
            bank=True,
            candidates=True,
            device=True,
            proves=True,
            verify=self.verify,
        )

    def forecast(self, problem: Problem, together: int) -> Work:
        problem = _on_its_own_bank(problem)
        return open_method(choose([problem]).method).forecast(problem, together)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        before = replace(problems[0].model.queries)
        problems = list(map(_on_its_own_bank, problems))
        choice = choose(problems)
        looked = problems[0].model.queries.since(before)  # latents that are models are asked
        method = open_method(choice.method)
        if method.needs.latents is not LatentsFrom.ROLLOUTS:
            why = f"{choice.method} is used, which draws none"
            require_no_saving(problems[0].request.save_bank, why)
        if any(reason.because in DRAWN for reason in choice.reasons):
            problems = with_tuned_bank(_drawn_by(problems[0]), problems, progress)
        answers = method.solve(problems, progress)
        answers[0] = replace(answers[0], queries=answers[0].queries.plus(looked))
        choice = _with_sizes(choice, problems[0].drawn)
        return [replace(answer, choice=_with_reach(choice, answer)) for answer in answers]


def choose(problems: list[Problem]) -> Choice:
    """A method and the reasons for it, by what is known of the model and the goals."""
    choice = _chosen(list(map(_on_its_own_bank, problems)))
    if any(map(_limited, problems)) and not open_method(choice.method).needs.proves:
        raise InputError(f"gap and nodes are limits of a proof: {choice.method} has none")
    return choice


def _chosen(problems: list[Problem]) -> Choice:
    for problem in problems:
        if unmet(Needs(bank=True, expected_utility=True, proves=True), problem) is not None:
            return _search(problem, _why_not("expected_utility", problem))
    if not _has_bank(problems[0]) and all(_fits("bounds", problem) for problem in problems):
        return _on_atoms(problems)
    lacking = None
    settings, reason = _latents_at_hand(problems[0])
    if settings is None:
        return _search(problems[0], reason)
    all_tried = _all_tried(problems, reason)
    if all_tried is not None:
        return all_tried
    for name in ON_LATENTS:
        text = f"{name}{settings}"
        missing = [unmet(open_method(text).needs, problem) for problem in problems]
        wrong = [(one, problem) for one, problem in zip(missing, problems, strict=True) if one]
        if not wrong:
            return Choice(text, (reason,) if lacking is None else (lacking, reason))
        need, problem = wrong[0]
        if need.need not in PASSED_OVER:
            return _search(problem, _why_not(need.need, problem))
        lacking = _why_not(need.need, problem) if need.need == "exact_means" else lacking
    return _search(problems[0], reason)


def _all_tried(problems: list[Problem], latents: Reason) -> Choice | None:
    """Every prompt asked of the model, where that costs less than latents would."""
    why, problem = None, problems[0]
    if not all(_fits("exhaustive", one) for one in problems):
        return None
    if latents.because is Because.ROLLED_OUT:
        why = cheaper_than_bank(problems, _drawn_by(problem))
    elif latents.because is Because.BANK_KEPT:
        why = cheaper_than_bank(problems, _drawn_by(problem), clock=None)
    elif latents.because is Because.PRIOR_KNOWN:
        why = quicker_than_latents(problems, draw_plan().n_samples)
    if why is None:
        return None
    few = Reason(Because.FEW_PROMPTS, {"prompts": problem.vocab_size**problem.length})
    return Choice("exhaustive", (few, why))


def _has_bank(problem: Problem) -> bool:
    """Whether there are rollouts of the model itself: they tell more than its training data."""
    return problem.bank is not None or shipped_bank(problem.model.base.fingerprint) is not None


def _on_its_own_bank(problem: Problem) -> Problem:
    """With the bank that a model ships with, where its latents are other than the model says: those
    are then what methods are chosen for."""
    shipped = shipped_bank(problem.model.base.fingerprint)
    if problem.bank is not None or shipped is None:
        return problem
    known = shipped.latents.family == problem.model.family
    enough = effective_latents(shipped, problem.context) >= ENOUGH_LATENTS
    return problem if known or not enough else replace(problem, bank=shipped)


def _on_atoms(problems: list[Problem]) -> Choice:
    """All latents are known: by classes where these are few, else by prompts, with a proof."""
    known = Reason(Because.PRIOR_FINITE, {"atoms": len(atoms_of(problems[0]).atoms)})
    if not any(map(_limited, problems)) and all(_few_classes(problem) for problem in problems):
        return Choice("classes-analytic", (known,))
    return Choice("bounds", (known,))


def _limited(problem: Problem) -> bool:
    return problem.request.gap is not None or problem.request.nodes is not None


def _few_classes(problem: Problem) -> bool:
    """Whether prompts fall into classes that can all be tried, and are themselves too many."""
    few = problem.vocab_size ** min(problem.length, 64) <= LISTED_PROMPTS
    if few or not _fits("classes-analytic", problem):
        return False
    return problem.markov.by_classes and problem.markov.enumerate(ENUMERABLE_CLASSES) is not None


def _why_not(need: str, problem: Problem) -> Reason:
    """Why no method on latents will do."""
    if need == "exact_means":
        figures = {"utility": problem.goal.name, "horizon": problem.horizon}
        return Reason(Because.NO_EXACT_MEAN, figures)
    if need == "expected_utility":
        return Reason(Because.NO_EXPECTED_UTILITY, {"utility": problem.goal.name})
    return Reason(Because.NO_LATENTS, {"model": problem.model.name})


def _latents_at_hand(problem: Problem) -> tuple[str | None, Reason]:
    """Where latents would come from, as a suffix of a method's name, and why; or why not."""
    model, base = problem.model, problem.model.base
    shipped = shipped_bank(base.fingerprint)
    if problem.bank is not None and problem.bank is not shipped:
        return "", Reason(Because.BANK_GIVEN)
    family: object = model.family
    if shipped is not None:
        return "", Reason(Because.BANK_SHIPPED)
    if model.prior is not None:
        return "-analytic", Reason(Because.PRIOR_KNOWN)
    if not isinstance(family, Fittable):
        return None, Reason(Because.NO_LATENTS, {"model": model.name})
    draw = most_of(base, _drawn_by(problem))
    rollout = draw.rollout_length
    if rollout < SHORTEST_ROLLOUT:
        return None, Reason(Because.FEW_TOKENS_LEFT, {"tokens": rollout - 1})
    sized, budget = is_sized(base, draw), problem.max_model_tokens
    if sized and problem.request.save_bank is None and is_kept(base, _drawn_by(problem)):
        return "", Reason(Because.BANK_KEPT, {"tokens": 0})
    least = least_of(base, draw, FEWEST_LATENTS) if sized else draw
    if budget is not None and least.price(base) > budget:
        figures = {"tokens": least.price(base), "budget": budget}
        return None, Reason(Because.BANK_TOO_DEAR, figures)
    named = not sized and rollout != DrawPlan().rollout_length
    settings = f"(rollout-length={rollout})" if named else ""
    return settings, Reason(Because.ROLLED_OUT, {"tokens": draw.price(base)})


def _drawn_by(problem: Problem) -> DrawPlan:
    """How a bank is drawn: of a language model, as predicts it best."""
    plan, base = replace(draw_plan(), context=problem.context), problem.model.base
    return to_tune(base, plan) if speaks(base) and is_sized(base, plan) else plan


def _search(problem: Problem, reason: Reason) -> Choice:
    """A search on the model itself: all prompts if they are few, by gradient if it gives any."""
    model, budget = problem.model, problem.max_model_tokens
    n_prompts = problem.vocab_size ** min(problem.length, 64)
    price = n_prompts * model.tokens_of(problem.length, problem.horizon)
    affordable = budget is None or price <= budget
    if n_prompts <= FEW_PROMPTS and affordable and _fits("exhaustive", problem):
        few = Reason(Because.FEW_PROMPTS, {"prompts": n_prompts})
        return Choice("exhaustive", (reason, few))
    if _fits("gcg", problem):
        return Choice("gcg", (reason, Reason(Because.GRADIENTS)))
    lacking = unmet(open_method("coordinate").needs, problem)
    if lacking is not None and lacking.need == "continuations":
        dear = reason.because is Because.BANK_TOO_DEAR
        needed = reason.figures.get("tokens")
        advice = f"; a bank of latents would take {needed:,} model tokens" if dear else ""
        raise InputError(f"auto: {lacking.problem}{advice}")
    none = () if Can.ONE_HOTS in model.can else (Reason(Because.NO_GRADIENTS),)
    return Choice("coordinate", (reason, *none))


def _fits(name: str, problem: Problem) -> bool:
    return unmet(open_method(name).needs, problem) is None


def _with_sizes(choice: Choice, drawn: Drawn) -> Choice:
    """The choice with the sizes of a bank that were found out, and what it took to draw it."""
    reasons = choice.reasons
    if drawn.bank is not None:
        how = Because.BANK_KEPT if drawn.bank.reused else Because.ROLLED_OUT
        told = Reason(how, {"tokens": drawn.bank.tokens})
        reasons = tuple(told if reason.because in DRAWN else reason for reason in reasons)
    method = choice.method if drawn.settings is None else f"{choice.method}({drawn.settings})"
    return replace(choice, method=method, reasons=reasons)


def _with_reach(choice: Choice, answer: Answer) -> Choice:
    """The choice, and whether a search over classes could try them all."""
    if answer.estimator is None or answer.stop_reason is None:
        return choice
    tried = answer.certificate
    if tried is not None and tried.scope in (Scope.PROMPTS, Scope.ALLOWED_PROMPTS):
        few = Reason(Because.FEW_PROMPTS, {"prompts": tried.count})
        return replace(choice, reasons=(*choice.reasons, few))
    if answer.proof is not None and tried is None:
        return replace(choice, reasons=(*choice.reasons, Reason(Because.PROVES)))
    all_tried = answer.stop_reason in {scope.stop_reason for scope in Scope}
    reach = Because.ALL_TRIED if all_tried else Because.CLIMBS
    return replace(choice, reasons=(*choice.reasons, Reason(reach)))


def from_spec(spec: Spec) -> Auto:
    """`auto`, or `auto(verify=8)`."""
    verify = integer(spec.take(verify=0)["verify"], "verify")
    require(verify >= 0, f"verify {verify}: expected at least 0")
    return Auto(verify=verify)
