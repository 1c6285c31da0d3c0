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

from posteer.banks.drawn import Bank
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.shapes import Float, Int
from posteer.core.weights import weighted_mean
from posteer.families.markov.family import Lifted
from posteer.families.markov.kernels import lift, log_likelihood
from posteer.families.markov.means import utility_of_kernels
from posteer.methods.protocol import Problem
from posteer.tokens.contexts import ContextSpace, space_of_table


@dataclass(frozen=True, eq=False)
class HardScores:
    """The expected utility of each prompt and how far it can be trusted; `nan` where unknown.

    A prompt that no latent can emit has value `-inf`.
    """

    value: Float[Tensor, "K"]
    standard_error: Float[Tensor, "K"]
    ess_fraction: Float[Tensor, "K"]
    pareto_k: Float[Tensor, "K"]

    @classmethod
    def of(
        cls,
        value: Float[Tensor, "K"],
        standard_error: Float[Tensor, "K"],
        ess_fraction: Float[Tensor, "K"] | None = None,
        pareto_k: Float[Tensor, "K"] | None = None,
    ) -> HardScores:
        """Scores by an estimator that may have no weights to judge."""
        unknown = torch.full_like(value, torch.nan)
        return cls(
            value,
            standard_error,
            unknown if ess_fraction is None else ess_fraction,
            unknown if pareto_k is None else pareto_k,
        )

    def select(self, rows: Int[Tensor, "R"]) -> HardScores:
        return HardScores(
            self.value[rows],
            self.standard_error[rows],
            self.ess_fraction[rows],
            self.pareto_k[rows],
        )

    def cpu(self) -> HardScores:
        return HardScores(
            self.value.cpu(),
            self.standard_error.cpu(),
            self.ess_fraction.cpu(),
            self.pareto_k.cpu(),
        )


@runtime_checkable
class HardScorer(Protocol):
    """Any estimator of J. Counts are of the model's order; `first` and `last` are contexts of the
    goal's order or a higher one, whose suffixes are read."""

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores: ...


def log_weights_of(
    lifted: Lifted,
    counts: Int[Tensor, "K C V"] | Float[Tensor, "K C V"],
    first: Int[Tensor, "K"] | None,
) -> Float[Tensor, "K L"]:
    """Log-likelihood of classes under each latent, that of their first contexts included."""
    log_weights = log_likelihood(counts.to(lifted.kernels.dtype), lifted.kernels)
    if lifted.first_likelihood is None:
        return log_weights
    assert first is not None, "lifted latents weigh the first context as well"
    return log_weights + lifted.first_likelihood.log().T[first]


def score_classes(
    lifted: Lifted,
    means: Float[Tensor, "L S"],
    counts: Int[Tensor, "K C V"] | Float[Tensor, "K C V"],
    last: Int[Tensor, "K"],
    first: Int[Tensor, "K"] | None = None,
) -> HardScores:
    """J, its standard error and ESS/L for K classes at once.

    `means[l, s]` is the mean utility of latent l from context s, of any order up to that of `last`.
    Latents that were lifted to a higher order also weigh the tokens of the `first` context.
    """
    of_context = means.T.contiguous()
    parts = []
    for rows in torch.arange(len(counts)).split(max(1, NUMBERS_AT_ONCE // len(means))):
        log_weights = log_weights_of(lifted, counts[rows], None if first is None else first[rows])
        mean = weighted_mean(log_weights, of_context[last[rows] % len(of_context)])
        parts.append((mean.value, mean.standard_error, mean.ess_fraction))
    value, error, ess = (torch.cat(figures) for figures in zip(*parts, strict=True))
    return HardScores.of(value, error, ess)


@dataclass(frozen=True, eq=False)
class BankScorer:
    """The estimate of one bank for one goal; `observed` counts add to those of every prompt,
    `known` log-weights to the likelihood of each latent."""

    kernels: Float[Tensor, "L C V"]
    means: Float[Tensor, "L S"]
    observed: Float[Tensor, "C V"] | None = None
    known: Float[Tensor, "L"] | None = None
    temper: float = 1.0

    @classmethod
    def of(cls, bank: Bank, problem: Problem) -> BankScorer:
        """Means from contexts of the goal's order, weights by latents of their own."""
        space = ContextSpace(problem.vocab_size, problem.markov.order)
        kernels = lift(bank.space, bank.kernels, space.order)
        means = utility_of_kernels(problem.expected, space, kernels, problem.horizon)
        return cls(bank.kernels, means, bank.observed, bank.log_weights, bank.temper)

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        whole = self._whole(counts)
        return score_classes(self._latents, self.means, whole, last, torch.zeros_like(last))

    @property
    def _latents(self) -> Lifted:
        space = space_of_table(self.kernels.shape[1], self.kernels.shape[2], "kernels")
        if self.known is None:
            return Lifted(space, self.kernels, None)
        weights = (self.known - self.known.max()).exp()  # the same wherever a prompt begins
        return Lifted(space, self.kernels, weights[:, None].expand(-1, space.n_contexts))

    def _whole(self, counts: Tensor) -> Tensor:
        own = counts if self.temper == 1 else self.temper * counts.double()
        return own if self.observed is None else own + self.observed

    def log_weights(self, counts: Int[Tensor, "C V"]) -> Float[Tensor, "L"]:
        """Of one class, for diagnostics of its weights."""
        return log_weights_of(self._latents, self._whole(counts)[None], torch.zeros(1).long())[0]

    def difference(
        self, counts: Int[Tensor, "2 C V"], last: Int[Tensor, "2"]
    ) -> tuple[float, float]:
        """J of one class less that of another, and the standard error of the difference.

        Both are ratios over the same latents, so their errors largely cancel: to first order the
        difference errs by `sum_l w_l (mu_l - J) - w'_l (mu'_l - J')`.
        """
        log_weights = log_weights_of(self._latents, self._whole(counts), torch.zeros_like(last))
        mean = weighted_mean(log_weights, self.means.T[last % self.means.shape[1]])
        error = torch.linalg.vector_norm(mean.influence[0] - mean.influence[1])
        return float(mean.value[0] - mean.value[1]), float(error)
