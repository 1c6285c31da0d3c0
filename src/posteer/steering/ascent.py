"""Gradient ascent of the surrogate: whole batches of (utility, seed) runs at once.

Order 0 ascends the logits of a softmax, order >= 1 ascends (A, rho) on the simplex: step along
the tangent, floor, renormalise (paper, app. ppt_details and rho_update). A run stops when its
surrogate has not improved by `tolerance` for `patience` steps; stopped runs leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from posteer.errors import require
from posteer.kernels import ContextSpace
from posteer.randomness import numpy_stream
from posteer.shapes import Float
from posteer.steering.estimator import Estimate, IntegrandSource, estimate
from posteer.steering.tilt import PromptKernel

Progress = Callable[[int, int, int], None]
"""Called after each step with (step, step limit, runs still ascending)."""


@dataclass(frozen=True, kw_only=True)
class AscentSettings:
    """The paper's settings; those it leaves out were read off its tables (docs/LOG.md)."""

    learning_rate: float = 0.1
    max_steps: int = 1000
    patience: int = 100
    tolerance: float = 1e-5
    floor: float = 1e-6

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, f"learning rate {self.learning_rate}: must be positive")
        require(self.max_steps >= 1, f"{self.max_steps} steps: expected at least 1")
        require(self.patience >= 1, f"patience {self.patience}: expected at least 1")


@dataclass(frozen=True, eq=False)
class Ascent:
    """One run's end point and history. The last entry of a history belongs to `prompt`."""

    prompt: PromptKernel
    surrogate: float
    standard_error: float
    log_tilt: Float[Tensor, "L"]
    stop_reason: str
    surrogate_history: list[float] = field(repr=False)
    ess_history: list[float] = field(repr=False)

    @property
    def steps(self) -> int:
        return len(self.surrogate_history)


def initial_prompts(space: ContextSpace, seeds: list[int]) -> PromptKernel:
    """A and rho from independent Dirichlet(1) draws, one pair per seed."""
    initial, transitions = [], []
    for seed in seeds:
        stream = numpy_stream(seed, "initial-prompt-kernel")
        initial.append(stream.dirichlet([1.0] * space.n_contexts))
        transitions.append(stream.dirichlet([1.0] * space.vocab_size, size=space.n_contexts))
    return PromptKernel(
        torch.stack([torch.from_numpy(table) for table in transitions]),
        torch.stack([torch.from_numpy(law) for law in initial]),
    )


def project(values: Float[Tensor, "*B V"], floor: float) -> Float[Tensor, "*B V"]:
    """proj_Delta: floor and renormalise."""
    raised = values.clamp(min=floor)
    return raised / raised.sum(-1, keepdim=True)


def step(
    space: ContextSpace, prompt: PromptKernel, at: Estimate, settings: AscentSettings
) -> PromptKernel:
    """One update of every run."""
    rate = settings.learning_rate
    if space.order == 0:
        alpha = prompt.transitions
        logit_gradient = alpha * (at.gradient - (alpha * at.gradient).sum(-1, keepdim=True))
        return PromptKernel((alpha.log() + rate * logit_gradient).softmax(-1), prompt.initial)
    tangent = at.gradient - at.gradient.mean(-1, keepdim=True)
    initial_tangent = at.initial_gradient - at.initial_gradient.mean(-1, keepdim=True)
    return PromptKernel(
        project(prompt.transitions + rate * tangent, settings.floor),
        project(prompt.initial + rate * initial_tangent, settings.floor),
    )


def ascend(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    steps: int,
    source: IntegrandSource,
    settings: AscentSettings,
    progress: Progress | None = None,
) -> list[Ascent]:
    """Ascend every run from its prompt kernel until it stops."""
    n_runs = len(latents)
    finished: list[Ascent | None] = [None] * n_runs
    surrogates: list[list[float]] = [[] for _ in range(n_runs)]
    ess: list[list[float]] = [[] for _ in range(n_runs)]
    active = list(range(n_runs))
    best = torch.full((n_runs,), -torch.inf, dtype=torch.float64, device=latents.device)
    waited = torch.zeros(n_runs, dtype=torch.long, device=latents.device)

    for iteration in range(1, settings.max_steps + 1):
        at = estimate(space, prompt, latents, steps, source)
        for row, (value, fraction) in enumerate(
            zip(at.surrogate.tolist(), at.ess_fraction.tolist(), strict=True)
        ):
            surrogates[active[row]].append(value)
            ess[active[row]].append(fraction)
        improved = at.surrogate > best + settings.tolerance
        best = torch.where(improved, at.surrogate, best)
        waited = torch.where(improved, 0, waited + 1)
        diverged = ~torch.isfinite(at.surrogate) | ~torch.isfinite(at.gradient).all((1, 2))
        over = diverged | (waited >= settings.patience)
        if iteration == settings.max_steps:
            over = torch.ones_like(over)
        for row in over.nonzero().flatten().tolist():
            stalled = bool(waited[row] >= settings.patience)
            reason = "no-improvement" if stalled else "step-limit"
            finished[active[row]] = Ascent(
                prompt=PromptKernel(prompt.transitions[[row]], prompt.initial[[row]]),
                surrogate=float(at.surrogate[row]),
                standard_error=float(at.standard_error[row]),
                log_tilt=at.log_tilt[row],
                stop_reason="diverged" if bool(diverged[row]) else reason,
                surrogate_history=surrogates[active[row]],
                ess_history=ess[active[row]],
            )
        prompt = step(space, prompt, at, settings)
        if bool(over.any()):
            kept = (~over).nonzero().flatten()
            active = [active[row] for row in kept.tolist()]
            prompt = PromptKernel(prompt.transitions[kept], prompt.initial[kept])
            latents, source = latents[kept], source.select(kept)
            best, waited = best[kept], waited[kept]
        if progress is not None:
            progress(iteration, settings.max_steps, len(active))
        if not active:
            break
    return [run for run in finished if run is not None]
