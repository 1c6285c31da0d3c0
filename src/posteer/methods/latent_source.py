"""Where a method's latents come from: a given bank, the shipped one, rollouts, or the prior.

After a context all of them are latents of the posterior: drawn after it, or those of the prior
weighed by its likelihood while enough of them are left (`ENOUGH_LATENTS`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from posteer.banks.drawn import Bank, LatentBank, draw_analytic
from posteer.banks.probes import require_laws
from posteer.banks.reweighed import effective_latents, weighed
from posteer.banks.rollouts import DrawPlan, draw_bank
from posteer.banks.shipped import shipped_bank
from posteer.core import InputError, Progress, integer, phase, require
from posteer.methods.cautions import Caution, Doubt
from posteer.methods.protocol import LatentsFrom, Needs, Problem
from posteer.models.meter import Metered
from posteer.models.protocol import Model

BATCH_NUMBERS = 2**25
"""Latent probabilities (runs x latents x contexts x vocabulary) that one batch may hold."""

ENOUGH_LATENTS = 500
"""Effective latents that weighing a prior bank by a context must leave: fewer, and it is drawn."""

Banks = dict[int, tuple[Bank, Bank | None]]
"""By key, the bank to tune on and, where there is one, a bank held out."""


def needs_of(analytic: bool, draw: DrawPlan, **more: Any) -> Needs:
    """What a method on latents needs: of the prior, or rollouts for which a bank may stand."""
    return Needs(
        latents=LatentsFrom.PRIOR if analytic else LatentsFrom.ROLLOUTS,
        draw=draw,
        bank=not analytic,
        expected_utility=True,
        tilts=True,
        device=True,
        **more,
    )


def n_latents(needs: Needs, problem: Problem) -> int:
    """How many latents a method will work on."""
    return needs.draw.n_samples if problem.bank is None else len(problem.bank)


def bank_key(needs: Needs, problem: Problem) -> int:
    """Problems of one key share their bank."""
    # Published ESS varies over seeds for analytic banks and hardly for rollout banks:
    # the former were redrawn per seed, the latter drawn once and shared.
    return problem.seed if needs.latents is LatentsFrom.PRIOR else needs.draw.seed


def banks_of(needs: Needs, problems: list[Problem], progress: Progress | None) -> Banks:
    """The banks of all problems, each drawn or read once."""
    banks: Banks = {}
    with phase("bank"):
        for problem in problems:
            key = bank_key(needs, problem)
            if key not in banks:
                if needs.latents is LatentsFrom.PRIOR:
                    banks[key] = _drawn_from_prior(needs, problem, key)
                else:
                    banks[key] = _rolled_out(needs.draw, problem, progress)
    return banks


def require_room(needs: Needs, problem: Problem, method: str) -> None:
    """Refuse latents that one batch could not hold, and say how many it could."""
    per_latent = problem.vocab_size ** (problem.markov.order + 1)
    most, asked = 2 * BATCH_NUMBERS // per_latent, n_latents(needs, problem)
    fewer = f"as in --method '{method}(samples={most})'"
    require(
        asked <= most,
        f"{asked} latents of {per_latent} probabilities each do not fit: expected at most {most}, "
        + (fewer if most >= 2 and problem.bank is None else "which takes a smaller vocabulary"),
    )


def _drawn_from_prior(needs: Needs, problem: Problem, seed: int) -> tuple[Bank, Bank]:
    prior, n, context = problem.model.prior, needs.draw.n_samples, problem.context
    assert prior is not None, "declared in needs"  # a conditioned model's is the posterior
    return (
        draw_analytic(prior, n, seed, context=context),
        draw_analytic(prior, n, seed, held_out=True, context=context),
    )


def _rolled_out(
    draw: DrawPlan, problem: Problem, progress: Progress | None
) -> tuple[Bank, Bank | None]:
    model, budget, context = problem.model, problem.max_model_tokens, problem.context
    base, given = model.base, problem.bank
    if given is not None:
        _require_match(problem, base, given)
        given = _asked_again(problem, given)
        others = (shipped_bank(base.fingerprint, kind) for kind in ("held-out", "tuning"))
        fresh = (b for b in others if b is not None and b.origin.seed != given.origin.seed)
        other = None if given.origin.context else next(fresh, None)
        return _after(problem, given), _held_out(other, context)
    if draw == DrawPlan():
        shipped = shipped_bank(base.fingerprint)
        if shipped is not None and effective_latents(shipped, context) >= ENOUGH_LATENTS:
            other = shipped_bank(base.fingerprint, "held-out")
            return weighed(shipped, context), _held_out(other, context)
    plan = replace(draw, context=context)
    price = plan.price(len(context))
    if budget is not None and price > budget:
        raise InputError(
            f"drawing a bank takes {price:,} model tokens and the budget is {budget:,}: use "
            "--bank, or fewer samples"
        )
    meter = Metered(base) if context else model  # its rollouts read the context themselves
    return draw_bank(meter, plan, progress=progress), None


def _held_out(bank: LatentBank | None, context: tuple[int, ...]) -> Bank | None:
    if bank is None or effective_latents(bank, context) < ENOUGH_LATENTS:
        return bank if not context else None
    return weighed(bank, context)


def _after(problem: Problem, bank: LatentBank) -> Bank:
    """A given bank after the context: drawn there, or of the prior and weighed."""
    context = problem.context
    if bank.origin.context or not context:
        return bank
    left = effective_latents(bank, context)
    require(
        problem.request.allow_mismatch or left >= ENOUGH_LATENTS,
        f"the bank is of the prior of {bank.origin.model}: the {len(context)} tokens of the "
        f"context leave {left:.0f} effective latents of it, expected {ENOUGH_LATENTS}: draw "
        "one with posteer sample --context, or use --allow-mismatch to use it all the same",
    )
    return weighed(bank, context)


def _require_match(problem: Problem, model: Model, bank: LatentBank) -> None:
    require(
        bank.latents.family == model.family,
        f"the bank is of {bank.latents.family.vocab_size} tokens at order "
        f"{bank.latents.family.order}: {model.name} has {model.vocab_size} at order {model.order}",
    )
    if problem.request.allow_mismatch:
        return
    origin, context = bank.origin, problem.context
    require(
        bank.names(model),
        f"the bank was drawn from {origin.model} ({origin.fingerprint[:8]}), not from "
        f"{model.name} ({model.fingerprint[:8]}): use --allow-mismatch to use it all the same",
    )
    if not origin.context or origin.context == context:
        return
    read = f"{model.name} has read {list(context)}"
    asked = read if context else "a prompt starts from the prior"
    raise InputError(
        f"the bank is a posterior, drawn after {len(origin.context)} observed tokens of "
        f"{origin.model}, and {asked}: use --allow-mismatch to use it all the same"
    )


def _asked_again(problem: Problem, bank: LatentBank) -> LatentBank:
    """The bank, once a model that may have changed is asked for the laws it was drawn from.

    That is charged: to the bank, whose cost all utilities share, and to the budget of the model.
    """
    if problem.request.allow_mismatch:
        return bank
    aside = Metered(problem.model.base)
    otherwise = "draw another, or use --allow-mismatch to use it all the same"
    left = problem.max_model_tokens
    require_laws(bank.probe, aside, bank.origin.context, otherwise, left)
    asked = aside.queries
    problem.model.queries = problem.model.queries.plus(asked)
    tokens = bank.origin.tokens + asked.forward_tokens
    return replace(bank, origin=replace(bank.origin, tokens=tokens))


def of_bank(problem: Problem) -> tuple[Caution, ...]:
    """What there is to doubt of a bank that was given: that it is of another model or context."""
    bank, base = problem.bank, problem.model.base
    if bank is None or not problem.request.allow_mismatch:
        return ()
    origin = bank.origin
    if bank.names(base) and origin.context in ((), problem.context):
        return ()
    figures = {"bank": origin.model, "fingerprint": origin.fingerprint}
    return (Caution(Doubt.BANK_MISMATCH_ALLOWED, figures),)


def draw_settings(analytic: bool) -> dict[str, Any]:
    """The settings of a method's specification that say how its bank is drawn."""
    plan = DrawPlan()
    settings: dict[str, Any] = {"samples": plan.n_samples}
    if not analytic:
        settings |= {"rollout-length": plan.rollout_length, "bank-seed": plan.seed}
        settings |= {"unvisited": plan.unvisited}
    return settings


def draw_plan(given: dict[str, Any]) -> DrawPlan:
    """Those settings as a plan."""
    whole = draw_settings(analytic=False) | given
    return DrawPlan(
        n_samples=integer(whole["samples"], "samples"),
        rollout_length=integer(whole["rollout-length"], "rollout-length"),
        seed=integer(whole["bank-seed"], "bank-seed"),
        unvisited=str(whole["unvisited"]),
    )
