"""How an ascent moves a prompt kernel: Adam on logits at order 0, projected steps above it.

The paper gives the rule for order >= 1 (tangent step, floor, renormalise). For order 0 it names
only the softmax parameterisation; Adam at the same rate is what its ESS tables show (docs/LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.shapes import Bool, Float, Int
from posteer.families.markov.tilt import PromptKernel
from posteer.methods.ppt.estimator import Estimate
from posteer.tokens.contexts import ContextSpace


@runtime_checkable
class Update(Protocol):
    """One rule; it may keep state per run."""

    def __call__(self, prompt: PromptKernel, at: Estimate) -> PromptKernel: ...

    def select(self, runs: Int[Tensor, "K"]) -> Update: ...


def update_rule(
    space: ContextSpace,
    learning_rate: float,
    floor: float,
    first_contexts: Bool[Tensor, "B C"] | None = None,
) -> Update:
    """The rule for an order; rho stays within `first_contexts`."""
    if space.order == 0:
        return LogitAdam(learning_rate)
    return ProjectedAscent(learning_rate, floor, first_contexts)


def project(values: Float[Tensor, "*B V"], floor: float) -> Float[Tensor, "*B V"]:
    """proj_Delta: floor and renormalise."""
    raised = values.clamp(min=floor)
    return raised / raised.sum(-1, keepdim=True)


@dataclass(frozen=True)
class ProjectedAscent:
    """Step along the tangent of every row of A and of rho, then project (eq. rho_update).

    Where a prompt cannot begin as it likes, rho moves within its `first_contexts` alone; where it
    can only begin in one, rho stays.
    """

    learning_rate: float
    floor: float
    first_contexts: Bool[Tensor, "B C"] | None = None

    def __call__(self, prompt: PromptKernel, at: Estimate) -> PromptKernel:
        return PromptKernel(
            self._moved(prompt.transitions, at.gradient),
            self._moved_start(prompt.initial, at.initial_gradient),
        )

    def _moved_start(self, values: Tensor, gradient: Tensor) -> Tensor:
        if self.first_contexts is None:
            return self._moved(values, gradient)
        inside = self.first_contexts.to(values.device)
        mean = (gradient * inside).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True)
        raised = (values + self.learning_rate * (gradient - mean)).clamp(min=self.floor) * inside
        return raised / raised.sum(-1, keepdim=True)

    def _moved(self, values: Tensor, gradient: Tensor) -> Tensor:
        tangent = gradient - gradient.mean(-1, keepdim=True)
        return project(values + self.learning_rate * tangent, self.floor)

    def select(self, runs: Int[Tensor, "K"]) -> ProjectedAscent:
        if self.first_contexts is None:
            return self
        return replace(
            self, first_contexts=self.first_contexts[runs.to(self.first_contexts.device)]
        )


class LogitAdam:
    """Adam (0.9, 0.999) on the logits of the one row of an order-0 kernel."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.iteration = 0
        self.logits: Tensor | None = None
        self.mean: Tensor | None = None
        self.square: Tensor | None = None

    def __call__(self, prompt: PromptKernel, at: Estimate) -> PromptKernel:
        alpha = prompt.transitions
        if self.logits is None or self.mean is None or self.square is None:
            self.logits = alpha.log()
            self.mean = self.square = torch.zeros_like(alpha)
        gradient = alpha * (at.gradient - (alpha * at.gradient).sum(-1, keepdim=True))
        self.iteration += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean = self.mean / (1 - 0.9**self.iteration)
        square = self.square / (1 - 0.999**self.iteration)
        self.logits = self.logits + self.learning_rate * mean / (square.sqrt() + 1e-8)
        return PromptKernel(self.logits.softmax(-1), prompt.initial)

    def select(self, runs: Int[Tensor, "K"]) -> LogitAdam:
        chosen = LogitAdam(self.learning_rate)
        chosen.iteration = self.iteration
        if self.logits is not None and self.mean is not None and self.square is not None:
            chosen.logits, chosen.mean = self.logits[runs], self.mean[runs]
            chosen.square = self.square[runs]
        return chosen
