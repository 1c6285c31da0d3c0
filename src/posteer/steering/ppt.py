"""Posterior prefix tuning: bank, ascent, snap. Four variants from two switches.

    ppt              rollouts of the model   one rollout per latent
    ppt-rb           rollouts of the model   exact means
    ppt-analytic     draws from the prior    one rollout per latent
    ppt-rb-analytic  draws from the prior    exact means
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from posteer.errors import InputError, require
from posteer.kernels import ContextSpace
from posteer.latents.bank import LatentBank, draw_analytic, draw_by_rollouts
from posteer.latents.importance import ess_fraction, pareto_k
from posteer.models.base import QueryCount
from posteer.models.exact import ExactModel
from posteer.problem import Answer, Problem, Progress
from posteer.randomness import torch_stream
from posteer.steering.ascent import Ascent, AscentSettings, ascend, initial_prompts
from posteer.steering.estimator import ExactMeans, IntegrandSource, SingleRollouts
from posteer.steering.snap import CandidateScore, snap
from posteer.steering.tilt import PromptKernel, latents_last
from posteer.utilities.base import has_exact_mean, utility_of_kernels

BATCH_NUMBERS = 2**27
"""Latent probabilities (runs x latents x contexts x vocabulary) that one batch may hold."""


@dataclass(frozen=True, kw_only=True)
class PosteriorPrefixTuning:
    """The paper's method. `analytic` and `exact_means` select the variant."""

    analytic: bool
    exact_means: bool
    n_samples: int = 5000
    rollout_length: int = 2000
    bank_seed: int = 0
    ascent: AscentSettings = field(default_factory=AscentSettings)
    candidate_score: CandidateScore = "own-context"

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        """Problems that share model, length, horizon and order ascend as one batch."""
        if self.exact_means:
            for problem in problems:
                self._require_exact_mean(problem)
        banks = self._draw_banks(problems, progress)
        groups = defaultdict(list)
        for index, problem in enumerate(problems):
            groups[problem.length, problem.horizon, problem.order].append(index)
        answers: dict[int, Answer] = {}
        for (_, _, order), indices in groups.items():
            space = ContextSpace(problems[0].model.space.vocab_size, order)
            per_run = self.n_samples * space.n_contexts * space.vocab_size
            size = max(1, BATCH_NUMBERS // per_run)
            for at in range(0, len(indices), size):
                part = indices[at : at + size]
                runs = [_Run(problems[i], banks[self._bank_key(problems[i])]) for i in part]
                for i, answer in zip(part, self._solve_batch(space, runs, progress), strict=True):
                    answers[i] = answer
        return [answers[i] for i in range(len(problems))]

    def _require_exact_mean(self, problem: Problem) -> None:
        vocab = problem.model.space.vocab_size
        require(
            has_exact_mean(problem.utility, vocab, problem.horizon),
            f"{problem.utility.name} has no exact mean at horizon {problem.horizon} "
            f"({vocab}**{problem.horizon} continuations): use --method ppt or ppt-analytic",
        )

    def _bank_key(self, problem: Problem) -> int:
        # Published ESS varies over seeds for analytic banks and hardly for rollout banks:
        # the former were redrawn per seed, the latter drawn once and shared.
        return problem.seed if self.analytic else self.bank_seed

    def _draw_banks(
        self, problems: list[Problem], progress: Progress | None
    ) -> dict[int, LatentBank]:
        banks: dict[int, LatentBank] = {}
        for problem in problems:
            key = self._bank_key(problem)
            if key in banks:
                continue
            if not self.analytic:
                banks[key] = draw_by_rollouts(
                    problem.model, self.n_samples, self.rollout_length, key, progress
                )
            elif isinstance(problem.model.inner, ExactModel):
                banks[key] = draw_analytic(problem.model.inner.process, self.n_samples, key)
            else:
                raise InputError(
                    f"{problem.model.name} has no known prior to draw from: use ppt or ppt-rb"
                )
        return banks

    def _solve_batch(
        self, space: ContextSpace, runs: list[_Run], progress: Progress | None
    ) -> list[Answer]:
        before = replace(runs[0].problem.model.queries)
        for run in runs:
            run.bank = run.bank.at_order(space.order)
        latents = torch.stack([latents_last(run.bank.kernels) for run in runs])
        source = self._integrand_source(space, runs, latents)
        prompt = initial_prompts(space, [run.problem.seed for run in runs])
        steps = runs[0].problem.length - space.order
        report = None
        if progress is not None:
            report = lambda done, at_most, _: progress("ascending", done, at_most)  # noqa: E731
        ascents = ascend(space, prompt, latents, steps, source, self.ascent, report)
        solved = [
            self._recover(space, run, ascent, self._means(source, row, ascent.prompt, space, steps))
            for row, (run, ascent) in enumerate(zip(runs, ascents, strict=True))
        ]
        after = runs[0].problem.model.queries
        spent = QueryCount(
            after.forward_tokens - before.forward_tokens,
            after.backward_tokens - before.backward_tokens,
        )
        return [replace(answer, queries=spent) for answer in solved]

    def _integrand_source(
        self, space: ContextSpace, runs: list[_Run], latents: Tensor
    ) -> IntegrandSource:
        if not self.exact_means:
            return SingleRollouts(
                space,
                latents,
                [run.problem.utility for run in runs],
                runs[0].problem.horizon,
                [torch_stream(run.problem.seed, "ppt-rollouts") for run in runs],
            )
        means = [
            utility_of_kernels(run.problem.utility, space, run.bank.kernels, run.problem.horizon)
            for run in runs
        ]
        return ExactMeans(torch.stack(means).transpose(1, 2).contiguous())

    @staticmethod
    def _means(
        source: IntegrandSource, row: int, prompt: PromptKernel, space: ContextSpace, steps: int
    ) -> Tensor:
        own = source.select(torch.tensor([row]))
        return own(prompt.final_context(space, steps)).of_contexts[0].T

    def _recover(self, space: ContextSpace, run: _Run, ascent: Ascent, means: Tensor) -> Answer:
        prompt, surrogate, error = snap(
            space,
            ascent.prompt,
            run.bank.kernels,
            means,
            run.problem.length,
            self.candidate_score,
        )
        return Answer(
            prompt=prompt,
            queries=QueryCount(),
            bank_tokens=run.bank.tokens,
            surrogate=surrogate,
            surrogate_standard_error=error,
            ess_fraction=float(ess_fraction(ascent.log_tilt)),
            pareto_k=pareto_k(ascent.log_tilt),
            steps=ascent.steps,
            stop_reason=ascent.stop_reason,
            surrogate_history=ascent.surrogate_history,
            ess_history=ascent.ess_history,
        )


@dataclass
class _Run:
    problem: Problem
    bank: LatentBank
