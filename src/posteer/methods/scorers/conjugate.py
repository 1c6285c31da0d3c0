"""The conjugate estimator: a mixture of Dirichlets fitted once, updated exactly by any prompt.

Importance sampling needs a latent of the bank near every posterior; a fitted prior needs the bank
only to say what the prior looks like, so its error does not grow with the length of the prompt
beyond what the prior's own parameters are uncertain by.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Float
from posteer.families.markov.fit.densities import PriorDensity
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.fit.expectation_maximisation import (
    MOST_CONCENTRATED,
    Evidence,
    evidence_of,
    expectation_maximisation,
    fits_from,
)
from posteer.families.markov.fit.selection import (
    FINER,
    TOLERANCE,
    Selection,
    select_components,
)
from posteer.families.markov.urns import UrnMeans
from posteer.goals.protocol import Utility
from posteer.methods.scorers.posterior import (
    FoldedPrompts,
    HardPromptPosterior,
    mean_utilities,
)
from posteer.methods.scorers.protocol import HardScores

RESAMPLED = 1000
"""Latents that a replicate is fitted to: fits to more spread less by the square root of how many
more, and take as many times longer."""

LONG_ROLLOUT = 200
"""Tokens for each entry of a kernel from which latents are as good as known: a finer fit is worth
having then, and replicates are fitted to latents, which is ten times quicker than to counts."""

POSTERIOR_DRAWS = 2000
"""Kernels drawn from the posterior of each prompt where continuations make too many classes."""


class ConjugateFit(HardPromptPosterior):
    """J under a mixture of Dirichlets fitted to the bank by EM, finer than the bank supports.

    J is summed over classes of continuations in closed form, as Polya urns; where they are too many
    it is averaged over posterior draws of the kernel. The standard error is that of the fit: EM is
    climbed again from the fit under `replicates` random weightings of latents of the bank (Rubin's
    Bayesian bootstrap) and J is computed under each; Monte Carlo error is added where there is any.
    With `like`, the fit of another bank of the same prior, it is climbed from there: as many
    components, none chosen anew.
    The fit is finer than need be, so that what it is wrong by shows in that spread; of priors that
    no such mixture resembles it says nothing: `goodness.misfit` is there for that. With
    `replicates=0` it is `nan` and a score costs a small part.
    """

    name = "conjugate"
    orders = False
    follows = True
    by_mean_kernels = False

    def __init__(
        self,
        bank: LatentBank,
        *,
        components: int = 32,
        finer: int = FINER,
        replicates: int = 24,
        like: ConjugateFit | None = None,
        seed: int = 0,
    ) -> None:
        self.bank = bank
        self.most_components = components
        self.finer = finer
        self.n_replicates = replicates
        self.like = like
        self.seed = seed
        self._urns: dict[tuple[int, int], UrnMeans] = {}

    def urn_means(self, utility: Utility, horizon: int) -> UrnMeans:
        """Worked out once for each utility that is asked about."""
        key = (id(utility), horizon)
        if key not in self._urns:  # which keeps the utility, so no other one gets its id
            self._urns[key] = UrnMeans(utility, self.bank.space, horizon)
        return self._urns[key]

    @cached_property
    def evidence(self) -> Evidence:
        return evidence_of(self.bank.kernels, self.bank.counts)

    @cached_property
    def selection(self) -> Selection:
        finer = self.finer if self._resolved else 1
        return select_components(
            self.bank.space, self.evidence, self.seed, self.most_components, finer
        )

    @cached_property
    def _resolved(self) -> bool:
        """Whether latents are as good as known: what few tokens leave open no finer fit fills."""
        counts = self.bank.counts
        if counts is None:
            return True
        tokens = float(counts.sum((-2, -1)).double().mean())
        return tokens >= LONG_ROLLOUT * counts[0].numel()

    @cached_property
    def _fitted(self) -> DirichletMixture:
        if self.like is None:
            return self.selection.mixture
        start = self.like.mixture
        return expectation_maximisation(self.evidence, start, tolerance=TOLERANCE).mixture

    @property
    def mixture(self) -> DirichletMixture:
        """The fitted prior."""
        return self._fitted

    def for_search(self) -> ConjugateFit:
        """The coarse fit with no replicates: it orders prompts with less noise. Where posterior
        draws would be needed it takes the mean kernel of each component's posterior instead, which
        leaves out what a continuation tells about its own latent."""
        quick = ConjugateFit(self.bank, replicates=0, like=self.like, seed=self.seed)
        quick.__dict__["_fitted"] = self.mixture if self.like else self.selection.coarse
        quick._urns, quick.by_mean_kernels = self._urns, True
        return quick

    @cached_property
    def latents(self) -> Float[Tensor, "L C V"]:
        """The bank's latents; those known by counts as draws from their posterior given them.

        A rollout's frequencies are coarse in rows it seldom visited, and zero where its latent is
        not: as latents they would be off by more than the fit is.
        """
        if self.bank.counts is None:
            return self.bank.kernels
        stream = numpy_stream(self.seed, "latents-given-counts")
        return self.mixture.sample_updated(self.bank.counts.double(), stream)

    @cached_property
    def replicates(self) -> list[DirichletMixture]:
        """The fit again, each time to a bank whose latents weigh Exponential(1) at random."""
        if not self.n_replicates:
            return []
        stream = numpy_stream(self.seed, "bayesian-bootstrap")
        n = min(len(self.evidence), RESAMPLED)
        rows = torch.from_numpy(stream.permutation(len(self.evidence))[:n])
        given = stream.standard_exponential((self.n_replicates, n))
        weights = torch.from_numpy(given / given.mean(1, keepdims=True))
        # long rollouts' latents as if known
        evidence = evidence_of(self.latents, None) if self._resolved else self.evidence
        some, fits = evidence.select(rows), list[DirichletMixture]()
        at_once = max(1, NUMBERS_AT_ONCE // (n * self.mixture.concentration.numel()))
        for part in weights.split(at_once):
            starts = [self.mixture] * len(part)
            again = fits_from(some, starts, part, max_steps=100, tolerance=TOLERANCE)
            fits += [one.mixture for one in again]
        return fits

    @property
    def shrink(self) -> float:
        """What the spread of replicates is to be multiplied by: they saw fewer latents."""
        return (min(len(self.evidence), RESAMPLED) / len(self.evidence)) ** 0.5

    @property
    def density(self) -> PriorDensity:
        """The fitted prior with its replicates."""
        return PriorDensity(self.mixture, tuple(self.replicates), self.coarser, self.shrink)

    @cached_property
    def coarser(self) -> DirichletMixture | None:
        """The fit with half of the concentration where that is the most there may be; None where it
        never is. At a point mass J is off by what is left of its width, in proportion to it: by as
        much as it changes from one to the other."""
        concentration = self.mixture.concentration
        capped = concentration.sum(-1, keepdim=True) > 0.99 * MOST_CONCENTRATED
        if not self.n_replicates or not bool(capped.any()):
            return None
        return replace(self.mixture, concentration=concentration / torch.where(capped, 2.0, 1.0))

    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        if self.urn_means(utility, horizon).possible(prompts.last):
            value, error = self._by_urns(utility, prompts, horizon)
        elif self.by_mean_kernels:
            value = self._at_mean_kernels(utility, prompts, horizon)
            error = torch.full_like(value, torch.nan)
        else:
            value, error = self._by_draws(utility, prompts.to("cpu"), horizon)
        return HardScores.of(value, error)

    def _by_urns(
        self, utility: Utility, prompts: FoldedPrompts, horizon: int
    ) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
        values = self._under_each_fit(utility, prompts, horizon)
        return values[:, 0], self._error(values)

    def difference(
        self, utility: Utility, prompts: FoldedPrompts, horizon: int
    ) -> tuple[float, float]:
        """J of the first prompt less that of the second, and the standard error of that: both move
        together under the replicates. Where there is a closed form."""
        values = self._under_each_fit(utility, prompts, horizon)
        gaps = (values[0] - values[1])[None]
        return float(gaps[0, 0]), float(self._error(gaps)[0])

    def _error(self, values: Float[Tensor, "K R1"]) -> Float[Tensor, "K"]:
        """Of values by the fit, by its replicates, and by the coarser fit where there is one."""
        replicates = values[:, 1 : 1 + self.n_replicates]
        error = self.shrink * spread(replicates)
        if self.coarser is None:
            return error
        return torch.hypot(error, values[:, -1] - values[:, 0])

    def _under_each_fit(
        self, utility: Utility, prompts: FoldedPrompts, horizon: int
    ) -> Float[Tensor, "K R1"]:
        """By the fit, by each of its replicates, and by the coarser one."""
        urn_means = self.urn_means(utility, horizon)
        coarser = [] if self.coarser is None else [self.coarser]
        fits = [fit.to(prompts.device) for fit in (self.mixture, *self.replicates, *coarser)]
        prior = torch.cat([fit.concentration for fit in fits])
        parts = []
        for rows in torch.arange(len(prompts.last)).split(max(1, NUMBERS_AT_ONCE // prior.numel())):
            counts = prompts.counts[rows]
            means = urn_means(prior + counts[:, None], prompts.last[rows])
            if len(prior) == len(fits):  # of one component each, whatever the evidence
                parts.append(means)
                continue
            weights = torch.stack([fit.component_log_evidence(counts) for fit in fits], 1)
            parts.append((weights.softmax(-1) * means.unflatten(1, weights.shape[1:])).sum(-1))
        return torch.cat(parts)

    def _at_mean_kernels(
        self, utility: Utility, prompts: FoldedPrompts, horizon: int
    ) -> Float[Tensor, "K"]:
        """J as if each component's posterior were its mean."""
        space, mixture, values = self.bank.space, self.mixture.to(prompts.device), []
        size = max(1, NUMBERS_AT_ONCE // mixture.concentration.numel())
        for rows in torch.arange(len(prompts.last)).split(size):
            counts, last = prompts.counts[rows], prompts.last[rows]
            updated = mixture.concentration + counts[:, None]
            kernels = (updated / updated.sum(-1, keepdim=True)).flatten(0, 1)
            means = mean_utilities(utility, space, kernels, prompts.wide, horizon, self.seed)
            means = means.unflatten(0, (len(rows), -1))[torch.arange(len(rows)), :, last]
            weights = mixture.component_log_evidence(counts).softmax(-1)
            values.append((weights * means).sum(-1))
        return torch.cat(values)

    def _by_draws(
        self, utility: Utility, prompts: FoldedPrompts, horizon: int
    ) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
        space, found = self.bank.space, []
        for row, context in enumerate(prompts.last.tolist()):
            stream = prompts.stream(row, self.seed, "conjugate-draws")
            posterior = self.mixture.posterior(prompts.counts[row])
            kernels = posterior.sample_kernels(POSTERIOR_DRAWS, stream)
            means = mean_utilities(utility, space, kernels, prompts.wide, horizon, self.seed)
            utilities = means[:, context]
            monte_carlo = utilities.std() / POSTERIOR_DRAWS**0.5
            error = torch.hypot(monte_carlo, self.density.error(kernels, utilities))
            found.append(torch.stack([utilities.mean(), error]))
        values, errors = torch.stack(found, 1)
        return values, errors if self.n_replicates else torch.full_like(errors, torch.nan)


def spread(values: Float[Tensor, "K R"]) -> Float[Tensor, "K"]:
    """Standard deviation over replicates; `nan` without two.

    That of R draws is itself uncertain: it is widened as Student's law widens the normal one at two
    standard errors, `t_{R-1} / 2 ~ 1 + 5 / (4 (R - 1))` (its expansion in 1 / (R - 1)).
    """
    n = values.shape[1]
    if n < 2:
        return values.new_full((len(values),), torch.nan)
    return values.std(1) * (1 + 1.25 / (n - 1))
