"""Posterior prefix tuning: bank, ascent, snap. Four variants from two switches.

ppt              rollouts of the model   one rollout per latent and context
ppt-rb           rollouts of the model   exact means
ppt-analytic     draws from the prior    one rollout per latent and context
ppt-rb-analytic  draws from the prior    exact means
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.banks.rollouts import DrawPlan
from posteer.core.errors import require
from posteer.core.progress import Progress, phase
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Bool, Float, Int
from posteer.core.spec import Spec, integer, number
from posteer.core.weights import ess_fraction, pareto_k
from posteer.families.markov.means import has_exact_mean, utility_of_kernels
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.families.markov.tilt import Tilt, latents_last
from posteer.methods.answers import Answer, Step
from posteer.methods.classes.search import SearchSettings, search_classes
from posteer.methods.latent_source import (
    BATCH_NUMBERS,
    Banks,
    BankSource,
    draw_plan,
    draw_settings,
    require_exact_mean,
)
from posteer.methods.ppt.ascent import Ascent, AscentSettings, ascend, initial_prompts
from posteer.methods.ppt.estimator import ExactMeans, IntegrandSource, SingleRollouts, surrogate_of
from posteer.methods.ppt.snap import CandidateScore, choose, propose
from posteer.methods.protocol import Problem
from posteer.methods.scorers.protocol import BankScorer
from posteer.models.meter import QueryCount
from posteer.tokens.contexts import ContextSpace

STARTS_OF_A_SEARCH = 4
"""Snapped prompts from which an allowed one is looked for, where none of them is."""


@dataclass(frozen=True, kw_only=True)
class PosteriorPrefixTuning:
    """The paper's method. `analytic` and `exact_means` select the variant, `tilt` what weighs
    the latents under a prompt kernel: the paper's linear tilt or the geometric one.

    Rollouts come from `bank` if given, from the bank shipped with the model if the `draw` is the
    shipped one, and are drawn otherwise. `allow_mismatch` admits a bank of another model. Ascents
    run on `device`, the caller's where it is None.
    """

    analytic: bool
    exact_means: bool
    draw: DrawPlan = field(default_factory=DrawPlan)
    bank: LatentBank | None = None
    allow_mismatch: bool = False
    ascent: AscentSettings = field(default_factory=AscentSettings)
    tilt: Tilt = "linear"
    candidate_score: CandidateScore = "own-context"
    device: str | None = None

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        """Problems that share model, length, horizon and order ascend as one batch."""
        return [self._recover(solution) for solution in self.optimise(problems, progress)]

    def optimise(
        self,
        problems: list[Problem],
        progress: Progress | None = None,
        banks: Banks | None = None,
    ) -> list[Optimised]:
        """The continuous part alone: one optimised prompt kernel per problem."""
        require(
            len({id(problem.model) for problem in problems}) == 1,
            "problems of one batch must share their model",
        )
        for problem in problems:
            self.latents.require_room(problem, "ppt-rb-analytic")
            if self.exact_means:
                require_exact_mean(problem)
        if banks is None:
            with phase("bank"):
                banks = self.latents.banks(problems, progress)
        groups = defaultdict(list)
        for index, problem in enumerate(problems):
            groups[problem.length, problem.horizon, problem.order].append(index)
        solutions: dict[int, Optimised] = {}
        for (_, _, order), indices in groups.items():
            space = ContextSpace(problems[0].model.space.vocab_size, order)
            per_run = self.latents.n_samples * space.n_contexts * space.vocab_size
            size = max(1, BATCH_NUMBERS // per_run)
            for at in range(0, len(indices), size):
                part = indices[at : at + size]
                own = [banks[self.latents.key(problems[i])] for i in part]
                runs = [(problems[i], bank) for i, (bank, _) in zip(part, own, strict=True)]
                solved = [
                    one.with_held_out(other)
                    for one, (_, other) in zip(
                        self._optimise_batch(space, runs, progress), own, strict=True
                    )
                ]
                solutions.update(zip(part, solved, strict=True))
        return [solutions[i] for i in range(len(problems))]

    @property
    def _place(self) -> str:
        return self.device or "cpu"

    @property
    def latents(self) -> BankSource:
        """Where this method's latents come from."""
        return BankSource(
            analytic=self.analytic,
            draw=self.draw,
            bank=self.bank,
            allow_mismatch=self.allow_mismatch,
        )

    def _optimise_batch(
        self,
        space: ContextSpace,
        runs: list[tuple[Problem, LatentBank]],
        progress: Progress | None,
    ) -> list[Optimised]:
        before = replace(runs[0][0].model.queries)
        own_banks = [bank for _, bank in runs]
        runs = [(problem, bank.at_order(space.order, problem.head)) for problem, bank in runs]
        latents = torch.stack([latents_last(bank.kernels) for _, bank in runs]).to(self._place)
        source = self._integrand_source(space, runs, latents)
        starts = _first_contexts([problem for problem, _ in runs])
        seeds = [problem.seed for problem, _ in runs]
        start = initial_prompts(space, seeds, starts).to(self._place)
        steps = runs[0][0].steps

        def report(done: int, at_most: int, _running: int) -> None:
            if progress is not None:
                progress("ascending", done, at_most)

        firsts = [bank.first_likelihood for _, bank in runs if bank.first_likelihood is not None]
        first = torch.stack([f.T for f in firsts]).to(self._place) if firsts else None
        with phase("ascend"):
            ascents = ascend(
                space, start, latents, steps, source, self.ascent, report, first, self.tilt, starts
            )
        spent = runs[0][0].model.queries.since(before)
        solved = []
        for row, ((problem, bank), ascent) in enumerate(zip(runs, ascents, strict=True)):
            own = source.select(torch.tensor([row], device=latents.device))
            means = own(ascent.prompt.final_context(space, steps)).of_contexts[0].T.cpu()
            ascent = replace(ascent, prompt=ascent.prompt.to("cpu"), log_tilt=ascent.log_tilt.cpu())
            solved.append(Optimised(problem, space, bank, own_banks[row], ascent, means, spent))
        return solved

    def _integrand_source(
        self, space: ContextSpace, runs: list[tuple[Problem, LatentBank]], latents: Tensor
    ) -> IntegrandSource:
        if not self.exact_means:
            return SingleRollouts(
                space,
                latents,
                [problem.expected for problem, _ in runs],
                runs[0][0].horizon,
                [
                    torch_stream(problem.seed, "ppt-rollouts", device=latents.device)
                    for problem, _ in runs
                ],
            )
        means = [
            utility_of_kernels(problem.expected, space, bank.kernels, problem.horizon)
            for problem, bank in runs
        ]
        return ExactMeans(torch.stack(means).transpose(1, 2).contiguous().to(latents.device))

    def _recover(self, solution: Optimised) -> Answer:
        ascent = solution.ascent
        with phase("snap"):
            prompt, snapped = solution.snap(self.candidate_score)
        with phase("held-out"):
            held_out, held_out_error = self.on_held_out(solution)
        return Answer(
            prompt=prompt,
            queries=solution.queries,
            bank_tokens=solution.bank.tokens,
            surrogate=ascent.surrogate,
            surrogate_standard_error=ascent.standard_error,
            snapped_surrogate=snapped,
            held_out_surrogate=held_out,
            held_out_standard_error=held_out_error,
            ess_fraction=solution.ess_fraction,
            pareto_k=solution.pareto_k,
            steps=ascent.steps,
            stop_reason=ascent.stop_reason,
            history=[
                Step(
                    value=value, candidates=0, forward_tokens=0, backward_tokens=0, seconds=seconds
                )
                for value, seconds in zip(
                    ascent.surrogate_history, ascent.seconds_history, strict=True
                )
            ],
            surrogate_history=ascent.surrogate_history,
            ess_history=ascent.ess_history,
        )

    def on_held_out(self, solution: Optimised) -> tuple[float | None, float | None]:
        """The surrogate of the tuned prompt kernel on latents it was not tuned to."""
        bank, problem, space = solution.held_out, solution.problem, solution.space
        if bank is None:
            return None, None
        latents = latents_last(bank.kernels)[None]
        exact = has_exact_mean(problem.expected, space.vocab_size, problem.horizon)
        source = replace(self, exact_means=exact)._integrand_source(
            space, [(problem, bank)], latents
        )
        first = bank.first_likelihood
        value, error = surrogate_of(
            space,
            solution.ascent.prompt,
            latents,
            problem.steps,
            source,
            None if first is None else first.T[None],
            self.tilt,
        )
        return float(value[0]), float(error[0])


@dataclass(frozen=True, eq=False)
class Optimised:
    """An optimised prompt kernel with all that snapping it needs.

    `means` are the utilities of the bank's latents from each context, exact or by one rollout;
    `own_bank` holds the latents at their own order, `held_out` others it was not tuned on.
    """

    problem: Problem
    space: ContextSpace
    bank: LatentBank
    own_bank: LatentBank
    ascent: Ascent
    means: Float[Tensor, "L C"]
    queries: QueryCount
    held_out: LatentBank | None = None

    @property
    def ess_fraction(self) -> float:
        return float(ess_fraction(self.ascent.log_tilt))

    @property
    def pareto_k(self) -> float:
        return pareto_k(self.ascent.log_tilt)

    def snap(self, score: CandidateScore) -> tuple[Int[Tensor, "m"], float]:
        """The hard prompt and its surrogate."""
        problem, kernel, head = self.problem, self.ascent.prompt, len(self.problem.head)
        near = propose(self.space, kernel, head + problem.length, problem.first_contexts)
        if problem.allowed is not None:
            fine = problem.allowed.allows(near.tokens[:, head:])
            if not bool(fine.any()):
                return self._best_allowed(near.tokens[:, head:])
            near = near.select(fine)
        bank = self.bank
        walk, value = choose(
            self.space, kernel, near, bank.kernels, self.means, score, bank.first_likelihood
        )
        return walk[head:], value

    def _best_allowed(self, snapped: Int[Tensor, "K m"]) -> tuple[Int[Tensor, "m"], float]:
        """No snapped prompt is allowed: the best class that is, looked for from them."""
        scorer = BankScorer(self.own_bank.kernels, self.means, self.own_bank.observed)
        starts = snapped[:STARTS_OF_A_SEARCH]
        found = search_classes(
            ClassProblem.of(self.problem), scorer, SearchSettings(), self.problem.seed, starts
        )
        return found.prompts[0], float(found.scores.value[0])

    def with_held_out(self, bank: LatentBank | None) -> Optimised:
        if bank is None:
            return self
        return replace(self, held_out=bank.at_order(self.space.order, self.problem.head))


def _first_contexts(problems: list[Problem]) -> Bool[Tensor, "B C"] | None:
    """Where each prompt may begin; None if anywhere."""
    own = [problem.first_contexts for problem in problems]
    given = [mask for mask in own if mask is not None]
    if not given:
        return None
    return torch.stack([torch.ones_like(given[0]) if mask is None else mask for mask in own])


def from_spec(spec: Spec) -> PosteriorPrefixTuning:
    """`ppt-rb-analytic(samples=5000,steps=5000,rate=0.1,tilt=linear)`."""
    analytic, exact_means = spec.name.endswith("-analytic"), spec.name.startswith("ppt-rb")
    settings: dict[str, Any] = {
        "steps": 5000,
        "rate": 0.1,
        "tilt": "linear",
        "candidate-score": "own-context",
        "device": None,
    }
    given = spec.take(**draw_settings(analytic) | settings)
    for setting, choices in (
        ("tilt", get_args(Tilt)),
        ("candidate-score", get_args(CandidateScore)),
    ):
        require(
            given[setting] in choices,
            f"{setting} '{given[setting]}': expected one of {', '.join(choices)}",
        )
    device = None if given["device"] is None else str(given["device"])
    require(
        device in (None, "cpu")
        or (str(device).partition(":")[0] == "cuda" and torch.cuda.is_available()),
        f"device '{device}': expected cpu" + (" or cuda" if torch.cuda.is_available() else ""),
    )
    return PosteriorPrefixTuning(
        analytic=analytic,
        exact_means=exact_means,
        draw=draw_plan(given),
        ascent=AscentSettings(
            max_steps=integer(given["steps"], "steps"),
            learning_rate=number(given["rate"], "rate"),
        ),
        tilt=given["tilt"],
        candidate_score=given["candidate-score"],
        device=device,
    )
