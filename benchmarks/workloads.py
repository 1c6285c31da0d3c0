"""What scaling.py measures: each method that optimises without the model, at any setting.

`WORKLOADS[name](setting)` does the set-up and returns the call to measure. Each has a least cost
where one can be counted: what any implementation of that algorithm must read, multiply or take the
exponential (logarithm, log-gamma) of, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
from ascent import Setting as AscentSetting
from torch import Tensor

from posteer.banks import DrawPlan, LatentBank, draw_analytic
from posteer.core.errors import InputError
from posteer.core.limits import ENUMERABLE_CLASSES
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.fit import expectation_maximisation, selection
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.fit.expectation_maximisation import (
    Evidence,
    Fitted,
    fits_from,
)
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.families.markov.tilt import Tilt, cheaper_algorithm
from posteer.goals.protocol import Utility
from posteer.goals.utilities import open_utility
from posteer.methods.answers import Answer
from posteer.methods.classes import ClassSearch
from posteer.methods.climbing.search import SearchSettings, random_prompts
from posteer.methods.ppt.estimator import estimate
from posteer.methods.ppt.updates import update_rule
from posteer.methods.protocol import Request, pose
from posteer.methods.scorers.choice import Estimators
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.importance import ImportanceSampled
from posteer.methods.scorers.posterior import (
    FoldedPrompts,
    HardPromptPosterior,
    scores_of_prompts,
)
from posteer.methods.scorers.smc import TemperedSMC
from posteer.tokens.contexts import ContextSpace

HORIZON = 4
BATCH, SMALL_BATCH = 256, 2
"""Prompts scored by one call, and where each prompt is a calculation of its own."""


@dataclass(frozen=True)
class Setting:
    """Vocabulary, order, prompt length and latents of the bank."""

    V: int = 2
    order: int = 1
    m: int = 50
    L: int = 5000

    @property
    def space(self) -> ContextSpace:
        return ContextSpace(self.V, self.order)

    @property
    def entries(self) -> int:
        """Numbers in a kernel."""
        return self.V ** (self.order + 1)

    def bank(self) -> LatentBank:
        return draw_analytic(DirichletRows.symmetric(self.V, self.order, 0.5), self.L, 0)

    def utility(self) -> Utility:
        return open_utility("dyck", self.space)


@dataclass(frozen=True)
class Cost:
    """The least that one call must do."""

    bytes_read: float = 0.0
    operations: float = 0.0
    exponentials: float = 0.0


@dataclass(frozen=True)
class Workload:
    """A call that can be repeated, and over how many prompts its time is shared.

    `cost` and `details` are asked after a call, since some are not known before.
    """

    call: Callable[[], object]
    shared_by: int = 1
    cost: Callable[[], Cost | None] = lambda: None
    details: Callable[[], dict[str, Any]] = field(default=dict)


# --- ascents ------------------------------------------------------------------------------------


def ascent_step(setting: Setting, tilt: Tilt) -> Workload:
    """The surrogate with its gradient, and the prompt kernel moved along it."""
    given = AscentSetting(setting.V, setting.order, setting.m, setting.L, 1)
    update = update_rule(given.space, 0.1, 1e-6)
    contexts, numbers = given.space.n_contexts, setting.entries * setting.L
    algorithm = cheaper_algorithm(given.space, given.prompts, given.steps)
    runs = replace(given.runs, tilt=tilt)  # logarithms are taken here, once an ascent

    def step() -> object:
        return update(given.prompts, estimate(runs, given.prompts))

    def cost() -> Cost:
        read = 8.0 * (numbers + contexts * setting.L)
        if tilt == "geometric":
            return Cost(read, 4.0 * numbers, setting.L)
        if algorithm == "sweep":
            return Cost(read, exponentials=3.0 * given.steps * numbers)
        products = given.steps.bit_length() - 2 + given.steps.bit_count()
        return Cost(read, 6.0 * products * contexts**3 * setting.L)

    details = {} if tilt == "geometric" else {"algorithm": algorithm}
    return Workload(step, cost=cost, details=lambda: details)


def autograd_step(setting: Setting) -> Workload:
    """The peer of the linear step: the chain token by token, differentiated by autograd."""
    given = AscentSetting(setting.V, setting.order, setting.m, setting.L, 1)
    found: list[Tensor] = []

    def step() -> None:
        found[:] = [given.autograd_batched()]

    return Workload(step, details=lambda: {"finite": bool(found[0].isfinite().all())})


# --- scores of hard prompts ---------------------------------------------------------------------


def scores_by(setting: Setting, posterior: HardPromptPosterior, n: int) -> Callable[[], object]:
    """Scores of n random prompts, given by their counts."""
    asked = ClassProblem(setting.space, setting.m)
    counts, _, last = asked.describe(random_prompts(asked, n, 0))
    utility, folded = setting.utility(), FoldedPrompts(setting.space, counts.double(), last)
    return lambda: posterior.of_folded(utility, folded, HORIZON)


def importance(setting: Setting) -> Workload:
    numbers = setting.entries * setting.L

    def cost() -> Cost:
        return Cost(8.0 * numbers, 2.0 * BATCH * numbers, BATCH * setting.L)

    return Workload(scores_by(setting, ImportanceSampled(setting.bank()), BATCH), BATCH, cost)


def importance_by_tokens(setting: Setting) -> Workload:
    """The peer of importance sampling: likelihoods multiplied up token by token."""
    space, bank = setting.space, setting.bank()
    prompts = random_prompts(ClassProblem(space, setting.m), SMALL_BATCH, 0)
    contexts, tokens = space.contexts_of(prompts), prompts[:, setting.order :]
    means = utility_of_kernels(setting.utility(), space, bank.kernels, HORIZON)
    logs = bank.kernels.log().permute(1, 2, 0).contiguous()

    def score() -> Tensor:
        log_weights = torch.zeros(SMALL_BATCH, setting.L, dtype=torch.float64)
        for place in range(tokens.shape[1]):
            log_weights += logs[contexts[:, place], tokens[:, place]]
        return (log_weights.softmax(-1) * means.T[contexts[:, -1]]).sum(-1)

    plain = ImportanceSampled(bank)
    ours = scores_of_prompts(plain, setting.utility(), prompts, HORIZON)
    torch.testing.assert_close(score(), ours.value, rtol=1e-6, atol=1e-9)
    return Workload(score, SMALL_BATCH)


def conjugate(setting: Setting) -> Workload:
    """Scores by the fit, without errors; fitting is measured by itself."""
    fit = ConjugateFit(setting.bank()).for_search()
    call = scores_by(setting, fit, BATCH)
    call()  # classes of continuations are worked out once for a utility
    components = len(fit.mixture)

    def cost() -> Cost:
        """Log-gammas of counts and row sums in each component: what weighs the components."""
        rows = setting.space.n_contexts
        return Cost(exponentials=float(BATCH * components * (setting.entries + rows)))

    return Workload(call, BATCH, cost, lambda: {"components": components})


def conjugate_fit(setting: Setting) -> Workload:
    """The fit itself, once for a bank, its steps counted: those of components that are tried and
    turned down are most of them."""
    bank = setting.bank()
    found: list[ConjugateFit] = []
    steps: list[int] = []
    latents: list[int] = []

    def counted(
        evidence: Evidence, starts: list[DirichletMixture], *weights: Tensor, **settings: Any
    ) -> list[Fitted]:
        fits = fits_from(evidence, starts, *weights, **settings)
        made = [len(fitted.history) for fitted in fits]
        steps.extend(made)
        latents.append(sum(made) * len(evidence) * len(starts[0]))
        return fits

    def fit() -> None:
        steps.clear()
        latents.clear()
        found[:] = [ConjugateFit(bank)]
        with (
            patch.object(selection, "fits_from", counted),
            patch.object(expectation_maximisation, "fits_from", counted),
        ):
            assert len(found[0].mixture) >= 1

    def cost() -> Cost:
        """Latents meet components twice in each step: their densities, then their shares."""
        work = float(sum(latents))
        return Cost(operations=4 * work * setting.entries, exponentials=work)

    def details() -> dict[str, Any]:
        return {"components": len(found[0].mixture), "steps": sum(steps)}

    return Workload(fit, cost=cost, details=details)


class CountedSMC(TemperedSMC):
    """SMC that counts what its moves do."""

    temperatures = 0
    exponentials = 0.0

    def _moved(self, logs: Any, target: Any, stream: Any) -> Any:
        self.temperatures += 1
        n_islands, n, n_contexts, vocab = logs.shape
        self.exponentials += self.sweeps * n_contexts * n_islands * n * vocab
        return super()._moved(logs, target, stream)


def smc(setting: Setting) -> Workload:
    """Scores by SMC; the fit and the density its moves need are set-up."""
    estimators = Estimators(setting.bank())
    sampler = CountedSMC(estimators.bank, fit=estimators.fit)
    assert len(sampler.density.mixture) >= 1  # fitted here, not in the call
    ask = scores_by(setting, sampler, SMALL_BATCH)

    def score() -> object:
        sampler._known.clear()
        sampler.temperatures, sampler.exponentials = 0, 0.0
        return ask()

    def cost() -> Cost:
        """Each random walk renews a row of every particle."""
        return Cost(exponentials=sampler.exponentials)

    def details() -> dict[str, Any]:
        return {"temperatures": sampler.temperatures / SMALL_BATCH}

    return Workload(score, SMALL_BATCH, cost, details)


# --- whole searches -----------------------------------------------------------------------------


def class_search(setting: Setting, limit: int) -> Workload:
    """A whole `classes-analytic` run: bank, estimator, search, errors of the best."""
    process = f"vocab={setting.V},order={setting.order},concentration=0.5"
    model = f"exact:markov({process})"
    asked = Request(model=model, utility=setting.utility(), length=setting.m, horizon=HORIZON)
    problem = pose([asked])[0]
    if limit and problem.markov.enumerate(limit) is None:
        raise InputError(f"more than {limit:,} classes")
    method = ClassSearch(
        analytic=True, draw=DrawPlan(n_samples=setting.L), search=SearchSettings(limit=limit)
    )
    found: list[Answer] = []

    def run() -> None:
        found[:] = method.solve([problem])

    def details() -> dict[str, Any]:
        answer = found[0]
        assert answer.estimator is not None
        return {
            "classes": sum(step.candidates for step in answer.history),
            "rounds": answer.steps,
            "estimator": answer.estimator.name,
        }

    return Workload(run, details=details)


WORKLOADS: dict[str, Callable[[Setting], Workload]] = {
    "linear step": lambda setting: ascent_step(setting, "linear"),
    "linear step, autograd": autograd_step,
    "geometric step": lambda setting: ascent_step(setting, "geometric"),
    "importance score": importance,
    "importance score, by tokens": importance_by_tokens,
    "conjugate score": conjugate,
    "conjugate fit": conjugate_fit,
    "smc score": smc,
    "classes, all": lambda setting: class_search(setting, ENUMERABLE_CLASSES),
    "classes, climbing": lambda setting: class_search(setting, 0),
}
PEERS = {
    "linear step, autograd": "linear step",
    "importance score, by tokens": "importance score",
}
"""Naive ways to the same figures, and what they are peers of."""
