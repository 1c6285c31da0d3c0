"""Hard prompts by search over prompts, scored by latents of any family: no model token is read.

climb           latents by rolling the model out: shipped, given or drawn
climb-analytic  the prior itself: all its latents where they are finitely many, else its filter
                where continuations are few, else draws

Where prompts are few all are tried, and the answer is optimal as far as the latents tell: exactly
where they are all known. Elsewhere beams, periodic and random prompts are climbed from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from posteer.banks.drawn import Bank
from posteer.banks.plans import DrawPlan
from posteer.core import Progress, Spec, integer, phase
from posteer.methods.answers import (
    EXACT,
    Answer,
    Certificate,
    EstimatorChoice,
    Scope,
    StopReason,
)
from posteer.methods.climbing.filtered import FilterScore
from posteer.methods.climbing.latents import LatentScore
from posteer.methods.climbing.prompts import (
    PromptSearchSettings,
    Score,
    SearchResult,
    search_prompts,
)
from posteer.methods.forecasting import work_of_one_run
from posteer.methods.latent_source import (
    bank_key,
    banks_of,
    draw_plan,
    draw_settings,
    needs_of,
    uses_atoms,
    with_tuned_bank,
)
from posteer.methods.protocol import Needs, Problem, Work
from posteer.methods.scorers.choice import trusted_weights
from posteer.models.meter import QueryCount


@dataclass(frozen=True, kw_only=True)
class PromptClimb:
    """The best prompts by what latents make of each."""

    analytic: bool
    draw: DrawPlan = field(default_factory=draw_plan)
    search: PromptSearchSettings = field(default_factory=PromptSearchSettings)

    @property
    def needs(self) -> Needs:
        return needs_of(self.analytic, self.draw, exact_means=True, candidates=True)

    def forecast(self, problem: Problem, together: int) -> Work:
        def of_size(n_latents: int) -> PromptClimb:
            return replace(self, analytic=True, draw=replace(self.draw, n_samples=n_latents))

        return work_of_one_run(problem, self.draw.n_samples, of_size)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        problems = with_tuned_bank(self.draw, problems, progress)
        settings = replace(self.search, keep=max(problems[0].candidates, self.search.keep))
        # Latents that are models are asked, first about the context; rollouts have their own price.
        asked = replace(problems[0].model.queries) if self.analytic else None
        weighed = [problem for problem in problems if not self._filters(problem)]
        banks = banks_of(self.needs, weighed, progress)
        found = []
        for problem in problems:
            before, asked = asked or replace(problem.model.queries), None
            if self._filters(problem):
                answer = _by_filter(problem, settings, progress)
            else:
                bank, held_out = banks[bank_key(self.needs, problem)]
                answer = _by_latents(problem, bank, held_out, settings, progress)
            found.append(replace(answer, queries=problem.model.queries.since(before)))
        return found

    def _filters(self, problem: Problem) -> bool:
        """Whether exact J takes no more than as many draws of the prior as nobody asked for."""
        free = self.analytic and "n_samples" in self.draw.free
        few = problem.vocab_size**problem.horizon <= self.draw.n_samples
        return free and few and not uses_atoms(self.needs, problem)


def _by_filter(
    problem: Problem, settings: PromptSearchSettings, progress: Progress | None
) -> Answer:
    """The best prompt by exact Bayes under the prior."""
    prior = problem.model.prior
    assert prior is not None, "declared in needs"
    score = FilterScore(prior, problem.goal, problem.horizon)
    with phase("search"):
        result = _search(problem, score, settings, progress)
    return _exactly(_found(problem, result, EXACT, 0.0), float(result.values[0]), 0.0)


def _exactly(answer: Answer, value: float, error: float) -> Answer:
    """With a surrogate that is J."""
    return replace(
        answer,
        surrogate=value,
        surrogate_standard_error=error,
        plain_surrogate=value,
        plain_standard_error=error,
        estimator=EstimatorChoice(EXACT),
    )


def _by_latents(
    problem: Problem,
    bank: Bank,
    held_out: Bank | None,
    settings: PromptSearchSettings,
    progress: Progress | None,
) -> Answer:
    """The best prompt by the latents of a bank, with what others make of it."""
    score = _score(bank, problem)
    with phase("search"):
        result = _search(problem, score, settings, progress)
    other = None if held_out is None else _score(held_out, problem)
    return _answer(problem, bank, score, result, other)


def _score(bank: Bank, problem: Problem) -> LatentScore:
    return LatentScore.of(bank, problem.context, problem.expected, problem.horizon)


def _search(
    problem: Problem,
    score: Score,
    settings: PromptSearchSettings,
    progress: Progress | None,
) -> SearchResult:
    read = len(problem.context)
    silent = max(problem.model.order - read, problem.goal.order - read, 0)
    return search_prompts(
        score,
        problem.vocab_size,
        problem.length,
        problem.allowed,
        settings,
        problem.seed,
        progress,
        shortest=silent + 1,
    )


def _answer(
    problem: Problem,
    bank: Bank,
    score: LatentScore,
    result: SearchResult,
    held_out: LatentScore | None,
) -> Answer:
    """The best prompt, with what the latents and others it was not chosen on make of it."""
    best = result.prompts[:1]
    scores = score.scores(best)
    value, error = float(scores.value[0]), float(scores.standard_error[0])
    found = _found(problem, result, EXACT if bank.exact else "importance", error)
    found = replace(found, bank_tokens=bank.tokens, read_off=bank.origin.rollout_length)
    if bank.exact:
        return _exactly(found, value, error)
    other = None if held_out is None else held_out.scores(best)
    drawn = bank.origin.source == "analytic"  # latents read off rollouts err as well
    sound = drawn and bool(trusted_weights(scores, len(score.latents))[0])
    shape = float(scores.pareto_k[0])
    return replace(
        found,
        surrogate=value,
        surrogate_standard_error=error,
        held_out_surrogate=None if other is None else float(other.value[0]),
        held_out_standard_error=None if other is None else float(other.standard_error[0]),
        plain_surrogate=value if sound else None,
        plain_standard_error=error if sound else None,
        ess_fraction=float(scores.ess_fraction[0]),
        pareto_k=None if math.isnan(shape) else shape,
    )


def _found(problem: Problem, result: SearchResult, estimator: str, error: float) -> Answer:
    """What a search ended with, certified where it tried everything."""
    certificate = None
    stopped = StopReason.LOCAL_OPTIMUM if result.finished else StopReason.ROUND_LIMIT
    if result.interrupted:
        stopped = StopReason.INTERRUPTED
    if result.complete:
        scope = Scope.PROMPTS if problem.allowed is None else Scope.ALLOWED_PROMPTS
        certificate = Certificate(scope, result.n_scored, estimator, error)
        stopped = scope.stop_reason
    return Answer(
        prompt=result.prompts[0],
        queries=QueryCount(),
        steps=len(result.history),
        stop_reason=stopped,
        certificate=certificate,
        candidates=result.prompts,
        history=result.history,
    )


def from_spec(spec: Spec) -> PromptClimb:
    """`climb-analytic(keep=10,limit=65536,width=64,restarts=8,rounds=1000)`."""
    analytic = spec.name.endswith("-analytic")
    defaults = PromptSearchSettings()
    given = spec.take(
        **draw_settings(analytic),
        keep=defaults.keep,
        limit=defaults.limit,
        width=defaults.width,
        restarts=defaults.restarts,
        rounds=defaults.max_rounds,
    )
    return PromptClimb(
        analytic=analytic,
        draw=draw_plan(given),
        search=PromptSearchSettings(
            keep=integer(given["keep"], "keep"),
            limit=integer(given["limit"], "limit"),
            width=integer(given["width"], "width"),
            restarts=integer(given["restarts"], "restarts"),
            max_rounds=integer(given["rounds"], "rounds"),
        ),
    )
