"""Prompt kernels ascended on machines with states: the surrogate is a mean of J over the kernel's
prompts, weighed by how likely the latents make them, so no prompt kernel is better than the best
hard prompt. Hard prompts near the optimum are scored by the latents themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.drawn import Bank
from posteer.core import Float, InputError, Int, Progress, phase
from posteer.core.weights import ess_fraction, pareto_k, weighted_mean
from posteer.families.atoms.prior import Behind
from posteer.families.finite_state.machines import StateLatents
from posteer.families.finite_state.tilt import TiltedStates
from posteer.families.finite_state.unifilar import UnifilarLatents
from posteer.families.markov.tilt import PromptKernel
from posteer.families.protocol import Latents
from posteer.methods.answers import Answer, Step
from posteer.methods.climbing.latents import LatentScore
from posteer.methods.climbing.prompts import PromptSearchSettings, search_prompts
from posteer.methods.latent_source import bank_key, banks_of
from posteer.methods.ppt.ascent import Ascent, AscentSettings, ascend, initial_prompts
from posteer.methods.ppt.estimator import Estimate, spread_of
from posteer.methods.ppt.snap import propose
from posteer.methods.protocol import Needs, Problem
from posteer.methods.watching import Candidates, watcher_now
from posteer.models.meter import QueryCount
from posteer.tokens.contexts import ContextSpace


def machines_of(latents: Latents) -> StateLatents:
    """Latents as hidden Markov models where their context has left them; others are refused."""
    if isinstance(latents, StateLatents):
        return latents
    if isinstance(latents, UnifilarLatents):
        return latents.as_machines()
    if isinstance(latents, Behind):
        return machines_of(latents.latents).after(latents.context)
    raise InputError(f"{latents.family.name} latents have no states that a prompt kernel tilts")


@dataclass(frozen=True, eq=False)
class StateRuns:
    """What prompt kernels are judged by where latents have states: `values` are mean utilities of
    (context, state), `log_weights` what latents weigh before any prompt."""

    tilted: TiltedStates
    values: Float[Tensor, "B C L S"]
    log_weights: Float[Tensor, "B L"]

    @classmethod
    def of(cls, space: ContextSpace, scores: list[LatentScore], length: int) -> StateRuns:
        """One run for each score of hard prompts; the space holds what their utilities read."""
        machines = [machines_of(score.latents) for score in scores]
        values = []
        for score, own in zip(scores, machines, strict=True):
            read = torch.arange(space.n_contexts) % space.vocab_size**score.utility.order
            values.append(own.values(score.utility, score.horizon)[read])
        tilted = TiltedStates.of(space, machines, length)
        return cls(
            tilted, torch.stack(values), torch.stack([score.log_weights for score in scores])
        )

    @property
    def space(self) -> ContextSpace:
        return self.tilted.space

    @property
    def device(self) -> torch.device:
        return self.values.device

    def __len__(self) -> int:
        return len(self.values)

    def select(self, runs: Int[Tensor, "K"]) -> StateRuns:
        return StateRuns(self.tilted.select(runs), self.values[runs], self.log_weights[runs])

    def estimate(self, prompt: PromptKernel, *, step: int = 0, spread: bool = False) -> Estimate:
        """The surrogate and its whole gradient, in A and in rho."""
        tilt = self.tilted.under(prompt.transitions, prompt.initial)
        log_w = self.log_weights + tilt.log_tilt
        mean = weighted_mean(log_w, tilt.means(self.values))
        beyond = self.values - mean.value[:, None, None, None]
        of_edges, of_starts = tilt.slopes(beyond, mean.weights)
        return Estimate(
            surrogate=mean.value,
            standard_error=mean.standard_error,
            ess_fraction=mean.ess_fraction,
            log_tilt=log_w,
            gradient=of_edges,
            initial_gradient=of_starts,
            spread=spread_of(self.values.flatten(2)) if spread else None,
        )


def solve_on_states(
    problems: list[Problem],
    needs: Needs,
    settings: AscentSettings,
    progress: Progress | None = None,
) -> list[Answer]:
    """One ascent for each problem, and the best hard prompt near its end."""
    banks = banks_of(needs, problems, progress)
    return [
        _solve(problem, *banks[bank_key(needs, problem)], settings, progress)
        for problem in problems
    ]


def _solve(
    problem: Problem,
    bank: Bank,
    held_out: Bank | None,
    settings: AscentSettings,
    progress: Progress | None,
) -> Answer:
    score = _score(bank, problem)
    order = min(max(1, problem.goal.order), problem.length)
    space = ContextSpace(problem.vocab_size, order)
    runs = StateRuns.of(space, [score], problem.length)

    def report(done: int, at_most: int, _running: int) -> None:
        if progress is not None:
            progress("ascending", done, at_most)

    with phase("ascend"):
        ascent = ascend(runs, initial_prompts(space, [problem.seed]), settings, report)[0]
    with phase("snap"):
        prompt, snapped = _snapped(problem, space, ascent, score)
    other = None
    if held_out is not None:
        others = StateRuns.of(space, [_score(held_out, problem)], problem.length)
        other = others.estimate(ascent.prompt)
    steps = zip(ascent.surrogate_history, ascent.seconds_history, strict=True)
    exact = bank.exact
    return Answer(
        prompt=prompt,
        queries=QueryCount(),
        bank_tokens=bank.tokens,
        surrogate=ascent.surrogate,
        surrogate_standard_error=0.0 if exact else ascent.standard_error,
        snapped_surrogate=snapped,
        held_out_surrogate=None if other is None else float(other.surrogate[0]),
        held_out_standard_error=None if other is None else float(other.standard_error[0]),
        ess_fraction=None if exact else float(ess_fraction(ascent.log_tilt)),
        pareto_k=None if exact else pareto_k(ascent.log_tilt),
        steps=ascent.steps,
        stop_reason=ascent.stop_reason,
        prompt_kernel=ascent.kept_kernel,
        read_off=None if exact else bank.origin.rollout_length,
        history=[Step(value, 0, 0, 0, seconds) for value, seconds in steps],
        surrogate_history=ascent.surrogate_history,
        ess_history=[] if exact else ascent.ess_history,
    )


def _score(bank: Bank, problem: Problem) -> LatentScore:
    return LatentScore.of(bank, problem.context, problem.expected, problem.horizon)


def _snapped(
    problem: Problem, space: ContextSpace, ascent: Ascent, score: LatentScore
) -> tuple[Int[Tensor, "m"], float]:
    """The best hard prompt near a kernel; where none is allowed, the best that a climb finds."""
    if problem.length == space.order:
        near = space.decode(torch.arange(space.n_contexts))
    else:
        near = propose(space, ascent.prompt, problem.length).tokens
    if problem.allowed is not None:
        fine = problem.allowed.allows(near)
        if not bool(fine.any()):
            return _best_allowed(problem, near, score)
        near = near[fine]
    values = score(near)
    best, watcher = int(values.argmax()), watcher_now()
    if watcher is not None:
        watcher(Candidates.best(near, values, snapped=True))
    return near[best], float(values[best])


def _best_allowed(
    problem: Problem, near: Int[Tensor, "K m"], score: LatentScore
) -> tuple[Int[Tensor, "m"], float]:
    settings = PromptSearchSettings(keep=1, restarts=1, width=1)
    found = search_prompts(
        score,
        problem.vocab_size,
        problem.length,
        problem.allowed,
        settings,
        problem.seed,
        starts=near[:4],
        shortest=max(1, problem.goal.order + 1),
    )
    return found.prompts[0], float(found.values[0])
