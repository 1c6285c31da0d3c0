"""Sequential Monte Carlo from the bank to the posterior of a prompt (Del Moral et al. 2006).

Particles start as latents of the bank. The prompt's log-likelihood is raised to powers
`0 = b_0 < b_1 < .. = 1`, each as far from the last as keeps the effective sample size at half;
after each, particles are resampled and moved by Metropolis steps that leave
`prior(kernel) * likelihood(kernel)^b` invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core import Float, require
from posteer.core.randomness import numpy_stream
from posteer.core.weights import ess_fraction
from posteer.families.markov.fit.densities import PriorDensity, better_kernel_density
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.fit.expectation_maximisation import LOG_FLOOR
from posteer.goals.protocol import Utility
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.posterior import (
    FoldedPrompts,
    HardPromptPosterior,
    mean_utilities,
)
from posteer.methods.scorers.protocol import HardScores

MOST_TEMPERATURES = 500
REMEMBERED_PROMPTS = 32


@dataclass(frozen=True, eq=False)
class Target:
    """What moves must leave alone: `density(kernel) * likelihood(kernel)^power`."""

    density: DirichletMixture
    counts: Float[Tensor, "C V"]
    power: Float[Tensor, "G"]

    def log_prior(self, logs: Float[Tensor, "G P C V"]) -> Float[Tensor, "G P"]:
        return self.density.log_density(logs.flatten(0, 1)).view(logs.shape[:2])

    def log_ratio_density(self, logs: Float[Tensor, "G P C V"]) -> Float[Tensor, "G P"]:
        """The target as a density of log-ratios: the Jacobian is the product of the entries."""
        likelihood = (logs * self.counts).sum((-2, -1))
        return self.log_prior(logs) + self.power[:, None] * likelihood + logs.sum((-2, -1))


class TemperedSMC(HardPromptPosterior):
    """J as the mean utility of particles that were led from the bank to the prompt's posterior.

    What is assumed: a bank gives the prior by samples and moves need its density, so `density`, by
    default the conjugate fit or, where held-out latents like it better, a Dirichlet kernel density
    around the bank's latents, stands for it in the moves. With few moves the particles remember
    the bank, with many they are drawn from that density's posterior; where the density is wrong,
    so is the estimate. Moves are single-row random walks in log-ratios and, with `independence`,
    proposals from the tempered conjugate posterior (accepted always when the density is the fit).

    `islands` populations run apart, each from its own part of the bank; their spread and what the
    density may be off by (`PriorDensity.error`) make the standard error. ESS is the number of
    independent posterior draws that would spread as the islands do, over that of particles.
    """

    name = "smc"
    certifies = False

    def __init__(
        self,
        bank: LatentBank,
        *,
        fit: ConjugateFit | None = None,
        density: PriorDensity | None = None,
        particles: int = 500,
        islands: int = 8,
        sweeps: int = 2,
        independence: bool = True,
        seed: int = 0,
    ) -> None:
        require(islands >= 2, f"{islands} islands: expected at least 2, for a standard error")
        self.bank = bank
        self.fit = ConjugateFit(bank, seed=seed) if fit is None else fit
        self._density = density
        self.particles = min(particles, len(self.bank) // islands)
        require(self.particles >= 2, f"{len(bank)} latents are too few for {islands} islands")
        self.islands = islands
        self.sweeps = sweeps
        self.independence = independence
        self.seed = seed
        self._known: dict[bytes, Tensor] = {}

    def for_search(self) -> HardPromptPosterior:
        """The fit: particles are led to a few prompts only."""
        return self.fit.for_search()

    @cached_property
    def density(self) -> PriorDensity:
        """The prior's density in the moves."""
        if self._density is not None:
            return self._density
        fit = self.fit
        smooth = better_kernel_density(self.bank.space, fit.evidence, fit.selection, self.seed)
        return fit.density if smooth is None else smooth

    @cached_property
    def start(self) -> Float[Tensor, "G P C V"]:
        """Logarithms of the bank's latents, each island its own."""
        n = self.islands * self.particles
        shuffled = numpy_stream(self.seed, "smc-start").permutation(len(self.bank))
        logs = self.fit.latents[torch.from_numpy(shuffled[:n])].log().clamp(min=LOG_FLOOR)
        return logs.unflatten(0, (self.islands, self.particles))

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        space = self.bank.space
        found = []
        for row, context in enumerate(prompts.last.tolist()):
            kernels = self._kernels(prompts, row)
            means = mean_utilities(utility, space, kernels, prompts.wide, horizon, self.seed)
            utilities = means[:, context]
            by_island = utilities.view(self.islands, -1).mean(1)
            sampling = by_island.std() / self.islands**0.5
            error = torch.hypot(sampling, self.density.error(kernels, utilities))
            independent = utilities.var() / sampling.square().clamp(min=1e-300)
            ess = (independent / len(utilities)).clamp(max=1.0)
            found.append(torch.stack([utilities.mean(), error, ess]))
        value, error, ess = torch.stack(found, 1)
        return HardScores.of(value, error, ess)

    def _kernels(self, prompts: FoldedPrompts, row: int) -> Float[Tensor, "n C V"]:
        """Particles of one prompt, kept for the next utility that asks about it."""
        key = prompts.counts[row].numpy().tobytes()
        if key not in self._known:
            if len(self._known) >= REMEMBERED_PROMPTS:
                del self._known[next(iter(self._known))]
            stream = prompts.stream(row, self.seed, "smc")
            self._known[key] = self.sample(prompts.counts[row], stream).exp().flatten(0, 1)
        return self._known[key]

    def sample(
        self, counts: Float[Tensor, "C V"], stream: np.random.Generator
    ) -> Float[Tensor, "G P C V"]:
        """Logarithms of particles from the posterior after `counts`."""
        logs = self.start
        power = torch.zeros(self.islands, dtype=torch.float64)
        for _ in range(MOST_TEMPERATURES):
            running = (power < 1).nonzero()[:, 0]
            if len(running) == 0:
                break
            likelihood = (logs[running] * counts).sum((-2, -1))
            increment = next_increment(likelihood, 1 - power[running])
            power[running] = power[running] + increment
            particles = _resampled(logs[running], increment[:, None] * likelihood, stream)
            target = Target(self.density.mixture, counts, power[running])
            logs = logs.index_copy(0, running, self._moved(particles, target, stream))
        return logs

    def _moved(
        self, logs: Float[Tensor, "G P C V"], target: Target, stream: np.random.Generator
    ) -> Float[Tensor, "G P C V"]:
        for _ in range(self.sweeps):
            if self.independence:
                logs = independence_move(logs, target, self.fit.mixture, stream)
            for _ in range(logs.shape[2]):
                logs = row_walk_move(logs, target, stream)
        return logs


def next_increment(
    log_likelihood: Float[Tensor, "G P"], left: Float[Tensor, "G"], keep: float = 0.5
) -> Float[Tensor, "G"]:
    """The largest step of the power that keeps ESS/P at `keep`, by bisection; at most `left`."""
    low, high = torch.zeros_like(left), left.clone()
    enough = ess_fraction(high[:, None] * log_likelihood) >= keep
    for _ in range(50):
        middle = (low + high) / 2
        good = ess_fraction(middle[:, None] * log_likelihood) >= keep
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return torch.where(enough, left, torch.where(low > 0, low, high))


def _resampled(
    logs: Float[Tensor, "G P C V"], log_weights: Float[Tensor, "G P"], stream: np.random.Generator
) -> Float[Tensor, "G P C V"]:
    """Systematic resampling: one uniform per island, evenly spaced points of its weights."""
    n_islands, n = log_weights.shape
    edges = log_weights.softmax(-1).cumsum(-1)
    offset = torch.from_numpy(stream.random((n_islands, 1)))
    points = (torch.arange(n) + offset) / n
    chosen = torch.searchsorted(edges, points).clamp(max=n - 1)
    return logs[torch.arange(n_islands)[:, None], chosen]


def _accepted(
    logs: Float[Tensor, "G P C V"],
    proposed: Float[Tensor, "G P C V"],
    log_ratio: Float[Tensor, "G P"],
    stream: np.random.Generator,
) -> Float[Tensor, "G P C V"]:
    uniform = torch.from_numpy(stream.random(log_ratio.shape))
    return torch.where((uniform.log() < log_ratio)[..., None, None], proposed, logs)


def independence_move(
    logs: Float[Tensor, "G P C V"],
    target: Target,
    conjugate: DirichletMixture,
    stream: np.random.Generator,
) -> Float[Tensor, "G P C V"]:
    """Propose from `conjugate` updated by the tempered counts.

    The proposal contains the tempered likelihood, so it cancels: accept with
    `density(new) conjugate(old) / (density(old) conjugate(new))`.
    """
    n_islands, n = logs.shape[:2]
    tempered = target.power[:, None, None] * target.counts
    drawn = conjugate.sample_updated(tempered, stream, each=n)
    proposed = drawn.log().clamp(min=LOG_FLOOR).unflatten(0, (n_islands, n))
    if target.density is conjugate:
        return proposed
    trial = Target(conjugate, target.counts, target.power)
    gain = target.log_prior(proposed) - target.log_prior(logs)
    return _accepted(
        logs, proposed, gain + trial.log_prior(logs) - trial.log_prior(proposed), stream
    )


def row_walk_move(
    logs: Float[Tensor, "G P C V"], target: Target, stream: np.random.Generator
) -> Float[Tensor, "G P C V"]:
    """Move one random row of each particle by a Gaussian step of its log-ratios.

    The step of an entry is scaled by its spread over the island (2.38 / sqrt(V - 1), as is best
    for Gaussian targets); renormalising the row leaves the walk symmetric in log-ratios.
    """
    n_islands, n, n_contexts, vocab = logs.shape
    centred = logs - logs.mean(-1, keepdim=True)
    scale = 2.38 / (vocab - 1) ** 0.5 * centred.std(1, keepdim=True)
    row = torch.from_numpy(stream.integers(n_contexts, size=(n_islands, n)))
    chosen = torch.nn.functional.one_hot(row, n_contexts)[..., None].double()
    noise = torch.from_numpy(stream.standard_normal((n_islands, n, 1, vocab)))
    proposed = (logs + chosen * noise * scale).log_softmax(-1)
    gain = target.log_ratio_density(proposed) - target.log_ratio_density(logs)
    return _accepted(logs, proposed, gain, stream)
