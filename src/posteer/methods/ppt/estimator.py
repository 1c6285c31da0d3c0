"""The self-normalised estimate of the surrogate J_tilt and of its gradient (eq. IS_estimator).

One estimator for every order: at order 0 the law of the last context is a constant and the second
gradient term vanishes by itself. The two variants differ only in `Integrand`: exact means per
latent (PPT-RB) or one rollout per latent and context (PPT).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.core.weights import normalise
from posteer.families.markov.geometric import LogLatents, log_geometric_tilt
from posteer.families.markov.kernels import chain_matrix
from posteer.families.markov.tilt import PromptKernel, Tilt, log_tilt, tilt_and_score
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace


@dataclass(frozen=True, eq=False)
class Integrand:
    """What the estimator averages: `of_contexts[b, c, l]` estimates mu(latent; context) and
    `of_prompts[b, l]` estimates its mean over the prompt's last context."""

    of_contexts: Float[Tensor, "B C L"]
    of_prompts: Float[Tensor, "B L"]


@runtime_checkable
class IntegrandSource(Protocol):
    """Where mu comes from; asked once per step with the law of the last context."""

    def __call__(self, final_context: Float[Tensor, "B C"]) -> Integrand: ...

    def select(self, runs: Int[Tensor, "K"]) -> IntegrandSource: ...


@dataclass(frozen=True, eq=False)
class ExactMeans:
    """PPT-RB: the conditional expectation of the utility given the latent, known exactly."""

    means: Float[Tensor, "B C L"]

    def __call__(self, final_context: Float[Tensor, "B C"]) -> Integrand:
        return Integrand(self.means, (final_context[..., None] * self.means).sum(1))

    def select(self, runs: Int[Tensor, "K"]) -> ExactMeans:
        return ExactMeans(self.means[runs])


class SingleRollouts:
    """PPT: fresh rollouts at every step, unbiased given the latent but noisy.

    Each latent emits one continuation from each context; the prompt's last context is then drawn
    to pick the one that estimates the marginalised utility.
    """

    def __init__(
        self,
        space: ContextSpace,
        latents: Float[Tensor, "B C V L"],
        utilities: list[Utility],
        horizon: int,
        generators: list[torch.Generator],
    ) -> None:
        self.space = space
        self.cumulative = latents.cumsum(2)[:, :, :-1]
        self.utilities = utilities
        self.horizon = horizon
        self.generators = generators

    def __call__(self, final_context: Float[Tensor, "B C"]) -> Integrand:
        n_runs, n_contexts, _, n_latents = self.cumulative.shape
        device = self.cumulative.device
        uniforms = torch.empty(
            n_runs, self.horizon * n_contexts + 1, n_latents, dtype=torch.float64, device=device
        )
        for run, generator in enumerate(self.generators):
            torch.rand(*uniforms.shape[1:], out=uniforms[run], generator=generator)
        tokens = self._roll_out(uniforms[:, 1:].unflatten(1, (self.horizon, n_contexts)))
        starts = torch.arange(n_contexts, device=device)[:, None].expand(-1, n_latents)
        of_contexts = torch.empty(tokens.shape[:-1], dtype=torch.float64, device=device)
        for utility in dict.fromkeys(self.utilities):
            runs = [run for run, own in enumerate(self.utilities) if own is utility]
            contexts = starts % self.space.vocab_size**utility.order
            of_contexts[runs] = utility(tokens[runs], contexts.expand(len(runs), -1, -1))
        edges = final_context.cumsum(-1)[:, :-1, None]
        last = (uniforms[:, :1] >= edges).sum(1, keepdim=True)
        return Integrand(of_contexts, of_contexts.gather(1, last).squeeze(1))

    def _roll_out(self, uniforms: Float[Tensor, "B N C L"]) -> Int[Tensor, "B C L N"]:
        next_context = self.space.next_context.to(uniforms.device)
        shape = (uniforms.shape[0], *uniforms.shape[2:])
        contexts = torch.arange(self.space.n_contexts, device=uniforms.device)
        contexts = contexts[:, None].expand(shape)
        tokens = []
        for uniform in uniforms.unbind(1):
            token = torch.zeros_like(contexts)
            for edge in self.cumulative.unbind(2):
                token = token + (uniform >= edge.gather(1, contexts))
            tokens.append(token)
            contexts = next_context[contexts, token]
        return torch.stack(tokens, -1)

    def select(self, runs: Int[Tensor, "K"]) -> SingleRollouts:
        chosen = SingleRollouts.__new__(SingleRollouts)
        chosen.space, chosen.horizon = self.space, self.horizon
        chosen.cumulative = self.cumulative[runs]
        chosen.utilities = [self.utilities[run] for run in runs.tolist()]
        chosen.generators = [self.generators[run] for run in runs.tolist()]
        return chosen


@dataclass(frozen=True, eq=False)
class Estimate:
    """The surrogate at a prompt kernel, its gradient, and how far the weights can be trusted."""

    surrogate: Float[Tensor, "B"]
    standard_error: Float[Tensor, "B"]
    ess_fraction: Float[Tensor, "B"]
    log_tilt: Float[Tensor, "B L"]
    gradient: Float[Tensor, "B C V"]
    initial_gradient: Float[Tensor, "B C"]


def estimate(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    steps: int,
    source: IntegrandSource,
    first_likelihood: Float[Tensor, "B C L"] | None = None,
    tilt: Tilt = "linear",
    logs: LogLatents | None = None,
) -> Estimate:
    """J_tilt and its gradient in A (both terms) and in rho.

    The covariance needs no centred score: the centred utilities already sum to zero under the
    weights. In rho the linear tilt's weights are held frozen, as the paper has it (eq. grad_rho);
    the geometric one's are not. `logs`, which the geometric tilt needs, may be known already.
    """
    integrand = source(prompt.final_context(space, steps))
    score = None
    if tilt == "linear":
        log_w, score = tilt_and_score(space, prompt, latents, steps, "auto", first_likelihood)
    else:
        logs = LogLatents.of(latents, first_likelihood) if logs is None else logs
        log_w = logs.log_tilt(space, prompt, steps)
    weights = normalise(log_w)
    surrogate = (weights * integrand.of_prompts).sum(-1)
    centred = weights * (integrand.of_prompts - surrogate[:, None])
    through_start: Tensor | float = 0.0
    if tilt == "linear":
        covariance = torch.einsum("bl,bcvl->bcv", centred, score)
    else:
        assert logs is not None
        covariance, through_start = logs.weighted_score(space, prompt, steps, centred)
    mean_of_contexts = torch.einsum("bl,bcl->bc", weights, integrand.of_contexts)
    through_last, initial_gradient = _last_context_gradients(space, prompt, mean_of_contexts, steps)
    return Estimate(
        surrogate=surrogate,
        standard_error=centred.square().sum(-1).sqrt(),
        ess_fraction=1 / (weights.square().sum(-1) * weights.shape[-1]),
        log_tilt=log_w,
        gradient=covariance + through_last,
        initial_gradient=initial_gradient + through_start,
    )


def surrogate_of(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    steps: int,
    source: IntegrandSource,
    first_likelihood: Float[Tensor, "B C L"] | None = None,
    tilt: Tilt = "linear",
) -> tuple[Float[Tensor, "B"], Float[Tensor, "B"]]:
    """J_tilt of a prompt kernel and its standard error, without a gradient."""
    integrand = source(prompt.final_context(space, steps))
    log_of = log_tilt if tilt == "linear" else log_geometric_tilt
    weights = normalise(log_of(space, prompt, latents, steps, first_likelihood))
    surrogate = (weights * integrand.of_prompts).sum(-1)
    centred = weights * (integrand.of_prompts - surrogate[:, None])
    return surrogate, centred.square().sum(-1).sqrt()


def _last_context_gradients(
    space: ContextSpace, prompt: PromptKernel, values: Float[Tensor, "B C"], steps: int
) -> tuple[Float[Tensor, "B C V"], Float[Tensor, "B C"]]:
    """Gradients in A and in rho of `rho^T T_A^n values`.

    The corner of `[[T, values rho^T], [0, T]]^n` is `sum_j T^j values rho^T T^(n-1-j)`: entry
    `(c', c)` is what one more unit of probability on the move from `c` to `c'` would gain.
    """
    matrix = chain_matrix(space, prompt.transitions)
    gain = values[:, :, None] * prompt.initial[:, None, :]
    top = torch.cat([matrix, gain], -1)
    bottom = torch.cat([torch.zeros_like(matrix), matrix], -1)
    power = torch.linalg.matrix_power(torch.cat([top, bottom], -2), steps)
    n_contexts = space.n_contexts
    corner = power[:, :n_contexts, n_contexts:].transpose(1, 2)
    along_edges = corner.gather(2, space.next_context.to(corner.device).expand(len(corner), -1, -1))
    return along_edges, (power[:, n_contexts:, n_contexts:] @ values[..., None]).squeeze(-1)
