"""Batches of ascents: latents of many problems as one tensor programme, and what comes of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posteer.banks.drawn import Bank
from posteer.core import Bool, Float, Int, Progress, phase
from posteer.core.counters import key_of
from posteer.core.weights import ess_fraction, pareto_k
from posteer.families.markov.family import Lifted
from posteer.families.markov.means import has_exact_mean, utility_of_kernels
from posteer.families.markov.tilt import PromptKernel, Tilt, latents_last
from posteer.methods.climbing.search import SearchSettings, search_classes
from posteer.methods.latent_source import (
    BATCH_NUMBERS,
    Banks,
    bank_key,
    banks_of,
    n_latents,
    uses_atoms,
)
from posteer.methods.ppt.ascent import Ascent, AscentSettings, initial_prompts
from posteer.methods.ppt.estimator import (
    ExactMeans,
    IntegrandSource,
    SingleRollouts,
    TiltedRuns,
    surrogate_of,
)
from posteer.methods.ppt.fused.ascending import ascend_fused
from posteer.methods.ppt.snap import CandidateScore, propose, score_candidates
from posteer.methods.protocol import Needs, Problem, place_of
from posteer.methods.scorers.protocol import BankScorer
from posteer.methods.watching import Candidates, Weighed, watcher_now
from posteer.models.meter import QueryCount

STARTS_OF_A_SEARCH = 4
"""Snapped prompts from which an allowed one is looked for, where none of them is."""


@dataclass(frozen=True, eq=False)
class Optimised:
    """An optimised prompt kernel with all that snapping it needs.

    `means` are the utilities of the bank's latents from each context, exact or by one rollout;
    `lifted` are those latents at the order of the ascent, `held_out` others it was not tuned on.
    """

    problem: Problem
    bank: Bank
    lifted: Lifted
    ascent: Ascent
    means: Float[Tensor, "L C"]
    queries: QueryCount
    held_out: Lifted | None

    @property
    def ess_fraction(self) -> float:
        return float(ess_fraction(self.ascent.log_tilt))

    @property
    def pareto_k(self) -> float:
        return pareto_k(self.ascent.log_tilt)

    def snap(self, score: CandidateScore) -> tuple[Int[Tensor, "m"], float]:
        """The hard prompt and its surrogate."""
        problem, kernel, lifted = self.problem, self.ascent.prompt, self.lifted
        asked = problem.markov
        head = len(asked.head)
        near = propose(lifted.space, kernel, head + problem.length, asked.first_contexts)
        if problem.allowed is not None:
            fine = problem.allowed.allows(near.tokens[:, head:])
            if not bool(fine.any()):
                return self._best_allowed(near.tokens[:, head:])
            near = near.select(fine)
        values = score_candidates(lifted, kernel, near, self.means, score)
        best, watcher = int(values.argmax()), watcher_now()
        if watcher is not None:
            watcher(Candidates.best(near.tokens[:, head:], values, snapped=True))
        return near.tokens[best, head:], float(values[best])

    def _best_allowed(self, snapped: Int[Tensor, "K m"]) -> tuple[Int[Tensor, "m"], float]:
        """No snapped prompt is allowed: the best class that is, looked for from them."""
        bank = self.bank
        scorer = BankScorer(bank.kernels, self.means, bank.observed, bank.log_weights, bank.temper)
        starts = snapped[:STARTS_OF_A_SEARCH]
        found = search_classes(
            self.problem.markov, scorer, SearchSettings(), self.problem.seed, starts
        )
        return found.prompts[0], float(found.scores.value[0])


def ascend_all(
    problems: list[Problem],
    needs: Needs,
    settings: AscentSettings,
    tilt: Tilt,
    *,
    exact_means: bool,
    device: str | None = None,
    progress: Progress | None = None,
    banks: Banks | None = None,
) -> list[Optimised]:
    """One optimised prompt kernel per problem; as many at once as memory takes."""
    known = banks_of(needs, problems, progress) if banks is None else banks
    groups = defaultdict(list)
    for index, problem in enumerate(problems):
        groups[problem.markov.order, uses_atoms(needs, problem)].append(index)
    solutions: dict[int, Optimised] = {}
    for (order, atoms), indices in groups.items():
        first = problems[indices[0]]
        per_run = n_latents(needs, first) * first.vocab_size ** (order + 1)
        size = max(1, BATCH_NUMBERS // per_run)
        for at in range(0, len(indices), size):
            part = indices[at : at + size]
            runs = [(problems[i], *known[bank_key(needs, problems[i])]) for i in part]
            place = torch.device(place_of(problems[0], device))
            exact = exact_means or atoms
            solved = _ascend_batch(runs, order, settings, tilt, exact, place, progress)
            solutions.update(zip(part, solved, strict=True))
    return [solutions[index] for index in range(len(problems))]


def _ascend_batch(
    runs: list[tuple[Problem, Bank, Bank | None]],
    order: int,
    settings: AscentSettings,
    tilt: Tilt,
    exact_means: bool,
    device: torch.device,
    progress: Progress | None,
) -> list[Optimised]:
    first = runs[0][0]
    before = replace(first.model.queries)
    lifted = _lifted([(problem, bank) for problem, bank, _ in runs], order)
    owned = [(problem, own) for (problem, _, _), own in zip(runs, lifted, strict=True)]
    tilted = tilted_runs(owned, tilt, exact_means, device)
    starts = _first_contexts([problem for problem, _, _ in runs])
    seeds = [problem.seed for problem, _, _ in runs]
    start = initial_prompts(tilted.space, seeds, starts).to(device)

    def report(done: int, at_most: int, _running: int) -> None:
        if progress is not None:
            progress("ascending", done, at_most)

    watcher = watcher_now()
    if watcher is not None:
        watcher(Weighed(lifted[0].kernels))
    with phase("ascend"):
        ascents = ascend_fused(tilted, start, settings, report, starts)
    spent = first.model.queries.since(before)
    others = iter(
        _lifted([(problem, other) for problem, _, other in runs if other is not None], order)
    )
    solved = []
    for row, ((problem, bank, other), ascent) in enumerate(zip(runs, ascents, strict=True)):
        own = tilted.source.select(torch.tensor([row], device=device))
        last = ascent.prompt.final_context(tilted.space, tilted.n_transitions)
        means = own(last).of_contexts[0].T.cpu()
        ascent = replace(ascent, prompt=ascent.prompt.to("cpu"), log_tilt=ascent.log_tilt.cpu())
        held_out = None if other is None else next(others)
        solved.append(Optimised(problem, bank, lifted[row], ascent, means, spent, held_out))
    return solved


def _lifted(runs: list[tuple[Problem, Bank]], order: int) -> list[Lifted]:
    """Each run's latents at an order; runs of one bank share them."""
    known: dict[tuple[int, tuple[int, ...]], Lifted] = {}
    found = []
    for problem, bank in runs:
        key = (id(bank), tuple(problem.markov.head))
        if key not in known:
            known[key] = bank.lifted(order, problem.markov.head)
        found.append(known[key])
    return found


def on_held_out(
    solutions: list[Optimised], tilt: Tilt, device: str | None
) -> list[tuple[float | None, float | None]]:
    """The surrogate of each tuned prompt kernel and its standard error on latents that it was not
    tuned to, where there are any; as many at once as memory takes."""
    groups: dict[tuple[bool, bool, tuple[int, ...]], list[int]] = defaultdict(list)
    for index, solution in enumerate(solutions):
        lifted, problem = solution.held_out, solution.problem
        if lifted is not None:
            vocab = lifted.space.vocab_size
            exact = has_exact_mean(problem.expected, vocab, problem.horizon)
            alike = (exact, lifted.first_likelihood is None, tuple(lifted.kernels.shape))
            groups[alike].append(index)
    found: dict[int, tuple[float, float]] = {}
    for (exact, _, _), indices in groups.items():
        per_run = _held_out(solutions[indices[0]])[1].kernels.numel()
        for at in range(0, len(indices), max(1, BATCH_NUMBERS // per_run)):
            part = indices[at : at + max(1, BATCH_NUMBERS // per_run)]
            place = torch.device(place_of(solutions[part[0]].problem, device))
            posed = [_held_out(solutions[index]) for index in part]
            runs = tilted_runs(posed, tilt, exact, place)
            kernels = [solutions[index].ascent.prompt for index in part]
            prompts = PromptKernel(
                torch.cat([kernel.transitions for kernel in kernels]),
                torch.cat([kernel.initial for kernel in kernels]),
            )
            mean = surrogate_of(runs, prompts.to(place))
            pairs = zip(mean.value.tolist(), mean.standard_error.tolist(), strict=True)
            found.update(zip(part, pairs, strict=True))
    return [found.get(index, (None, None)) for index in range(len(solutions))]


def _held_out(solution: Optimised) -> tuple[Problem, Lifted]:
    assert solution.held_out is not None
    return solution.problem, solution.held_out


def tilted_runs(
    runs: list[tuple[Problem, Lifted]], tilt: Tilt, exact_means: bool, device: torch.device
) -> TiltedRuns:
    """Problems and their latents as what prompt kernels are judged by."""
    latents = torch.stack([latents_last(own.kernels) for _, own in runs]).to(device)
    firsts = [own.first_likelihood.T for _, own in runs if own.first_likelihood is not None]
    return TiltedRuns(
        runs[0][1].space,
        latents,
        runs[0][0].markov.steps,
        _integrand_source(runs, latents, exact_means),
        tilt,
        torch.stack(firsts).to(device) if firsts else None,
    )


def _integrand_source(
    runs: list[tuple[Problem, Lifted]], latents: Float[Tensor, "B C V L"], exact_means: bool
) -> IntegrandSource:
    space, horizon = runs[0][1].space, runs[0][0].horizon
    if not exact_means:
        goals = [problem.expected for problem, _ in runs]
        keys = [key_of(problem.seed, "ppt-rollouts") for problem, _ in runs]
        drawn_by = torch.tensor(keys, device=latents.device)
        return SingleRollouts(space, latents, goals, horizon, drawn_by)
    known: dict[tuple[int, int], Tensor] = {}
    means = []
    for problem, own in runs:  # seeds of one utility on one bank have the same
        key = (id(problem.expected), id(own.kernels))
        if key not in known:
            known[key] = utility_of_kernels(problem.expected, space, own.kernels, horizon)
        means.append(known[key])
    return ExactMeans(torch.stack(means).transpose(1, 2).contiguous().to(latents.device))


def _first_contexts(problems: list[Problem]) -> Bool[Tensor, "B C"] | None:
    """Where each prompt may begin; None if anywhere."""
    own = [problem.markov.first_contexts for problem in problems]
    given = [mask for mask in own if mask is not None]
    if not given:
        return None
    return torch.stack([torch.ones_like(given[0]) if mask is None else mask for mask in own])
