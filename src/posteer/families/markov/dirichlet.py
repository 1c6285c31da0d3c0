"""Independent Dirichlet rows: the paper's priors, for any vocabulary, order and concentration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, integer, number, require, table
from posteer.families.markov.prior import MarkovPrior
from posteer.tokens.contexts import ContextSpace


def sample_rows(
    concentration: Float[Tensor, "*B V"], stream: np.random.Generator
) -> Float[Tensor, "*B V"]:
    """One draw from the Dirichlet law of each row."""
    # Gamma(a) = Gamma(a + 1) * U**(1/a), in logs: tiny concentrations do not underflow.
    shape = concentration.numpy()
    log_gamma = np.log(stream.standard_gamma(shape + 1))
    log_gamma -= stream.standard_exponential(shape.shape) / shape
    return torch.from_numpy(log_gamma).softmax(-1)


@dataclass(frozen=True, eq=False)
class DirichletRows(MarkovPrior):
    """Independent rows `kernel[c, :] ~ Dirichlet(concentration[c, :])`."""

    concentration: Float[Tensor, "C V"]

    def __post_init__(self) -> None:
        expected = (self.space.n_contexts, self.space.vocab_size)
        require(
            tuple(self.concentration.shape) == expected,
            f"concentration of shape {tuple(self.concentration.shape)}: expected {expected}",
        )
        positive = (self.concentration > 0) & torch.isfinite(self.concentration)
        require(bool(positive.all()), "concentration: every entry must be positive and finite")

    @classmethod
    def symmetric(cls, vocab_size: int, order: int, concentration: float) -> DirichletRows:
        space = ContextSpace(vocab_size, order)
        shape = (space.n_contexts, vocab_size)
        return cls(space, torch.full(shape, concentration, dtype=torch.float64))

    @property
    def spec(self) -> str:
        values = self.concentration.unique().tolist()
        given = values[0] if len(values) == 1 else self.concentration.tolist()
        space = self.space
        return f"markov(vocab={space.vocab_size},order={space.order},concentration={given})"

    @property
    def independent_rows(self) -> bool:
        return True

    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]:
        return sample_rows(self.concentration.expand(n, -1, -1), stream)

    def posterior(self, counts: Float[Tensor, "C V"]) -> DirichletRows:
        return replace(self, concentration=self.concentration + counts)

    def predictive(
        self, counts: Float[Tensor, "B C V"], contexts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        rows = torch.arange(len(counts), device=counts.device)
        weights = counts[rows, contexts] + self.concentration.to(counts.device)[contexts]
        return weights / weights.sum(-1, keepdim=True)

    def log_marginal(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B"]:
        prior = self.concentration.to(counts.device)
        rows = torch.lgamma(prior.sum(-1)) - torch.lgamma((prior + counts).sum(-1))
        entries = torch.lgamma(prior + counts) - torch.lgamma(prior)
        return rows.sum(-1) + entries.sum((-2, -1))


LEAST, MOST = 1e-12, 1e12
"""Concentrations: beyond them evidence is lost to rounding."""


def checked(rows: Float[Tensor, "*B V"], what: str) -> Float[Tensor, "*B V"]:
    """Concentrations that can be computed with, or a refusal that shows one that cannot."""
    wrong = rows[~((rows >= LEAST) & (rows <= MOST))].tolist()
    most = f"expected {LEAST:g} to {MOST:g}"
    require(not wrong, f"{what}: concentration {wrong[0] if wrong else 0:g}: {most}")
    return rows


def from_spec(spec: Spec) -> DirichletRows:
    """`markov(vocab=3,order=2,concentration=0.5)`; a table of concentrations will do too."""
    given = spec.take(vocab=2, order=0, concentration=0.5)
    vocab = integer(given["vocab"], "markov: vocab")
    order = integer(given["order"], "markov: order")
    concentration = given["concentration"]
    if isinstance(concentration, list):
        rows = table(concentration, "markov: concentration")
        tables = checked(torch.tensor(rows, dtype=torch.float64), "markov")
        return DirichletRows(ContextSpace(vocab, order), tables)
    value = number(concentration, "markov: concentration")
    checked(torch.tensor([value], dtype=torch.float64), "markov")
    return DirichletRows.symmetric(vocab, order, value)


def beta_bernoulli(spec: Spec) -> DirichletRows:
    """A coin of unknown bias, Beta(1/2, 1/2)."""
    spec.take()
    return DirichletRows.symmetric(2, 0, 0.5)


def urn(spec: Spec) -> DirichletRows:
    """The paper's reinforced urn: two coins, one after each token."""
    spec.take()
    return DirichletRows.symmetric(2, 1, 0.5)
