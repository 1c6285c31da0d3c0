"""Hard prompts by search over classes of prompts, scored by a bank: no kernel, no snapping.

classes           latents by rolling the model out: shipped, given or drawn
classes-analytic  latents from the prior, redrawn per seed; all of them where they are finitely many

Where the classes of a length are few, the answer is the bank's optimum, and says so. Elsewhere it
is the best local optimum met from the snapped prompts of a geometric ascent and from random ones;
on an exact model of independent Dirichlet rows, with a proof of how good it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from posteer.banks.drawn import Bank
from posteer.banks.plans import DrawPlan
from posteer.core import Int, Progress, Spec, integer, phase, require
from posteer.families.markov.prompt_classes import PromptClasses
from posteer.methods.answers import Answer, Certificate, EstimatorChoice
from posteer.methods.bounds.rows import with_proof
from posteer.methods.climbing.candidates import candidates_of
from posteer.methods.climbing.search import (
    BestClasses,
    SearchSettings,
    random_prompts,
    search_classes,
)
from posteer.methods.climbing.token_moves import MOST_PAIRS
from posteer.methods.forecasting import work_of_one_run
from posteer.methods.latent_source import (
    Banks,
    bank_key,
    banks_of,
    draw_plan,
    draw_settings,
    n_latents,
    needs_of,
    require_room,
    with_tuned_bank,
)
from posteer.methods.ppt.ascent import AscentSettings
from posteer.methods.ppt.batches import Optimised, ascend_all
from posteer.methods.ppt.snap import propose
from posteer.methods.protocol import Needs, Problem, Work, place_of
from posteer.methods.scorers import SCORERS
from posteer.methods.scorers.choice import Estimators, PosteriorScorer, trusted_weights
from posteer.methods.scorers.posterior import FoldedPrompts, HardPromptPosterior
from posteer.methods.scorers.protocol import score_classes
from posteer.models.meter import QueryCount

PROBES = 16
"""Random prompts on which estimators are tried before one is chosen."""

SNAPPED_STARTS = 4
"""How many snapped prompts of an ascent a local search starts from."""

MOST_CLIMBED = 2**38
"""Probabilities (prompts looked at x latents x their tables) that a climb by tokens may pass over
in a round: minutes."""


@dataclass(frozen=True, kw_only=True)
class ClassSearch:
    """The best prompts by a bank's estimate of hard prompts.

    `estimator` is what makes them of the bank's latents: `auto` picks by k-hat and misfit. `ascent`
    is that of the geometric tilt, which local searches start from.
    """

    analytic: bool
    draw: DrawPlan = field(default_factory=draw_plan)
    estimator: str = "auto"
    search: SearchSettings = field(default_factory=SearchSettings)
    ascent: AscentSettings = field(default_factory=lambda: AscentSettings(max_steps=500))

    @property
    def needs(self) -> Needs:
        atoms = self.estimator == "auto"
        needs = needs_of(self.analytic, self.draw, atoms=atoms, exact_means=True, counts=True)
        return replace(needs, tilts=True, candidates=True, device=True, proves=self.analytic)

    def forecast(self, problem: Problem, together: int) -> Work:
        def of_size(n_latents: int) -> ClassSearch:
            return replace(self, analytic=True, draw=replace(self.draw, n_samples=n_latents))

        return work_of_one_run(problem, self.draw.n_samples, of_size)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        """Problems share banks, enumerations and, where they climb, one batch of ascents."""
        problems = with_tuned_bank(self.draw, problems, progress)
        for problem in problems:
            require_room(self.needs, problem, f"classes{'-analytic' * self.analytic}")
        settings = replace(self.search, keep=max(problems[0].candidates, self.search.keep))
        banks = banks_of(self.needs, problems, progress)
        known: dict[tuple[int, bool], Estimators] = {}
        before = replace(problems[0].model.queries)
        enumerated: dict[int, PromptClasses | None] = {}
        for problem in problems:
            order = problem.markov.ends.order
            if order not in enumerated:
                enumerated[order] = problem.markov.enumerate(settings.limit)
        climbing = [
            index
            for index, problem in enumerate(problems)
            if enumerated[problem.markov.ends.order] is None
            and not problem.markov.few_prompts(settings.limit)
        ]
        for index in climbing:
            self._require_climbable(problems[index])
        starts = self._starts(problems, climbing, banks, progress)
        found = []
        for index, problem in enumerate(problems):
            bank, held_out = banks[bank_key(self.needs, problem)]
            estimators = known.setdefault((id(bank), False), Estimators(bank))
            if progress is not None:
                progress("choosing an estimator", index, len(problems))
            with phase("estimator"):
                chosen = self._chosen(estimators, problem)
            with phase("classes"):
                search = _Search(
                    problem,
                    estimators,
                    replace(settings, limit=0) if index in climbing else settings,
                    starts.get(index),
                    enumerated[problem.markov.ends.order],
                    progress,
                )
                best = search.by(chosen.name)
                given = chosen.asked or chosen.tuned
                if not given and search.unsound(best, chosen.name):
                    shape = float(best.scores.pareto_k[0])
                    chosen = estimators.without_weights(chosen, shape)
                    best = search.by(chosen.name)
            other = None
            if held_out is not None:
                like = estimators if chosen.name == "conjugate" else None
                key = (id(held_out), like is not None)
                others = known.setdefault(key, Estimators(held_out, like=like))
                other = _scorer(others, others.named(chosen.name), problem)
            certificate = _certificate(best, estimators.named(chosen.name))
            plain = _scorer(estimators, estimators.named("importance"), problem)
            found.append((problem, bank, best, other, chosen, certificate, plain))
            if progress is not None:
                progress("searching classes", index + 1, len(problems))
        queries = problems[0].model.queries.since(before)
        answers = [_answer(*one, queries) for one in found]
        return [
            answer if answer.certificate else with_proof(problem, answer, progress)
            for problem, answer in zip(problems, answers, strict=True)
        ]

    def _starts(
        self,
        problems: list[Problem],
        climbing: list[int],
        banks: Banks,
        progress: Progress | None,
    ) -> dict[int, Int[Tensor, "R m"]]:
        """The best snapped prompts of a geometric ascent, for the problems that climb."""
        if not climbing:
            return {}
        ascents = ascend_all(
            [problems[index] for index in climbing],
            self.needs,
            self.ascent,
            "geometric",
            exact_means=True,
            progress=progress,
            banks=banks,
        )
        return {
            index: _best_snapped(solution)
            for index, solution in zip(climbing, ascents, strict=True)
        }

    def _require_climbable(self, problem: Problem) -> None:
        """Refuse a climb that would take hours, and say how many latents would do."""
        asked = problem.markov
        if asked.by_classes:
            return
        singles = asked.length * asked.space.vocab_size
        moves = (singles + MOST_PAIRS) * (self.search.restarts + SNAPPED_STARTS)
        per_latent = moves * asked.space.vocab_size ** (asked.order + 1)
        most, asking = MOST_CLIMBED // per_latent, n_latents(self.needs, problem)
        name = f"classes{'-analytic' * self.analytic}"
        other = f"`method` '{name}(samples={most})'" if most >= 2 else "`method` random"
        require(
            asking <= most,
            f"{name}: {asking} latents over {asked.space.vocab_size} tokens at order {asked.order} "
            f"are too many to climb on: expected at most {most}, as in {other}",
        )

    def _chosen(self, estimators: Estimators, problem: Problem) -> EstimatorChoice:
        if self.estimator != "auto":
            return EstimatorChoice(self.estimator, asked=True)
        asked = problem.markov
        asked.mask()  # refuses what cannot be satisfied
        counts, _, last = asked.describe(random_prompts(asked, PROBES, problem.seed))
        last = last % asked.tail.n_contexts
        probes = FoldedPrompts(asked.tail, estimators.with_observed(counts), last)
        return estimators.choose(problem.expected, probes, problem.horizon)


def _best_snapped(solution: Optimised) -> Int[Tensor, "R m"]:
    lifted, asked = solution.lifted, solution.problem.markov
    head = len(asked.head)
    near = propose(lifted.space, solution.ascent.prompt, head + asked.length, asked.first_contexts)
    last = lifted.space.suffix(near.tokens)
    scores = score_classes(lifted, solution.means, near.counts, last, near.starts)
    return near.tokens[scores.value.argsort(descending=True)[:SNAPPED_STARTS]][:, head:]


def _scorer(
    estimators: Estimators, posterior: HardPromptPosterior, problem: Problem
) -> PosteriorScorer:
    return PosteriorScorer(
        estimators,
        posterior,
        problem.expected,
        problem.horizon,
        problem.markov.tail,
        place_of(problem),
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """One problem's search, by one estimator or another."""

    problem: Problem
    estimators: Estimators
    settings: SearchSettings
    starts: Int[Tensor, "R m"] | None
    classes: PromptClasses | None
    progress: Progress | None

    def by(self, name: str) -> BestClasses:
        """The best classes by an estimator, with its errors."""
        careful = self.estimators.named(name)
        best = search_classes(
            self.problem.markov,
            _scorer(self.estimators, careful.for_search(), self.problem),
            self.settings,
            self.problem.seed,
            self.starts,
            self.classes,
            self.progress,
        )
        if self.progress is not None:
            self.progress("errors of the best", 0, 1)
        return _with_errors(best, _scorer(self.estimators, careful, self.problem))

    def unsound(self, best: BestClasses, name: str) -> bool:
        """Whether plain weights chose a prompt that they cannot speak of."""
        weighs = name == "importance"
        return weighs and not bool(trusted_weights(best.scores, len(self.estimators.bank))[0])


def _with_errors(found: BestClasses, scorer: PosteriorScorer) -> BestClasses:
    """The best classes scored again by the estimator itself, and put in its order if it has one."""
    first = torch.zeros_like(found.last)  # counts hold all that the first context says
    scores = scorer(found.counts, first, found.last)
    if not scorer.posterior.orders:
        return replace(found, scores=scores)
    order = scores.value.argsort(descending=True, stable=True)
    return replace(
        found,
        prompts=found.prompts[order],
        counts=found.counts[order],
        last=found.last[order],
        scores=scores.select(order),
    )


def _certificate(found: BestClasses, posterior: HardPromptPosterior) -> Certificate | None:
    """Of a search that left nothing out, with the estimator that it is reported by."""
    if found.scope is None or not posterior.certifies:
        return None
    error = float(found.scores.standard_error[0])
    return Certificate(found.scope, found.n_scored, posterior.name, error)


def _answer(
    problem: Problem,
    bank: Bank,
    found: BestClasses,
    held_out: PosteriorScorer | None,
    chosen: EstimatorChoice,
    certificate: Certificate | None,
    plain: PosteriorScorer,
    queries: QueryCount,
) -> Answer:
    """The best prompt, with what the bank and one it was not chosen on make of it."""
    best = (found.counts[:1], torch.zeros(1, dtype=torch.long), found.last[:1])
    other = None if held_out is None else held_out(*best)
    weighed = plain(*best)
    sound = bank.exact or bool(trusted_weights(weighed, len(plain.estimators.bank))[0])
    shape = None if bank.exact else float(weighed.pareto_k[0])
    ess = float(found.scores.ess_fraction[0])
    candidates = candidates_of(problem.markov, found)
    return Answer(
        prompt=candidates[0],
        queries=queries,
        bank_tokens=bank.tokens,
        surrogate=float(found.scores.value[0]),
        surrogate_standard_error=float(found.scores.standard_error[0]),
        held_out_surrogate=None if other is None else float(other.value[0]),
        held_out_standard_error=None if other is None else float(other.standard_error[0]),
        plain_surrogate=float(weighed.value[0]) if sound else None,
        plain_standard_error=float(weighed.standard_error[0]) if sound else None,
        ess_fraction=None if math.isnan(ess) else ess,
        pareto_k=shape,
        steps=len(found.history),
        stop_reason=found.stop_reason,
        certificate=certificate,
        estimator=chosen,
        candidates=candidates,
        history=found.history,
    )


def from_spec(spec: Spec) -> ClassSearch:
    """`classes-analytic(samples=5000,estimator=auto,keep=10,restarts=8,limit=50000)`."""
    analytic = spec.name.endswith("-analytic")
    defaults = SearchSettings()
    given = spec.take(
        **draw_settings(analytic),
        keep=defaults.keep,
        limit=defaults.limit,
        restarts=defaults.restarts,
        rounds=defaults.max_rounds,
        steps=500,
        estimator="auto",
    )
    known = ("auto", *SCORERS.names())
    require(
        given["estimator"] in known,
        f"estimator '{given['estimator']}': expected one of {', '.join(known)}",
    )
    return ClassSearch(
        analytic=analytic,
        draw=draw_plan(given),
        estimator=str(given["estimator"]),
        search=SearchSettings(
            keep=integer(given["keep"], "keep"),
            limit=integer(given["limit"], "limit"),
            restarts=integer(given["restarts"], "restarts"),
            max_rounds=integer(given["rounds"], "rounds"),
        ),
        ascent=AscentSettings(max_steps=integer(given["steps"], "steps")),
    )
