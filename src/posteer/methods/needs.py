"""Whether a problem has what a method needs: for refusals, for what they advise, for `auto`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from posteer.core.errors import InputError
from posteer.core.limits import ENUMERABLE_CONTINUATIONS
from posteer.families.markov.family import MarkovFamily
from posteer.families.markov.means import has_exact_mean
from posteer.families.protocol import Counted, FinitePrior, Fittable, Tiltable
from posteer.goals.protocol import Utility
from posteer.methods.protocol import LatentsFrom, Needs, Problem, only_asked
from posteer.methods.registry import METHODS, open_method
from posteer.models.protocol import Can


@dataclass(frozen=True)
class Unmet:
    """The first need that is not met: which, and what is wrong in the terms of the problem."""

    need: str
    problem: str


def unmet(needs: Needs, problem: Problem) -> Unmet | None:
    """What a problem lacks for a method with these needs; None if nothing."""
    model, goal = problem.model, problem.goal
    vocab, horizon = problem.vocab_size, problem.horizon
    family: Any = problem.family
    if needs.expected_utility and not isinstance(goal, Utility):
        return Unmet(
            "expected_utility",
            f"{goal.name} is no expected utility, which is what PPT ascends",
        )
    if needs.model not in model.can:
        differentiates = bool(needs.model & (Can.ONE_HOTS | Can.EMBED))
        what = "gradients" if differentiates else "abilities"
        return Unmet("model", f"needs {what} and {model.name} gives none")
    drawn_from = needs.targets and not isinstance(goal, Utility)
    if needs.continuations and not drawn_from and vocab**horizon > ENUMERABLE_CONTINUATIONS:
        return Unmet("continuations", f"{vocab}**{horizon} continuations are too many to enumerate")
    if not needs.conditions and problem.allowed is not None:
        return Unmet("conditions", "cannot honour allowed prompts")
    if needs.latents is LatentsFrom.PRIOR and model.prior is None:
        return Unmet("latents", f"{model.name} has no known prior to draw from")
    if needs.finite and not isinstance(model.prior, FinitePrior):
        return Unmet("finite", f"{model.name} has no prior of finitely many latents")
    limited = problem.request.gap is not None or problem.request.nodes is not None
    if limited and not needs.proves:
        return Unmet("proves", "proves no bound, so that gap and nodes say nothing to it")
    if problem.bank is not None and not needs.bank:
        return Unmet("bank", "uses no bank")
    drawn = needs.latents is LatentsFrom.ROLLOUTS and problem.bank is None
    if drawn and not isinstance(family, Fittable):
        return Unmet("latents", f"{model.name} does not say how latents are read off its rollouts")
    if needs.counts and not isinstance(family, Counted):
        return Unmet("counts", f"{model.name} has no latents that see a prompt through counts")
    if needs.tilts and not isinstance(family, Tiltable):
        return Unmet("tilts", f"{model.name} has no latents that a prompt kernel tilts")
    markov = isinstance(family, MarkovFamily)
    if needs.counts and not markov:
        return Unmet("counts", f"works on Markov kernels, and {model.name} has other latents")
    exact = needs.exact_means or (
        needs.tilts and not markov
    )  # states are not rolled out one by one
    if exact and not has_exact_mean(problem.expected, vocab, horizon, not only_asked(problem)):
        return Unmet(
            "exact_means",
            f"{goal.name} has no exact mean at horizon {horizon} ({vocab}**{horizon} "
            "continuations)",
        )
    return None


def require_needs(needs: Needs, problem: Problem, name: str) -> None:
    """Refuse a problem that lacks something, and name the methods that could be asked instead."""
    lacking = unmet(needs, problem)
    if lacking is not None:
        raise InputError(f"{name}: {lacking.problem}: use {', '.join(fitting(problem))}")


def fitting(problem: Problem) -> list[str]:
    """The methods, by name, that a problem has all needs of."""
    return [name for name in METHODS.names() if unmet(open_method(name).needs, problem) is None]
