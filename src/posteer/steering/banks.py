"""Where a method's latents come from: a given bank, the shipped one, rollouts, or the prior."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from posteer.errors import InputError, require
from posteer.latents.bank import LatentBank, draw_analytic
from posteer.latents.rollouts import DrawPlan, draw_bank
from posteer.latents.shipped import shipped_bank
from posteer.models.base import Metered
from posteer.problem import Problem, Progress
from posteer.spec import integer
from posteer.utilities.base import has_exact_mean

BATCH_NUMBERS = 2**25
"""Latent probabilities (runs x latents x contexts x vocabulary) that one batch may hold."""

Banks = dict[int, tuple[LatentBank, LatentBank | None]]
"""By key, the bank to tune on and, where there is one, a bank held out."""


@dataclass(frozen=True, kw_only=True)
class BankSource:
    """Draws from the prior (`analytic`), or rollouts.

    Rollouts come from `bank` if given, from the bank shipped with the model if the `draw` is the
    shipped one, and are drawn otherwise. `allow_mismatch` admits a bank of another model.
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
                    banks[key] = self._drawn_from_prior(problem.model, key)
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

    def _drawn_from_prior(self, model: Metered, seed: int) -> tuple[LatentBank, LatentBank]:
        process, n = model.process, self.draw.n_samples
        if process is None:
            raise InputError(
                f"{model.name} has no known prior to draw from: use ppt, ppt-rb or classes"
            )
        require(
            self.bank is None,
            "this method draws from the prior: use ppt, ppt-rb or classes for a bank",
        )
        return draw_analytic(process, n, seed), draw_analytic(process, n, seed, held_out=True)

    def _rolled_out(
        self, problem: Problem, progress: Progress | None
    ) -> tuple[LatentBank, LatentBank | None]:
        model, budget = problem.model, problem.max_model_tokens
        if self.bank is not None:
            self._require_match(model, self.bank)
            others = (shipped_bank(model.fingerprint, kind) for kind in ("held-out", "tuning"))
            fresh = (b for b in others if b is not None and b.origin.seed != self.bank.origin.seed)
            return self.bank, None if self.bank.origin.context else next(fresh, None)
        if self.draw == DrawPlan():
            shipped = shipped_bank(model.fingerprint)
            if shipped is not None:
                return shipped, shipped_bank(model.fingerprint, "held-out")
        price = self.draw.n_samples * (self.draw.rollout_length - 1)
        if budget is not None and price > budget:
            raise InputError(
                f"drawing a bank takes {price:,} model tokens and the budget is {budget:,}: use "
                "--bank, or fewer samples"
            )
        return draw_bank(model, self.draw, progress=progress), None

    def _require_match(self, model: Metered, bank: LatentBank) -> None:
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
        require(
            not origin.context,
            f"the bank is a posterior, drawn after {len(origin.context)} observed tokens, and a "
            "prompt starts from the prior: use --allow-mismatch to use it all the same",
        )


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
