"""The self-normalised estimate of the surrogate J_tilt and of its gradient (eq. IS_estimator).

One estimator for every order: at order 0 the law of the last context is a constant and the second
gradient term vanishes by itself. The two variants differ only in `Integrand`: exact means per
latent (PPT-RB) or one rollout per latent and context (PPT).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.counters import uniforms
from posteer.core.shapes import Float, Int
from posteer.core.weights import WeightedMean, weighted_mean
from posteer.families.markov.geometric import LogLatents
from posteer.families.markov.kernels import chain_matrix
from posteer.families.markov.tilt import PromptKernel, Tilt, log_tilt, tilt_and_score
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace

SPREAD_OF_ROUNDING = 1e-9
"""Of a utility's size: below it all of its values are the same."""


@dataclass(frozen=True, eq=False)
class Integrand:
    """What the estimator averages: `of_contexts[b, c, l]` estimates mu(latent; context) and
    `of_prompts[b, l]` estimates its mean over the prompt's last context."""

    of_contexts: Float[Tensor, "B C L"]
    of_prompts: Float[Tensor, "B L"]


@runtime_checkable
class IntegrandSource(Protocol):
    """Where mu comes from; asked once per step with the law of the last context. What is random in
    it is that of the step, of each run its own if they are not alike."""

    def __call__(
        self, final_context: Float[Tensor, "B C"], step: Int[Tensor, "B"] | int = 0
    ) -> Integrand: ...

    def select(self, runs: Int[Tensor, "K"]) -> IntegrandSource: ...


@dataclass(frozen=True, eq=False)
class ExactMeans:
    """PPT-RB: the conditional expectation of the utility given the latent, known exactly."""

    means: Float[Tensor, "B C L"]

    def __call__(
        self, final_context: Float[Tensor, "B C"], step: Int[Tensor, "B"] | int = 0
    ) -> Integrand:
        return Integrand(self.means, (final_context[..., None] * self.means).sum(1))

    def select(self, runs: Int[Tensor, "K"]) -> ExactMeans:
        return ExactMeans(self.means[runs])


@dataclass(frozen=True, eq=False)
class SingleRollouts:
    """PPT: fresh rollouts at every step, unbiased given the latent but noisy.

    Each latent emits one continuation from each context; the prompt's last context is then drawn
    to pick the one that estimates the marginalised utility. Draws are those of `core.counters`
    under each run's key: the first is the last context's, then come those of each place of the
    continuation, context by context.
    """

    space: ContextSpace
    latents: Float[Tensor, "B C V L"]
    utilities: list[Utility]
    horizon: int
    keys: Int[Tensor, "B 2"]

    def __call__(
        self, final_context: Float[Tensor, "B C"], step: Int[Tensor, "B"] | int = 0
    ) -> Integrand:
        n_runs, n_contexts, _, n_latents = self.latents.shape
        device = self.latents.device
        steps = torch.as_tensor(step, device=device).expand(n_runs)
        drawn = uniforms(self.keys, steps, self.horizon * n_contexts + 1, n_latents)
        tokens = self._roll_out(drawn[:, 1:].unflatten(1, (self.horizon, n_contexts)))
        starts = torch.arange(n_contexts, device=device)[:, None].expand(-1, n_latents)
        of_contexts = torch.empty(tokens.shape[:-1], dtype=torch.float64, device=device)
        for utility in dict.fromkeys(self.utilities):
            runs = [run for run, own in enumerate(self.utilities) if own is utility]
            contexts = starts % self.space.vocab_size**utility.order
            of_contexts[runs] = utility(tokens[runs], contexts.expand(len(runs), -1, -1))
        edges = final_context.cumsum(-1)[:, :-1, None]
        last = (drawn[:, :1] >= edges).sum(1, keepdim=True)
        return Integrand(of_contexts, of_contexts.gather(1, last).squeeze(1))

    def _roll_out(self, uniforms: Float[Tensor, "B N C L"]) -> Int[Tensor, "B C L N"]:
        next_context = self.space.next_context.to(uniforms.device)
        shape = (uniforms.shape[0], *uniforms.shape[2:])
        contexts = torch.arange(self.space.n_contexts, device=uniforms.device)
        contexts = contexts[:, None].expand(shape)
        cumulative = self.latents.cumsum(2)[:, :, :-1]
        tokens = []
        for uniform in uniforms.unbind(1):
            token = torch.zeros_like(contexts)
            for edge in cumulative.unbind(2):
                token = token + (uniform >= edge.gather(1, contexts))
            tokens.append(token)
            contexts = next_context[contexts, token]
        return torch.stack(tokens, -1)

    def select(self, runs: Int[Tensor, "K"]) -> SingleRollouts:
        utilities = [self.utilities[run] for run in runs.tolist()]
        return replace(self, latents=self.latents[runs], utilities=utilities, keys=self.keys[runs])


@dataclass(frozen=True, eq=False)
class Estimate:
    """The surrogate at a prompt kernel, its gradient, and how far the weights can be trusted."""

    surrogate: Float[Tensor, "B"]
    standard_error: Float[Tensor, "B"]
    ess_fraction: Float[Tensor, "B"]
    log_tilt: Float[Tensor, "B L"]
    gradient: Float[Tensor, "B C V"]
    initial_gradient: Float[Tensor, "B C"]
    spread: Float[Tensor, "B"] | None = None

    def times(self, factor: Float[Tensor, "B"]) -> Estimate:
        """Of a utility so many times as large; the weights are the same."""
        return replace(
            self,
            surrogate=self.surrogate * factor,
            standard_error=self.standard_error * factor,
            gradient=self.gradient * factor[:, None, None],
            initial_gradient=self.initial_gradient * factor[:, None],
        )


@runtime_checkable
class Runs(Protocol):
    """What an ascent asks of what prompt kernels are judged by, whatever the latents are."""

    @property
    def space(self) -> ContextSpace: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def select(self, runs: Int[Tensor, "K"]) -> Runs: ...

    def estimate(
        self, prompt: PromptKernel, *, step: int = 0, spread: bool = False
    ) -> Estimate: ...


@dataclass(frozen=True, eq=False)
class TiltedRuns:
    """What prompt kernels are judged by: each run's latents, how a kernel weighs them, and what is
    averaged.

    `n_transitions` are those of a prompt past its first context, the n of eq. W. Latents that were
    lifted to a higher order weigh first contexts too (`first_likelihood`).
    """

    space: ContextSpace
    latents: Float[Tensor, "B C V L"]
    n_transitions: int
    source: IntegrandSource
    tilt: Tilt = "linear"
    first_likelihood: Float[Tensor, "B C L"] | None = None

    logs: LogLatents | None = None

    def __post_init__(self) -> None:
        if self.tilt == "geometric" and self.logs is None:  # taken once, not at every step
            logs = LogLatents.of(self.latents, self.first_likelihood)
            object.__setattr__(self, "logs", logs)

    def __len__(self) -> int:
        return len(self.latents)

    def select(self, runs: Int[Tensor, "K"]) -> TiltedRuns:
        first, logs = self.first_likelihood, self.logs
        return replace(
            self,
            latents=self.latents[runs],
            source=self.source.select(runs),
            first_likelihood=None if first is None else first[runs],
            logs=None if logs is None else logs.select(runs),
        )

    @property
    def device(self) -> torch.device:
        return self.latents.device

    def estimate(self, prompt: PromptKernel, *, step: int = 0, spread: bool = False) -> Estimate:
        """J_tilt and its gradient."""
        return estimate(self, prompt, step=step, spread=spread)

    def integrand(self, prompt: PromptKernel, step: Int[Tensor, "B"] | int = 0) -> Integrand:
        return self.source(prompt.final_context(self.space, self.n_transitions), step)

    def log_tilt(self, prompt: PromptKernel) -> Float[Tensor, "B L"]:
        """log W of each latent."""
        if self.logs is not None:
            return self.logs.log_tilt(self.space, prompt, self.n_transitions)
        return log_tilt(self.space, prompt, self.latents, self.n_transitions, self.first_likelihood)


def estimate(
    runs: TiltedRuns, prompt: PromptKernel, *, step: int = 0, spread: bool = False
) -> Estimate:
    """J_tilt and its gradient in A (both terms) and in rho; the `spread` too where asked.

    The covariance needs no centred score: the centred utilities already sum to zero under the
    weights. In rho the linear tilt's weights are held frozen, as the paper has it (eq. grad_rho);
    the geometric one's are not.
    """
    space, steps = runs.space, runs.n_transitions
    integrand = runs.integrand(prompt, step)
    through_start: Tensor | float = 0.0
    if runs.logs is None:
        first = runs.first_likelihood
        log_w, score = tilt_and_score(space, prompt, runs.latents, steps, "auto", first)
        mean = weighted_mean(log_w, integrand.of_prompts)
        covariance = torch.einsum("bl,bcvl->bcv", mean.influence, score)
    else:
        log_w = runs.log_tilt(prompt)
        mean = weighted_mean(log_w, integrand.of_prompts)
        covariance, through_start = runs.logs.weighted_score(space, prompt, steps, mean.influence)
    of_contexts = torch.einsum("bl,bcl->bc", mean.weights, integrand.of_contexts)
    through_last, initial_gradient = _last_context_gradients(space, prompt, of_contexts, steps)
    return Estimate(
        surrogate=mean.value,
        standard_error=mean.standard_error,
        ess_fraction=mean.ess_fraction,
        log_tilt=log_w,
        gradient=covariance + through_last,
        initial_gradient=initial_gradient + through_start,
        spread=spread_of(integrand.of_contexts) if spread else None,
    )


def spread_of(values: Float[Tensor, "B C L"]) -> Float[Tensor, "B"]:
    """The largest less the least; none where that is rounding."""
    most, least = values.amax((1, 2)), values.amin((1, 2))
    size = torch.maximum(most.abs(), least.abs())
    return torch.where(most - least > SPREAD_OF_ROUNDING * size, most - least, 0.0)


def surrogate_of(runs: TiltedRuns, prompt: PromptKernel) -> WeightedMean:
    """J_tilt and its standard error alone, at any latents."""
    return weighted_mean(runs.log_tilt(prompt), runs.integrand(prompt).of_prompts)


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
