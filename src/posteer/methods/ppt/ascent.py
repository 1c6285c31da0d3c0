"""Gradient ascent of the surrogate: whole batches of (utility, seed) runs at once.

A run stops when its surrogate has not improved by `tolerance` for `patience` steps; stopped runs
leave the batch, so the rest go on faster. Steps and tolerance are the paper's, whose utilities
spread over about 1: one that spreads over less than `SMALL_SPREAD` is ascended as if over 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from posteer.core import Bool, Float, require
from posteer.core.limits import MOST_OF_ANY
from posteer.core.randomness import numpy_stream
from posteer.core.spec import within
from posteer.families.markov.tilt import PromptKernel
from posteer.methods.answers import StopReason
from posteer.methods.ppt.estimator import Estimate, Runs
from posteer.methods.ppt.updates import update_rule
from posteer.methods.watching import Ascending, watcher_now
from posteer.tokens.contexts import ContextSpace

MOST_KEPT = 64
"""Entries of a prompt kernel that a record has room for."""

SMALL_SPREAD = 1e-2
"""Of a utility over latents and contexts; each of the paper's spreads over more."""

StepReport = Callable[[int, int, int], None]
"""Called after each step with (step, step limit, runs still ascending)."""


@dataclass(frozen=True, kw_only=True)
class AscentSettings:
    """The paper's settings; the step limit, which it leaves out, was read off its tables."""

    learning_rate: float = 0.1
    max_steps: int = 5000
    patience: int = 100
    tolerance: float = 1e-5
    floor: float = 1e-6

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, f"learning rate {self.learning_rate}: must be positive")
        within(self.max_steps, "steps", 1, MOST_OF_ANY)
        within(self.patience, "patience", 1, MOST_OF_ANY)


@dataclass(frozen=True, eq=False)
class Ascent:
    """One run's end point and history. The last entry of a history belongs to `prompt`."""

    prompt: PromptKernel
    surrogate: float
    standard_error: float
    log_tilt: Float[Tensor, "L"]
    stop_reason: StopReason
    surrogate_history: list[float] = field(repr=False)
    ess_history: list[float] = field(repr=False)
    seconds_history: list[float] = field(repr=False)

    @property
    def steps(self) -> int:
        return len(self.surrogate_history)

    @property
    def kept_kernel(self) -> Float[Tensor, "C V"] | None:
        """The prompt kernel, where a record has room for it and its entries are numbers."""
        table = self.prompt.transitions[0].cpu()
        kept = table.numel() <= MOST_KEPT and bool(table.isfinite().all())
        return table if kept else None


def initial_prompts(
    space: ContextSpace, seeds: list[int], first_contexts: Bool[Tensor, "B C"] | None = None
) -> PromptKernel:
    """rho and A from independent Dirichlet(1) draws, one pair per seed; rho within its contexts."""
    initial, transitions = [], []
    for seed in seeds:
        stream = numpy_stream(seed, "initial-prompt-kernel")
        initial.append(stream.dirichlet([1.0] * space.n_contexts))
        transitions.append(stream.dirichlet([1.0] * space.vocab_size, size=space.n_contexts))
    starts = torch.stack([torch.from_numpy(law) for law in initial])
    if first_contexts is not None:
        starts = starts * first_contexts
        starts = starts / starts.sum(-1, keepdim=True)
    return PromptKernel(
        torch.stack([torch.from_numpy(table) for table in transitions]),
        starts,
    )


def ascend(
    runs: Runs,
    prompt: PromptKernel,
    settings: AscentSettings,
    report: StepReport | None = None,
    first_contexts: Bool[Tensor, "B C"] | None = None,
) -> list[Ascent]:
    """Ascend every run from its prompt kernel until it stops."""
    update = update_rule(runs.space, settings.learning_rate, settings.floor, first_contexts)
    watch, watcher = _StopWatch(settings, len(runs), runs.device), watcher_now()
    finished: dict[int, Ascent] = {}
    active = list(range(len(runs)))
    started = time.perf_counter()
    clock: list[float] = []
    surrogates: list[list[float]] = [[] for _ in active]
    ess: list[list[float]] = [[] for _ in active]
    factor: Float[Tensor, "B"] | None = None
    finite = prompt  # the last kernel of numbers: where a run that diverges is left
    for iteration in range(1, settings.max_steps + 1):
        at = runs.estimate(prompt, step=iteration, spread=iteration == 1)
        if at.spread is not None:
            factor = enlarging(at.spread)
        seen = at if factor is None else at.times(factor)
        for run, value, fraction in zip(
            active, at.surrogate.tolist(), at.ess_fraction.tolist(), strict=True
        ):
            surrogates[run].append(value)
            ess[run].append(fraction)
        clock.append(time.perf_counter() - started)
        if watcher is not None:
            watcher(_shown(iteration, settings.max_steps, at, prompt))
        over = watch.over(seen, last=iteration == settings.max_steps)
        for row in over.nonzero().flatten().tolist():
            run = active[row]
            end = prompt if bool(torch.isfinite(prompt.transitions[row]).all()) else finite
            finished[run] = Ascent(
                prompt=PromptKernel(end.transitions[[row]], end.initial[[row]]),
                surrogate=float(at.surrogate[row]),
                standard_error=float(at.standard_error[row]),
                log_tilt=at.log_tilt[row],
                stop_reason=watch.reason(row),
                surrogate_history=surrogates[run],
                ess_history=ess[run],
                seconds_history=clock[:iteration],
            )
        finite, prompt = prompt, update(prompt, seen)
        if bool(over.any()):
            kept = (~over).nonzero().flatten()
            active = [active[row] for row in kept.tolist()]
            prompt = PromptKernel(prompt.transitions[kept], prompt.initial[kept])
            runs, update = runs.select(kept), update.select(kept)
            finite = PromptKernel(finite.transitions[kept], finite.initial[kept])
            watch.select(kept)
            factor = None if factor is None else factor[kept]
        if report is not None:
            report(iteration, settings.max_steps, len(active))
        if not active:
            break
    return [finished[run] for run in range(len(finished))]


def _shown(step: int, most: int, at: Estimate, prompt: PromptKernel) -> Ascending:
    value, fraction = float(at.surrogate[0]), float(at.ess_fraction[0])
    return Ascending(step, most, value, fraction, at.log_tilt[0], prompt.transitions[0])


def enlarging(spread: Float[Tensor, "B"]) -> Float[Tensor, "B"] | None:
    """What utilities of little spread are multiplied by to be ascended; None if there are none."""
    small = (spread > 0) & (spread < SMALL_SPREAD)
    return torch.where(small, 1 / spread, 1.0) if bool(small.any()) else None


class _StopWatch:
    """Which runs are over, and why."""

    def __init__(self, settings: AscentSettings, n_runs: int, device: torch.device) -> None:
        self.settings = settings
        self.best = torch.full((n_runs,), -torch.inf, dtype=torch.float64, device=device)
        self.waited = torch.zeros(n_runs, dtype=torch.long, device=device)
        self.diverged = torch.zeros(n_runs, dtype=torch.bool, device=device)

    def over(self, at: Estimate, last: bool) -> Bool[Tensor, "B"]:
        improved = at.surrogate > self.best + self.settings.tolerance
        self.best = torch.where(improved, at.surrogate, self.best)
        self.waited = torch.where(improved, 0, self.waited + 1)
        finite = torch.isfinite(at.gradient).all(-1).all(-1) & torch.isfinite(at.surrogate)
        self.diverged = ~finite
        if last:
            return torch.ones_like(self.diverged)
        return self.diverged | (self.waited >= self.settings.patience)

    def reason(self, row: int) -> StopReason:
        if bool(self.diverged[row]):
            return StopReason.DIVERGED
        stuck = self.waited[row] >= self.settings.patience
        return StopReason.NO_IMPROVEMENT if stuck else StopReason.STEP_LIMIT

    def select(self, rows: Tensor) -> None:
        self.best, self.waited = self.best[rows], self.waited[rows]
        self.diverged = self.diverged[rows]
