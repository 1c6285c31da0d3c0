"""Where a method's latents come from: a given bank, the shipped one, rollouts, or the prior.

After a context all of them are latents of the posterior: drawn after it, or those of the prior
weighed by its likelihood while enough of them are left (`ENOUGH_LATENTS`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from posteer.banks.drawn import LatentBank, draw_analytic
from posteer.banks.rollouts import DrawPlan, draw_bank
from posteer.banks.shipped import shipped_bank
from posteer.core.errors import InputError, require
from posteer.core.progress import Progress
from posteer.core.spec import integer
from posteer.core.weights import ess_fraction
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.means import has_exact_mean
from posteer.methods.protocol import Problem
from posteer.models import unconditioned
from posteer.models.meter import Metered
from posteer.tokens.contexts import count_transitions

BATCH_NUMBERS = 2**25
"""Latent probabilities (runs x latents x contexts x vocabulary) that one batch may hold."""

ENOUGH_LATENTS = 500
"""Effective latents that weighing a prior bank by a context must leave: fewer, and it is drawn."""

Banks = dict[int, tuple[LatentBank, LatentBank | None]]
"""By key, the bank to tune on and, where there is one, a bank held out."""


@dataclass(frozen=True, kw_only=True)
class BankSource:
    """Draws from the prior (`analytic`), or rollouts.

    Rollouts come from `bank` if given, from the bank shipped with the model if the `draw` is the
    shipped one, and are drawn otherwise. `allow_mismatch` admits a bank of another model or
    context.
    """

    analytic: bool
    draw: DrawPlan = field(default_factory=DrawPlan)
    bank: LatentBank | None = None
    allow_mismatch: bool = False

    @property
    def n_samples(self) -> int:
        return self.draw.n_samples if self.bank is None else len(self.bank)

    def key(self, problem: Problem) -> int:
        """Problems of one key share their bank."""
        # Published ESS varies over seeds for analytic banks and hardly for rollout banks:
        # the former were redrawn per seed, the latter drawn once and shared.
        return problem.seed if self.analytic else self.draw.seed

    def banks(self, problems: list[Problem], progress: Progress | None) -> Banks:
        """The banks of all problems, each drawn or read once."""
        banks: Banks = {}
        for problem in problems:
            key = self.key(problem)
            if key not in banks:
                if self.analytic:
                    banks[key] = self._drawn_from_prior(problem, key)
                else:
                    banks[key] = self._rolled_out(problem, progress)
        return banks

    def require_room(self, problem: Problem, method: str) -> None:
        """Refuse latents that one batch could not hold; `method` is the one to suggest."""
        per_latent = problem.model.space.vocab_size ** (problem.order + 1)
        most = 2 * BATCH_NUMBERS // per_latent
        require(
            self.n_samples <= most,
            f"{self.n_samples} latents of {per_latent} probabilities each do not fit: expected at "
            f"most {most}, as in --method '{method}(samples={most})'",
        )

    def _drawn_from_prior(self, problem: Problem, seed: int) -> tuple[LatentBank, LatentBank]:
        model, n, context = problem.model, self.draw.n_samples, problem.context
        process = model.process  # a conditioned model's is the posterior
        if process is None:
            raise InputError(
                f"{model.name} has no known prior to draw from: use ppt, ppt-rb or classes"
            )
        require(
            self.bank is None,
            "this method draws from the prior: use ppt, ppt-rb or classes for a bank",
        )
        return (
            draw_analytic(process, n, seed, context=context),
            draw_analytic(process, n, seed, held_out=True, context=context),
        )

    def _rolled_out(
        self, problem: Problem, progress: Progress | None
    ) -> tuple[LatentBank, LatentBank | None]:
        model, budget, context = problem.model, problem.max_model_tokens, problem.context
        base = unconditioned(model)
        if self.bank is not None:
            self._require_match(base, self.bank, context)
            given = self._after(self.bank, context)
            others = (shipped_bank(base.fingerprint, kind) for kind in ("held-out", "tuning"))
            fresh = (b for b in others if b is not None and b.origin.seed != self.bank.origin.seed)
            other = None if self.bank.origin.context else next(fresh, None)
            return given, self._held_out(other, context)
        if self.draw == DrawPlan():
            shipped = shipped_bank(base.fingerprint)
            if shipped is not None and effective_latents(shipped, context) >= ENOUGH_LATENTS:
                other = shipped_bank(base.fingerprint, "held-out")
                return weighed(shipped, context), self._held_out(other, context)
        plan = replace(self.draw, context=context)
        price = plan.n_samples * (len(context) + plan.rollout_length - 1)
        if budget is not None and price > budget:
            raise InputError(
                f"drawing a bank takes {price:,} model tokens and the budget is {budget:,}: use "
                "--bank, or fewer samples"
            )
        meter = Metered(base) if context else model  # its rollouts read the context themselves
        return draw_bank(meter, plan, progress=progress), None

    def _held_out(self, bank: LatentBank | None, context: tuple[int, ...]) -> LatentBank | None:
        if bank is None or not context:
            return bank
        enough = effective_latents(bank, context) >= ENOUGH_LATENTS
        return weighed(bank, context) if enough else None

    def _after(self, bank: LatentBank, context: tuple[int, ...]) -> LatentBank:
        """A given bank after the context: drawn there, or of the prior and weighed."""
        if bank.origin.context or not context:
            return bank
        left = effective_latents(bank, context)
        require(
            self.allow_mismatch or left >= ENOUGH_LATENTS,
            f"the bank is of the prior of {bank.origin.model}: the {len(context)} tokens of the "
            f"context leave {left:.0f} effective latents of it, expected {ENOUGH_LATENTS}: draw "
            "one with posteer sample --context, or use --allow-mismatch to use it all the same",
        )
        return weighed(bank, context)

    def _require_match(self, model: Any, bank: LatentBank, context: tuple[int, ...]) -> None:
        require(
            bank.space == model.space,
            f"the bank is of {bank.space.vocab_size} tokens at order {bank.space.order}: "
            f"{model.name} has {model.space.vocab_size} at order {model.space.order}",
        )
        if self.allow_mismatch:
            return
        origin = bank.origin
        require(
            origin.fingerprint == model.fingerprint,
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


def effective_latents(bank: LatentBank, context: tuple[int, ...]) -> float:
    """How many latents of a prior are left once weighed by a context."""
    if len(context) <= bank.space.order:  # no transition yet
        return float(len(bank))
    counts = count_transitions(bank.space, torch.tensor(context))
    log_weights = log_likelihood(counts[None], bank.kernels)[0]
    possible = bool((log_weights > -torch.inf).any())
    return float(ess_fraction(log_weights)) * len(bank) if possible else 0.0


def weighed(bank: LatentBank, context: tuple[int, ...]) -> LatentBank:
    """A bank of the prior as one of the posterior after a context."""
    if len(context) <= bank.space.order:  # no transition yet
        return bank
    return bank.having_observed(count_transitions(bank.space, torch.tensor(context)))


def require_exact_mean(problem: Problem) -> None:
    """Refuse a utility whose mean under a latent can only be rolled out."""
    vocab = problem.model.space.vocab_size
    require(
        has_exact_mean(problem.expected, vocab, problem.horizon),
        f"{problem.utility.name} has no exact mean at horizon {problem.horizon} "
        f"({vocab}**{problem.horizon} continuations): use --method ppt or ppt-analytic",
    )


def draw_settings(analytic: bool) -> dict[str, Any]:
    """The settings of a method's specification that say how its bank is drawn."""
    settings: dict[str, Any] = {"samples": 5000}
    if not analytic:
        settings |= {"rollout-length": 2000, "bank-seed": 0, "unvisited": DrawPlan().unvisited}
    return settings


def draw_plan(given: dict[str, Any]) -> DrawPlan:
    """Those settings as a plan."""
    return DrawPlan(
        n_samples=integer(given["samples"], "samples"),
        rollout_length=integer(given.get("rollout-length", 2000), "rollout-length"),
        seed=integer(given.get("bank-seed", 0), "bank-seed"),
        unvisited=str(given.get("unvisited", DrawPlan().unvisited)),
    )
