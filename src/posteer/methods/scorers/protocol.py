"""What a bank makes of hard prompts: the importance-sampling estimate of their expected utility.

A model that is a Bayes filter of Markov kernels sees a prompt through its transition counts T, and
its utility starts from the prompt's last context s, so

    J(y) = sum_l w_l mu_l(s) / sum_l w_l,    log w_l = sum_cv T(c, v) log kernel_l(v | c)

is the same for every prompt of a class (first context, counts, last context): a hard prompt needs
no tilt, and its estimate no choice. `HardScorer` is what a search over classes asks for; a bank is
one answer to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.shapes import Float, Int
from posteer.core.weights import normalise
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.means import utility_of_kernels
from posteer.methods.protocol import Problem

CHUNK_ELEMENTS = 2**22
"""Weights (classes x latents) that are in memory at a time."""


@dataclass(frozen=True, eq=False)
class HardScores:
    """The expected utility of each prompt and how far it can be trusted; `nan` where unknown.

    `used[k]` indexes `estimators`. A prompt that no latent can emit has value `-inf`.
    """

    value: Float[Tensor, "K"]
    standard_error: Float[Tensor, "K"]
    ess_fraction: Float[Tensor, "K"]
    pareto_k: Float[Tensor, "K"]
    used: Int[Tensor, "K"]
    estimators: tuple[str, ...]

    @classmethod
    def of(
        cls,
        name: str,
        value: Float[Tensor, "K"],
        standard_error: Float[Tensor, "K"],
        ess_fraction: Float[Tensor, "K"] | None = None,
        pareto_k: Float[Tensor, "K"] | None = None,
    ) -> HardScores:
        """Scores that all come from one estimator."""
        unknown = torch.full_like(value, torch.nan)
        return cls(
            value,
            standard_error,
            unknown if ess_fraction is None else ess_fraction,
            unknown if pareto_k is None else pareto_k,
            torch.zeros(len(value), dtype=torch.long),
            (name,),
        )

    def select(self, rows: Int[Tensor, "R"]) -> HardScores:
        return HardScores(
            self.value[rows],
            self.standard_error[rows],
            self.ess_fraction[rows],
            self.pareto_k[rows],
            self.used[rows],
            self.estimators,
        )

    def used_names(self) -> list[str]:
        return [self.estimators[index] for index in self.used.tolist()]


@runtime_checkable
class HardScorer(Protocol):
    """Any estimator of J. Counts are of the model's order; `first` and `last` are contexts of the
    goal's order or a higher one, whose suffixes are read."""

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores: ...


def score_classes(
    kernels: Float[Tensor, "L C V"],
    means: Float[Tensor, "L S"],
    counts: Int[Tensor, "K C V"] | Float[Tensor, "K C V"],
    last: Int[Tensor, "K"],
    first: Int[Tensor, "K"] | None = None,
    first_likelihood: Float[Tensor, "L C"] | None = None,
) -> HardScores:
    """J, its standard error and ESS/L for K classes at once.

    `means[l, s]` is the mean utility of latent l from context s, of any order up to that of `last`.
    Latents that were lifted to a higher order also weigh the tokens of the `first` context.
    """
    log_first = None
    if first_likelihood is not None:
        assert first is not None, "lifted latents weigh the first context as well"
        log_first = first_likelihood.log().T
    of_context = means.T.contiguous()
    parts = []
    for rows in torch.arange(len(counts)).split(max(1, CHUNK_ELEMENTS // len(kernels))):
        log_weights = log_likelihood(counts[rows].to(kernels.dtype), kernels)
        if log_first is not None and first is not None:
            log_weights = log_weights + log_first[first[rows]]
        parts.append(_weighted(log_weights, of_context[last[rows] % len(of_context)]))
    value, error, ess = (torch.cat(figures) for figures in zip(*parts, strict=True))
    return HardScores.of("importance", value, error, ess)


def _weighted(
    log_weights: Float[Tensor, "K L"], utilities: Float[Tensor, "K L"]
) -> tuple[Tensor, Tensor, Tensor]:
    possible = log_weights.amax(-1) > -torch.inf
    weights = normalise(log_weights)
    value = (weights * utilities).sum(-1)
    error = (weights * (utilities - value[:, None])).square_().sum(-1).sqrt()
    ess = 1 / (weights.square_().sum(-1) * weights.shape[-1])
    return (
        torch.where(possible, value, -torch.inf),
        torch.where(possible, error, torch.nan),
        torch.where(possible, ess, 0.0),
    )


@dataclass(frozen=True, eq=False)
class BankScorer:
    """The estimate of one bank for one goal; `observed` counts add to those of every prompt."""

    kernels: Float[Tensor, "L C V"]
    means: Float[Tensor, "L S"]
    observed: Float[Tensor, "C V"] | None = None

    @classmethod
    def of(cls, bank: LatentBank, problem: Problem) -> BankScorer:
        """Means from contexts of the goal's order, weights by latents of their own."""
        lifted = bank.at_order(problem.order)
        means = utility_of_kernels(problem.expected, lifted.space, lifted.kernels, problem.horizon)
        return cls(bank.kernels, means, bank.observed)

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        return score_classes(self.kernels, self.means, self._whole(counts), last)

    def _whole(self, counts: Tensor) -> Tensor:
        return counts if self.observed is None else counts + self.observed

    def log_weights(self, counts: Int[Tensor, "C V"]) -> Float[Tensor, "L"]:
        """Of one class, for diagnostics of its weights."""
        return log_likelihood(self._whole(counts)[None].to(self.kernels.dtype), self.kernels)[0]

    def difference(
        self, counts: Int[Tensor, "2 C V"], last: Int[Tensor, "2"]
    ) -> tuple[float, float]:
        """J of one class less that of another, and the standard error of the difference.

        Both are ratios over the same latents, so their errors largely cancel: to first order the
        difference errs by `sum_l w_l (mu_l - J) - w'_l (mu'_l - J')`.
        """
        counts = self._whole(counts)
        weights = normalise(log_likelihood(counts.to(self.kernels.dtype), self.kernels))
        utilities = self.means.T[last % self.means.shape[1]]
        value = (weights * utilities).sum(-1, keepdim=True)
        influence = weights * (utilities - value)
        error = (influence[0] - influence[1]).square().sum().sqrt()
        return float(value[0] - value[1]), float(error)
