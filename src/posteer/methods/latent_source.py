"""Where a method's latents come from: a given bank, the shipped one, rollouts, or the prior.

Of a prior of finitely many latents all are taken, with their weights, unless a number of draws is
asked for. After a context all of them are latents of the posterior: drawn after it, or those of the
prior weighed by its likelihood while enough of them are left (`ENOUGH_LATENTS`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from posteer.banks.atoms import AtomBank
from posteer.banks.drawn import Bank, LatentBank, draw_analytic
from posteer.banks.parts import checked_path
from posteer.banks.plans import DrawPlan, seconds_of
from posteer.banks.probes import ChangedModelError, require_laws
from posteer.banks.reweighed import effective_latents, weighed
from posteer.banks.shipped import shipped_bank
from posteer.banks.sizing import draw, is_sized, least_of
from posteer.core import InputError, Progress, integer, phase, require
from posteer.core.limits import SAMPLED_ROLLOUTS
from posteer.core.spec import within
from posteer.evaluation import tokens_of_value
from posteer.families.markov.means import has_exact_mean
from posteer.families.protocol import FinitePrior
from posteer.methods.cautions import Caution, Doubt
from posteer.methods.protocol import LatentsFrom, Needs, Problem, only_asked
from posteer.models.meter import Metered
from posteer.models.protocol import Model

BATCH_NUMBERS = 2**25
"""Latent probabilities (runs x latents x contexts x vocabulary) that one batch may hold."""

ENOUGH_LATENTS = 500
"""Effective latents that weighing a prior bank by a context must leave: fewer, and it is drawn."""

BankKey = tuple[str, int]

Banks = dict[BankKey, tuple[Bank, Bank | None]]
"""By key, the bank to tune on and, where there is one, a bank held out."""


def needs_of(analytic: bool, draw: DrawPlan, *, atoms: bool = True, **more: Any) -> Needs:
    """What a method on latents needs: of the prior, or rollouts for which a bank may stand."""
    return Needs(
        latents=LatentsFrom.PRIOR if analytic else LatentsFrom.ROLLOUTS,
        draw=draw,
        atoms=atoms and analytic and "n_samples" in draw.free,
        bank=not analytic,
        expected_utility=True,
        **more,
    )


def uses_atoms(needs: Needs, problem: Problem) -> bool:
    """Whether a method takes the latents of a finite prior as they are: where each has a known
    mean. Where it has to be estimated, many draws do so better than one of each."""
    vocab, horizon = problem.vocab_size, problem.horizon
    finite = needs.atoms and isinstance(problem.model.prior, FinitePrior)
    return finite and has_exact_mean(problem.expected, vocab, horizon, not only_asked(problem))


def require_no_saving(save_bank: Any, why: str) -> None:
    """Refuse to keep a bank where none is drawn."""
    require(save_bank is None, f"`save_bank`: {why}")


def n_latents(needs: Needs, problem: Problem) -> int:
    """How many latents a method will work on, at most."""
    asked, bank = needs.draw.n_samples, problem.bank
    if uses_atoms(needs, problem):
        return len(_atoms_of(problem))
    if bank is None:
        return asked
    return len(bank) if "n_samples" in needs.draw.free else min(asked, len(bank))


def bank_key(needs: Needs, problem: Problem) -> BankKey:
    """Problems of one key share their bank."""
    if uses_atoms(needs, problem):
        return "atoms", 0
    # Published ESS varies over seeds for analytic banks and hardly for rollout banks:
    # the former were redrawn per seed, the latter drawn once and shared.
    seed = problem.seed if needs.latents is LatentsFrom.PRIOR else needs.draw.seed
    return needs.latents.value, seed


def banks_of(needs: Needs, problems: list[Problem], progress: Progress | None) -> Banks:
    """The banks of all problems, each drawn or read once."""
    banks: Banks = {}
    with phase("bank"):
        for problem in problems:
            key = bank_key(needs, problem)
            if key not in banks:
                if uses_atoms(needs, problem):
                    banks[key] = _atoms_of(problem), None
                elif needs.latents is LatentsFrom.PRIOR:
                    banks[key] = _drawn_from_prior(needs, problem)
                else:
                    banks[key] = _rolled_out(needs.draw, problem, progress)
    return banks


def with_tuned_bank(
    draw: DrawPlan, problems: list[Problem], progress: Progress | None
) -> list[Problem]:
    """The problems with a bank drawn for them where its latents are to be those that predict the
    model best: only then is it known what they are."""
    first = problems[0]
    if first.bank is not None or not draw.tuned:
        return problems
    with phase("bank"):
        bank = _drawn_now(replace(draw, context=first.context), first, progress)
    return [replace(problem, bank=bank) for problem in problems]


def require_room(needs: Needs, problem: Problem, method: str) -> None:
    """Refuse latents that one batch could not hold, and say how many it could."""
    per_latent = problem.vocab_size ** (problem.markov.order + 1)
    most, asked = 2 * BATCH_NUMBERS // per_latent, n_latents(needs, problem)
    fewer = f"as in `method` '{method}(samples={most})'"
    require(
        asked <= most,
        f"{asked} latents of {per_latent} probabilities each do not fit: expected at most {most}, "
        + (fewer if most >= 2 and problem.bank is None else "which takes a smaller vocabulary"),
    )


def _atoms_of(problem: Problem) -> AtomBank:
    return AtomBank.of(problem.model.prior)


def _drawn_from_prior(needs: Needs, problem: Problem) -> tuple[Bank, Bank]:
    prior, n, context = problem.model.prior, needs.draw.n_samples, problem.context
    seed = problem.seed
    assert prior is not None, "declared in needs"  # a conditioned model's is the posterior
    return (
        draw_analytic(prior, n, seed, context=context),
        draw_analytic(prior, n, seed, held_out=True, context=context),
    )


def _rolled_out(
    draw: DrawPlan, problem: Problem, progress: Progress | None
) -> tuple[Bank, Bank | None]:
    model, context = problem.model, problem.context
    base, given = model.base, problem.bank
    if given is not None and given is problem.drawn.bank:
        return given, None
    if given is not None:
        _require_match(problem, base, given)
        _require_a_draw(problem, "the bank is given")
        given = given if "n_samples" in draw.free else given.first(draw.n_samples)
        given = _asked_again(problem, given)
        others = (shipped_bank(base.fingerprint, kind) for kind in ("held-out", "tuning"))
        fresh = (b for b in others if b is not None and _alike(b, given))
        other = None if given.origin.context else next(fresh, None)
        return _after(problem, given), _held_out(other, context)
    shipped = shipped_bank(base.fingerprint)
    if shipped is not None and serves(shipped, draw):
        shipped = shipped.first(draw.n_samples)
        if effective_latents(shipped, context) >= min(ENOUGH_LATENTS, len(shipped)):
            _require_a_draw(problem, f"{base.name} has one that is shipped")
            other = shipped_bank(base.fingerprint, "held-out")
            return weighed(shipped, context), _held_out(other, context)
    return _drawn_now(replace(draw, context=context), problem, progress), None


def _alike(other: LatentBank, bank: LatentBank) -> bool:
    """Whether a bank holds other latents of the same family."""
    return other.origin.seed != bank.origin.seed and other.latents.family == bank.latents.family


def serves(bank: LatentBank, draw: DrawPlan) -> bool:
    """Whether a bank of the same model begins with what a plan would draw; a size that nobody named
    is that of the bank."""
    origin = bank.origin
    sizes = {"n_samples": len(bank), "rollout_length": origin.rollout_length or 0}
    draw = draw.of_sizes({size: value for size, value in sizes.items() if size in draw.free})
    made = DrawPlan(
        n_samples=min(draw.n_samples, len(bank)),
        rollout_length=origin.rollout_length or 0,
        seed=origin.seed,
        context=origin.context,
        unvisited=bank.unvisited,
    )
    return draw == made


def _drawn_now(plan: DrawPlan, problem: Problem, progress: Progress | None) -> LatentBank:
    """Rollouts of the model itself, charged to the run and kept where that is asked."""
    model, base = problem.model, problem.model.base
    budget, saved = problem.max_model_tokens, problem.request.save_bank
    out = None if saved is None else checked_path(Path(saved))
    # rollouts read a context themselves
    meter = Metered(base, model.spending) if plan.context else model
    sized, before = is_sized(base, plan), model.queries.total
    left = budget
    if sized and budget is not None:
        left = _left_for_bank(problem, plan, budget)
    with model.spending.within(budget):
        bank = draw(meter, plan, out, tokens=left, progress=progress)
    problem.drawn.bank, problem.drawn.tokens = bank, model.queries.total - before
    if sized:
        length = bank.origin.rollout_length
        tuned = ",tuned=1" * plan.tuned
        problem.drawn.settings = f"samples={len(bank)},rollout-length={length}{tuned}"
    return bank


def _left_for_bank(problem: Problem, plan: DrawPlan, budget: int) -> int:
    """What a bank of no given size may take: the candidates that are to be verified come first, if
    they leave anything."""
    price = tokens_of_value(problem.model, problem.length, problem.horizon, SAMPLED_ROLLOUTS)
    rest = budget - problem.candidates * price
    return rest if rest >= least_of(problem.model.base, plan).price(problem.model.base) else budget


def _require_a_draw(problem: Problem, why: str) -> None:
    require_no_saving(problem.request.save_bank, f"{why}: no bank is drawn")


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
        "one after it with posteer sample, or use `allow_mismatch` to use it all the same",
    )
    return weighed(bank, context)


def _require_match(problem: Problem, model: Model, bank: LatentBank) -> None:
    """Latents may be of a family that was asked for when they were drawn."""
    require(
        bank.latents.family == model.family
        or (bool(bank.origin.family) and bank.latents.family.vocab_size == model.vocab_size),
        f"the bank is of {bank.latents.family.vocab_size} tokens at order "
        f"{bank.latents.family.order}: {model.name} has {model.vocab_size} at order {model.order}",
    )
    if problem.request.allow_mismatch:
        return
    origin, context = bank.origin, problem.context
    require(
        bank.names(model),
        f"the bank was drawn from {origin.model} ({origin.fingerprint[:8]}), not from "
        f"{model.name} ({model.fingerprint[:8]}): use `allow_mismatch` to use it all the same",
    )
    if not origin.context or origin.context == context:
        return
    read = f"{model.name} has read {list(context)}"
    asked = read if context else "a prompt starts from the prior"
    raise InputError(
        f"the bank is a posterior, drawn after {len(origin.context)} observed tokens of "
        f"{origin.model}, and {asked}: use `allow_mismatch` to use it all the same"
    )


def _asked_again(problem: Problem, bank: LatentBank) -> LatentBank:
    """The bank, once a model that may have changed is asked for the laws it was drawn from.

    That is charged: to the bank, whose cost all utilities share, and to the budget of the model.
    """
    spending, budget = problem.model.spending, problem.max_model_tokens
    before = spending.asked.total
    otherwise = "draw another, or use `allow_mismatch` to use it all the same"
    with spending.within(budget):
        aside = Metered(problem.model.base, spending)
        try:
            require_laws(bank.probe, aside, bank.origin.context, otherwise, budget)
        except ChangedModelError:
            if not problem.request.allow_mismatch:
                raise
            problem.drawn.changed = True
    asked = spending.asked.total - before
    problem.drawn.tokens += asked
    return replace(bank, origin=replace(bank.origin, tokens=bank.origin.tokens + asked))


def of_bank(problem: Problem) -> tuple[Caution, ...]:
    """What there is to doubt of a bank that was given: that it is of another model or context."""
    bank, base = problem.bank, problem.model.base
    if bank is None or not problem.request.allow_mismatch:
        return ()
    origin, same = bank.origin, not problem.drawn.changed and bank.names(base)
    if same and origin.context in ((), problem.context):
        return ()
    figures = {"bank": origin.model, "fingerprint": origin.fingerprint}
    return (Caution(Doubt.BANK_MISMATCH_ALLOWED, figures),)


def draw_settings(analytic: bool) -> dict[str, Any]:
    """The settings of a method's specification that say how its bank is drawn."""
    plan = DrawPlan()
    settings: dict[str, Any] = {"samples": None}
    if not analytic:
        settings |= {"rollout-length": None, "bank-seed": plan.seed}
        settings |= {"unvisited": plan.unvisited, "seconds": plan.seconds, "tuned": 0}
    return settings


SIZE_SETTINGS = {"n_samples": "samples", "rollout_length": "rollout-length"}
"""What the sizes of a plan are called among the settings."""


def draw_plan(given: dict[str, Any] | None = None) -> DrawPlan:
    """Those settings as a plan; sizes that are not among them are free."""
    whole = draw_settings(analytic=False) | (given or {})
    named: dict[str, Any] = {
        size: integer(whole[text], text)
        for size, text in SIZE_SETTINGS.items()
        if whole[text] is not None
    }
    tuned = within(whole["tuned"], "tuned", 0, 1) == 1
    return DrawPlan(
        **named,
        seed=integer(whole["bank-seed"], "bank-seed"),
        unvisited=str(whole["unvisited"]),
        free=tuple(size for size in SIZE_SETTINGS if size not in named),
        seconds=seconds_of(whole["seconds"]),
        tuned=tuned,
        keep_tokens=tuned,
    )
