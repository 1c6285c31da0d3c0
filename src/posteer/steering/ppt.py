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

from posteer.errors import InputError, require
from posteer.kernels import ContextSpace
from posteer.latents.bank import LatentBank, draw_analytic
from posteer.latents.importance import ess_fraction, pareto_k
from posteer.latents.rollouts import DrawPlan, draw_bank
from posteer.latents.shipped import shipped_bank
from posteer.models.base import Metered, QueryCount
from posteer.phases import phase
from posteer.problem import Answer, Problem, Progress, Step
from posteer.randomness import torch_stream
from posteer.shapes import Float, Int
from posteer.spec import Spec, integer, number
from posteer.steering.ascent import Ascent, AscentSettings, ascend, initial_prompts
from posteer.steering.estimator import ExactMeans, IntegrandSource, SingleRollouts, surrogate_of
from posteer.steering.snap import CandidateScore, snap
from posteer.steering.tilt import latents_last
from posteer.utilities.base import has_exact_mean, utility_of_kernels

BATCH_NUMBERS = 2**25
"""Latent probabilities (runs x latents x contexts x vocabulary) that one batch may hold."""


@dataclass(frozen=True, kw_only=True)
class PosteriorPrefixTuning:
    """The paper's method. `analytic` and `exact_means` select the variant.

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
    candidate_score: CandidateScore = "own-context"
    device: str | None = None

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        """Problems that share model, length, horizon and order ascend as one batch."""
        return [self._recover(solution) for solution in self.optimise(problems, progress)]

    def optimise(
        self, problems: list[Problem], progress: Progress | None = None
    ) -> list[Optimised]:
        """The continuous part alone: one optimised prompt kernel per problem."""
        require(
            len({id(problem.model) for problem in problems}) == 1,
            "problems of one batch must share their model",
        )
        for problem in problems:
            self._require_room(problem)
            if self.exact_means:
                self._require_exact_mean(problem)
        with phase("bank"):
            banks = self._banks(problems, progress)
        groups = defaultdict(list)
        for index, problem in enumerate(problems):
            groups[problem.length, problem.horizon, problem.order].append(index)
        solutions: dict[int, Optimised] = {}
        for (_, _, order), indices in groups.items():
            space = ContextSpace(problems[0].model.space.vocab_size, order)
            per_run = self._n_samples * space.n_contexts * space.vocab_size
            size = max(1, BATCH_NUMBERS // per_run)
            for at in range(0, len(indices), size):
                part = indices[at : at + size]
                runs = [
                    (problems[i], banks[self._bank_key(problems[i])][0].at_order(order))
                    for i in part
                ]
                others = [banks[self._bank_key(problems[i])][1] for i in part]
                solved = [
                    replace(one, held_out=None if other is None else other.at_order(order))
                    for one, other in zip(
                        self._optimise_batch(space, runs, progress), others, strict=True
                    )
                ]
                solutions.update(zip(part, solved, strict=True))
        return [solutions[i] for i in range(len(problems))]

    @property
    def _place(self) -> str:
        return self.device or "cpu"

    @property
    def _n_samples(self) -> int:
        return self.draw.n_samples if self.bank is None else len(self.bank)

    def _require_room(self, problem: Problem) -> None:
        per_latent = problem.model.space.vocab_size ** (problem.order + 1)
        most = 2 * BATCH_NUMBERS // per_latent
        require(
            self._n_samples <= most,
            f"{self._n_samples} latents of {per_latent} probabilities each do not fit: expected at "
            f"most {most}, as in --method 'ppt-rb-analytic(samples={most})'",
        )

    def _require_exact_mean(self, problem: Problem) -> None:
        vocab = problem.model.space.vocab_size
        require(
            has_exact_mean(problem.expected, vocab, problem.horizon),
            f"{problem.utility.name} has no exact mean at horizon {problem.horizon} "
            f"({vocab}**{problem.horizon} continuations): use --method ppt or ppt-analytic",
        )

    def _bank_key(self, problem: Problem) -> int:
        # Published ESS varies over seeds for analytic banks and hardly for rollout banks:
        # the former were redrawn per seed, the latter drawn once and shared.
        return problem.seed if self.analytic else self.draw.seed

    def _banks(
        self, problems: list[Problem], progress: Progress | None
    ) -> dict[int, tuple[LatentBank, LatentBank | None]]:
        """By key, the bank to tune on and, where there is one, a bank held out."""
        banks: dict[int, tuple[LatentBank, LatentBank | None]] = {}
        for problem in problems:
            key = self._bank_key(problem)
            if key not in banks:
                if self.analytic:
                    banks[key] = self._analytic_banks(problem.model, key)
                else:
                    banks[key] = self._rollout_banks(problem, progress)
        return banks

    def _analytic_banks(self, model: Metered, seed: int) -> tuple[LatentBank, LatentBank]:
        process, n = model.process, self.draw.n_samples
        if process is None:
            raise InputError(f"{model.name} has no known prior to draw from: use ppt or ppt-rb")
        require(self.bank is None, "this method draws from the prior: use ppt or ppt-rb for a bank")
        return draw_analytic(process, n, seed), draw_analytic(process, n, seed, held_out=True)

    def _rollout_banks(
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

    def _optimise_batch(
        self,
        space: ContextSpace,
        runs: list[tuple[Problem, LatentBank]],
        progress: Progress | None,
    ) -> list[Optimised]:
        before = replace(runs[0][0].model.queries)
        latents = torch.stack([latents_last(bank.kernels) for _, bank in runs]).to(self._place)
        source = self._integrand_source(space, runs, latents)
        start = initial_prompts(space, [problem.seed for problem, _ in runs]).to(self._place)
        steps = runs[0][0].length - space.order

        def report(done: int, at_most: int, _running: int) -> None:
            if progress is not None:
                progress("ascending", done, at_most)

        firsts = [bank.first_likelihood for _, bank in runs if bank.first_likelihood is not None]
        first = torch.stack([f.T for f in firsts]).to(self._place) if firsts else None
        with phase("ascend"):
            ascents = ascend(space, start, latents, steps, source, self.ascent, report, first)
        spent = runs[0][0].model.queries.since(before)
        solved = []
        for row, ((problem, bank), ascent) in enumerate(zip(runs, ascents, strict=True)):
            own = source.select(torch.tensor([row], device=latents.device))
            means = own(ascent.prompt.final_context(space, steps)).of_contexts[0].T.cpu()
            ascent = replace(ascent, prompt=ascent.prompt.to("cpu"), log_tilt=ascent.log_tilt.cpu())
            solved.append(Optimised(problem, space, bank, ascent, means, spent))
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
            problem.length - space.order,
            source,
            None if first is None else first.T[None],
        )
        return float(value[0]), float(error[0])


@dataclass(frozen=True, eq=False)
class Optimised:
    """An optimised prompt kernel with all that snapping it needs.

    `means` are the utilities of the bank's latents from each context, exact or by one rollout;
    `held_out` is a bank it was not tuned on.
    """

    problem: Problem
    space: ContextSpace
    bank: LatentBank
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
        kernels, length = self.bank.kernels, self.problem.length
        first = self.bank.first_likelihood
        return snap(self.space, self.ascent.prompt, kernels, self.means, length, score, first)


def from_spec(spec: Spec) -> PosteriorPrefixTuning:
    """`ppt-rb-analytic(samples=5000,steps=5000,rate=0.1,candidate-score=own-context)`."""
    analytic, exact_means = spec.name.endswith("-analytic"), spec.name.startswith("ppt-rb")
    settings: dict[str, Any] = {
        "samples": 5000,
        "steps": 5000,
        "rate": 0.1,
        "candidate-score": "own-context",
        "device": None,
    }
    if not analytic:
        settings |= {"rollout-length": 2000, "bank-seed": 0, "unvisited": DrawPlan().unvisited}
    given = spec.take(**settings)
    scores = get_args(CandidateScore)
    require(
        given["candidate-score"] in scores,
        f"candidate-score '{given['candidate-score']}': expected one of {', '.join(scores)}",
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
        draw=DrawPlan(
            n_samples=integer(given["samples"], "samples"),
            rollout_length=integer(given.get("rollout-length", 2000), "rollout-length"),
            seed=integer(given.get("bank-seed", 0), "bank-seed"),
            unvisited=str(given.get("unvisited", DrawPlan().unvisited)),
        ),
        ascent=AscentSettings(
            max_steps=integer(given["steps"], "steps"),
            learning_rate=number(given["rate"], "rate"),
        ),
        candidate_score=given["candidate-score"],
        device=device,
    )
