"""Hierarchical priors over kernels, each with its exact Bayes solution beside its sampler.

A sequence is drawn by sampling a kernel from the prior, `order` first tokens uniformly (the random
initial context of the paper's training data), and the rest from the kernel. The first tokens carry
no information about the kernel, so everything Bayesian depends on the transition counts alone.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.shapes import Float, Int
from posteer.core.spec import Spec, integer, number, parse_spec, table
from posteer.families.markov.kernels import log_likelihood, sample_chains
from posteer.tokens.contexts import ContextSpace, space_of_table, validated_kernel


@runtime_checkable
class Process(Protocol):
    """A prior on `[C, V]` kernels that knows its posterior, predictive and evidence."""

    @property
    def space(self) -> ContextSpace: ...

    @property
    def spec(self) -> str:
        """The process as text, from which `open_process` makes it again."""

    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]: ...

    def posterior(self, counts: Float[Tensor, "C V"]) -> Process:
        """The prior updated on transition counts."""

    def predictive(
        self, counts: Float[Tensor, "B C V"], contexts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        """The exact next-token law after counts, in the given contexts."""

    def log_marginal(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B"]:
        """Log-probability of one ordered sequence with these counts, given its first context."""


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
class DirichletRows:
    """Independent rows `kernel[c, :] ~ Dirichlet(concentration[c, :])`."""

    space: ContextSpace
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

    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]:
        return sample_rows(self.concentration.expand(n, -1, -1), stream)

    def posterior(self, counts: Float[Tensor, "C V"]) -> DirichletRows:
        return DirichletRows(self.space, self.concentration + counts)

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


@dataclass(frozen=True, eq=False)
class FiniteMixture:
    """One of finitely many given kernels; point masses and two-point priors are instances."""

    space: ContextSpace
    kernels: Float[Tensor, "J C V"]
    log_weights: Float[Tensor, "J"]

    @classmethod
    def of(
        cls,
        space: ContextSpace,
        kernels: Float[Tensor, "J C V"],
        weights: Float[Tensor, "J"] | None = None,
    ) -> FiniteMixture:
        """Validated construction; equal weights unless given."""
        n = len(kernels)
        given = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights
        require(len(given) == n, f"weights: {len(given)} given for {n} kernels")
        expected = (space.n_contexts, space.vocab_size)
        require(
            tuple(kernels.shape[1:]) == expected,
            f"kernels of shape {tuple(kernels.shape[1:])}: expected {expected}",
        )
        checked = validated_kernel(given, "weights")
        return cls(space, validated_kernel(kernels, "kernels of the mixture"), checked.log())

    @property
    def spec(self) -> str:
        kernels = ",".join(str(kernel.tolist()) for kernel in self.kernels)
        return f"mixture({kernels},weights={self.log_weights.exp().tolist()})"

    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]:
        weights = self.log_weights.softmax(0).numpy()
        chosen = stream.choice(len(weights), size=n, p=weights)
        return self.kernels[torch.from_numpy(chosen)]

    def _log_joint(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B J"]:
        kernels = self.kernels.to(counts.device)
        return log_likelihood(counts, kernels) + self.log_weights.to(counts.device)

    def posterior(self, counts: Float[Tensor, "C V"]) -> FiniteMixture:
        log_joint = self._log_joint(counts[None])[0]
        evidence = log_joint.logsumexp(0)
        require(math.isfinite(float(evidence)), "these tokens are impossible under the mixture")
        return FiniteMixture(self.space, self.kernels, log_joint - evidence)

    def predictive(
        self, counts: Float[Tensor, "B C V"], contexts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        log_joint = self._log_joint(counts)
        # An impossible history has no posterior. It is met with probability 0 inside a tree of
        # continuations, where any law will do; prompts that are impossible are refused before.
        impossible = log_joint.isneginf().all(-1, keepdim=True)
        weights = torch.where(impossible, self.log_weights.to(counts.device), log_joint).softmax(-1)
        return torch.einsum("bj,jbv->bv", weights, self.kernels.to(counts.device)[:, contexts])

    def log_marginal(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B"]:
        return self._log_joint(counts).logsumexp(-1)


def fingerprint(process: Process) -> str:
    """SHA-256 of what a process is."""
    return hashlib.sha256(process.spec.encode()).hexdigest()


def sample_sequences(
    process: Process, n: int, length: int, stream: np.random.Generator, generator: torch.Generator
) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B C V"]]:
    """Hierarchical draws: `n` sequences of `length` tokens and the kernels that made them."""
    space = process.space
    kernels = process.sample_kernels(n, stream).to(generator.device)
    first = torch.randint(
        space.vocab_size, (n, space.order), generator=generator, device=generator.device
    )
    tail_length = max(length - space.order, 0)
    tail = sample_chains(space, kernels, space.encode(first), tail_length, generator)
    return torch.cat([first, tail], -1)[:, :length], kernels


def _markov(spec: Spec) -> Process:
    given = spec.take(vocab=2, order=0, concentration=0.5)
    vocab = integer(given["vocab"], "markov: vocab")
    order = integer(given["order"], "markov: order")
    concentration = given["concentration"]
    if isinstance(concentration, list):
        rows = table(concentration, "markov: concentration")
        return DirichletRows(ContextSpace(vocab, order), torch.tensor(rows, dtype=torch.float64))
    return DirichletRows.symmetric(vocab, order, number(concentration, "markov: concentration"))


def _coins(spec: Spec) -> Process:
    """`coins(0.2,0.7)`: an order-0 binary mixture of biases; `weights=[..]` if not equal."""
    biases = [number(bias, "coins: bias") for bias in spec.arguments]
    given = Spec(spec.name, (), spec.keywords).take(weights=None)
    require(len(biases) > 0, "coins: expected at least one bias, as in coins(0.2,0.7)")
    kernels = torch.tensor([[[1 - bias, bias]] for bias in biases], dtype=torch.float64)
    return FiniteMixture.of(ContextSpace(2, 0), kernels, _weights(given["weights"]))


def _mixture(spec: Spec) -> Process:
    """`mixture([[..],[..]], [[..],[..]])`: any kernels of one shape, the order read off it."""
    tables = [table(kernel, "mixture: kernel") for kernel in spec.arguments]
    given = Spec(spec.name, (), spec.keywords).take(weights=None)
    require(len(tables) > 0, "mixture: expected at least one kernel, as in mixture([0.2,0.8])")
    shapes = {(len(rows), len(rows[0])) for rows in tables}
    require(len(shapes) == 1, f"mixture: kernels of different shapes {sorted(shapes)}")
    space = space_of_table(*shapes.pop(), "mixture")
    kernels = torch.tensor(tables, dtype=torch.float64)
    return FiniteMixture.of(space, kernels, _weights(given["weights"]))


def _weights(given: object) -> Tensor | None:
    if given is None:
        return None
    return torch.tensor(table(given, "weights")[0], dtype=torch.float64)


PROCESSES = {
    "beta-bernoulli": lambda spec: _markov(_preset(spec, order=0)),
    "urn": lambda spec: _markov(_preset(spec, order=1)),
    "markov": _markov,
    "coins": _coins,
    "mixture": _mixture,
}


def _preset(spec: Spec, order: int) -> Spec:
    spec.take()
    return Spec(spec.name, (), {"vocab": 2, "order": order, "concentration": 0.5})


def open_process(text: str) -> Process:
    """A process by name: `urn`, `beta-bernoulli`, `markov(vocab=3,order=2)`, `coins(0.2,0.7)`."""
    spec = parse_spec(text)
    if spec.name not in PROCESSES:
        raise InputError(f"unknown process '{spec.name}': expected one of {', '.join(PROCESSES)}")
    return PROCESSES[spec.name](spec)
