"""The geometric tilt: the likelihood of the *expected* counts (docs/TILTS.md).

`log W(kernel; A, rho) = sum_cv E[T(c, v)] log kernel(v | c) + sum_c rho(c) log first(c)`, the mean
of the log-likelihood over the prompts of `kappa = (A, rho)` where the linear tilt is the log of the
mean likelihood. `E[T(c, v)] = visits(c) A(c, v)` over `n = length - order` steps.

It is linear in the log-kernels, so neither the tilt nor its score ever runs the chain per latent:
latents meet it in one product, and a weighted sum of scores is the score of the weighted sum of
log-kernels, one `[C, V]` table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.families.markov.kernels import chain_matrix
from posteer.families.markov.tilt import PromptKernel
from posteer.tokens.contexts import ContextSpace

LEAST_PROBABILITY = sys.float_info.min
"""What a latent's exact zero counts as: exp(-708).

A kernel inside the simplex expects a little of every transition, so one zero of a counted latent
would silence it at every step of an ascent and bring it back only in the corner. So held, a zero
costs 708 nats per expected count: nothing where the count vanishes, all of the weight (to double
precision) at one whole count."""


def log_kernels(latents: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Logarithms of probabilities, zeros held at the least one."""
    return latents.clamp(min=LEAST_PROBABILITY).log()


def expected_counts(
    space: ContextSpace, prompt: PromptKernel, steps: int
) -> Float[Tensor, "B C V"]:
    """E[T(c, v)]: how often a prompt is expected to emit each token from each context.

    The corner of `[[T, 1], [0, 1]]^n` is `sum_t T^t`, all visits in log2(n) products.
    """
    matrix = chain_matrix(space, prompt.transitions)
    one = torch.eye(space.n_contexts, dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
    top = torch.cat([matrix, one], -1)
    bottom = torch.cat([torch.zeros_like(matrix), one], -1)
    power = torch.linalg.matrix_power(torch.cat([top, bottom], -2), steps)
    corner = power[:, : space.n_contexts, space.n_contexts :]
    visits = (prompt.initial[:, None] @ corner).squeeze(1)
    return visits[..., None] * prompt.transitions


@dataclass(frozen=True, eq=False)
class LogLatents:
    """Logarithms of latents and of what they give to first contexts: taken once for all steps of
    an ascent, since they cost more than all else of a step."""

    kernels: Float[Tensor, "B C V L"]
    first: Float[Tensor, "B C L"] | None = None

    @classmethod
    def of(
        cls,
        latents: Float[Tensor, "B C V L"],
        first_likelihood: Float[Tensor, "B C L"] | None = None,
    ) -> LogLatents:
        first = None if first_likelihood is None else log_kernels(first_likelihood)
        return cls(log_kernels(latents), first)

    def select(self, runs: Int[Tensor, "K"]) -> LogLatents:
        return LogLatents(self.kernels[runs], None if self.first is None else self.first[runs])

    def log_tilt(
        self, space: ContextSpace, prompt: PromptKernel, steps: int
    ) -> Float[Tensor, "B L"]:
        """`log W` of every run and latent."""
        counts = expected_counts(space, prompt, steps)
        log_w = torch.einsum("bcv,bcvl->bl", counts, self.kernels)
        if self.first is not None:
            log_w = log_w + torch.einsum("bc,bcl->bl", prompt.initial, self.first)
        return log_w

    def weighted_score(
        self, space: ContextSpace, prompt: PromptKernel, steps: int, weights: Float[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B C V"], Float[Tensor, "B C"]]:
        """`sum_l weights_l d log W_l / d (A, rho)`."""
        rewards = torch.einsum("bl,bcvl->bcv", weights, self.kernels)
        of_transitions, of_initial = score_of_rewards(space, prompt, rewards, steps)
        if self.first is not None:
            of_initial = of_initial + torch.einsum("bl,bcl->bc", weights, self.first)
        return of_transitions, of_initial


def score_of_rewards(
    space: ContextSpace, prompt: PromptKernel, rewards: Float[Tensor, "B C V"], steps: int
) -> tuple[Float[Tensor, "B C V"], Float[Tensor, "B C"]]:
    """Gradients in A and in rho of `sum_cv E[T(c, v)] rewards(c, v)`.

    A unit of A(c, v) earns the reward on every visit of `c`, and whatever follows from the context
    it leads to. With `r(c) = sum_v A(c, v) rewards(c, v)`, one power

        [[T, r, 0], [0, 1, rho^T], [0, 0, T]]^n

    holds all that: in its middle column `sum_{j<n} T^j r` (what each start earns), in its middle
    row `sum_{t<n} rho^T T^t` (the visits), and in its corner `sum_{j+t<=n-2} T^j r rho^T T^t`,
    whose entry `(c', c)` is what follows from moving from `c` to `c'`.
    """
    matrix = chain_matrix(space, prompt.transitions)
    n_contexts = space.n_contexts
    block = matrix.new_zeros(len(matrix), 2 * n_contexts + 1, 2 * n_contexts + 1)
    block[:, :n_contexts, :n_contexts] = matrix
    block[:, :n_contexts, n_contexts] = (prompt.transitions * rewards).sum(-1)
    block[:, n_contexts, n_contexts] = 1.0
    block[:, n_contexts, n_contexts + 1 :] = prompt.initial
    block[:, n_contexts + 1 :, n_contexts + 1 :] = matrix
    power = torch.linalg.matrix_power(block, steps)
    visits = power[:, n_contexts, n_contexts + 1 :]
    corner = power[:, :n_contexts, n_contexts + 1 :].transpose(1, 2)
    index = space.next_context.to(corner.device).expand(len(corner), -1, -1)
    of_transitions = visits[..., None] * rewards + corner.gather(2, index)
    return of_transitions, power[:, :n_contexts, n_contexts]
