"""The ascent of a batch by whichever kernel serves it; by torch where none does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.shapes import Bool, Float
from posteer.core.weights import weighted_mean
from posteer.families.markov.tilt import PromptKernel
from posteer.methods.answers import StopReason
from posteer.methods.ppt.ascent import Ascent, AscentSettings, StepReport, ascend, enlarging
from posteer.methods.ppt.estimator import Runs, TiltedRuns, spread_of
from posteer.methods.ppt.fused.compiling import asked_for, can_compile
from posteer.methods.ppt.fused.inputs import (
    AT_LIMIT,
    DIVERGED,
    LEFT_TO_TORCH,
    RUNNING,
    STUCK,
    can_be_fused,
)
from posteer.methods.watching import watcher_now

REASONS = {
    STUCK: StopReason.NO_IMPROVEMENT,
    AT_LIMIT: StopReason.STEP_LIMIT,
    DIVERGED: StopReason.DIVERGED,
}


@runtime_checkable
class Climb(Protocol):
    """A batch of runs, part of the way up, on some device."""

    @property
    def steps_at_once(self) -> int: ...

    @property
    def prompts(self) -> PromptKernel: ...

    def advance(
        self, runs: Sequence[int], n_steps: int
    ) -> tuple[list[int], list[list[float]], list[list[float]]]:
        """Climb for some steps: how many each run took, their surrogates and sample sizes."""

    def ended(self, run: int) -> int: ...


def kernels_for(device: torch.device) -> bool:
    """Whether ascents on a device have kernels here."""
    if asked_for() in ("torch", "triton"):
        return asked_for() == "triton"
    return can_compile() if device.type == "cpu" else find_spec("triton") is not None


def ascend_fused(
    runs: Runs,
    prompt: PromptKernel,
    settings: AscentSettings,
    report: StepReport | None = None,
    first_contexts: Bool[Tensor, "B C"] | None = None,
) -> list[Ascent]:
    """What `ascend` does, to rounding. Whoever watches sees every step: then torch takes them."""
    watched = watcher_now() is not None
    if watched or not isinstance(runs, TiltedRuns) or not can_be_fused(runs):
        return ascend(runs, prompt, settings, report, first_contexts)
    if not kernels_for(runs.device):
        return ascend(runs, prompt, settings, report, first_contexts)
    spread = spread_of(runs.integrand(prompt, 1).of_contexts)
    larger = enlarging(spread)
    factor = torch.ones_like(spread) if larger is None else larger
    climb = climb_of(runs, prompt, settings, factor, first_contexts)
    histories, clock = _climbed(climb, len(runs), settings, report)
    found = _ascents(runs, climb, histories, clock)
    left = [run for run in range(len(runs)) if climb.ended(run) == LEFT_TO_TORCH]
    if left:
        rows = torch.tensor(left, device=runs.device)
        starts = PromptKernel(prompt.transitions[rows], prompt.initial[rows])
        masks = None if first_contexts is None else first_contexts[torch.tensor(left)]
        for run, ascent in zip(
            left, ascend(runs.select(rows), starts, settings, report, masks), strict=True
        ):
            found[run] = ascent
    return [found[run] for run in range(len(runs))]


def climb_of(
    runs: TiltedRuns,
    prompt: PromptKernel,
    settings: AscentSettings,
    factor: Float[Tensor, "B"],
    first_contexts: Bool[Tensor, "B C"] | None,
) -> Climb:
    """Runs at the foot, where `can_be_fused` and `kernels_for` say so."""
    if runs.device.type == "cpu" and asked_for() != "triton":
        from posteer.methods.ppt.fused.cpu import CpuClimb

        return CpuClimb(runs, prompt, settings, factor, first_contexts)
    from posteer.methods.ppt.fused.gpu import GpuClimb

    return GpuClimb(runs, prompt, settings, factor, first_contexts)


Histories = list[tuple[list[float], list[float]]]


def _climbed(
    climb: Climb, n_runs: int, settings: AscentSettings, report: StepReport | None
) -> tuple[Histories, list[float]]:
    """Surrogates and sample sizes of every step of each run, and when each step was done."""
    histories: Histories = [([], []) for _ in range(n_runs)]
    active, done = list(range(n_runs)), 0
    started, clock = time.perf_counter(), []
    while active:
        n_steps = min(climb.steps_at_once, settings.max_steps - done)
        before = time.perf_counter() - started
        taken, surrogates, sizes = climb.advance(active, n_steps)
        each = (time.perf_counter() - started - before) / n_steps
        clock += [before + each * (step + 1) for step in range(n_steps)]
        for run, n, *new in zip(active, taken, surrogates, sizes, strict=True):
            for history, values in zip(histories[run], new, strict=True):
                history += values[:n]
        active = [run for run in active if climb.ended(run) == RUNNING]
        done += n_steps
        if report is not None:
            report(done, settings.max_steps, len(active))
    return histories, clock


def _ascents(
    runs: TiltedRuns, climb: Climb, histories: Histories, clock: list[float]
) -> dict[int, Ascent]:
    """What came of the runs that kernels finished; error bars and tilts are torch's."""
    ended = [run for run in range(len(runs)) if climb.ended(run) != LEFT_TO_TORCH]
    if not ended:
        return {}
    rows = torch.tensor(ended, device=runs.device)
    own, prompts = runs.select(rows), climb.prompts
    prompts = PromptKernel(prompts.transitions[ended], prompts.initial[ended]).to(runs.device)
    steps = torch.tensor([len(histories[run][0]) for run in ended], device=runs.device)
    log_tilt = own.log_tilt(prompts)
    mean = weighted_mean(log_tilt, own.integrand(prompts, steps).of_prompts)
    found = {}
    for row, run in enumerate(ended):
        surrogates, sizes = histories[run]
        found[run] = Ascent(
            prompt=PromptKernel(prompts.transitions[[row]], prompts.initial[[row]]),
            surrogate=surrogates[-1],
            standard_error=float(mean.standard_error[row]),
            log_tilt=log_tilt[row],
            stop_reason=REASONS[climb.ended(run)],
            surrogate_history=surrogates,
            ess_history=sizes,
            seconds_history=clock[: len(surrogates)],
        )
    return found
