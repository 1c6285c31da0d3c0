"""One of finitely many kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, number, require, table
from posteer.families.atoms.named import from_file, is_file
from posteer.families.atoms.prior import AtomPrior
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.prior import MarkovPrior
from posteer.tokens.contexts import ContextSpace, space_of_table, validated_kernel

MOST_KERNELS = 10_000
"""Of one mixture: every history is weighed under each."""


@dataclass(frozen=True, eq=False)
class FiniteMixture(MarkovPrior):
    """One of finitely many given kernels; point masses and two-point priors are instances."""

    kernels: Float[Tensor, "J C V"]
    log_weights: Float[Tensor, "J"]
    text: str = field(default="", kw_only=True)

    @classmethod
    def of(
        cls,
        space: ContextSpace,
        kernels: Float[Tensor, "J C V"],
        weights: Float[Tensor, "J"] | None = None,
        text: str = "",
    ) -> FiniteMixture:
        """Validated construction; equal weights unless given."""
        n = len(kernels)
        require(n <= MOST_KERNELS, f"a mixture of {n} kernels: expected at most {MOST_KERNELS}")
        given = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights
        require(len(given) == n, f"weights: {len(given)} given for {n} kernels")
        expected = (space.n_contexts, space.vocab_size)
        require(
            tuple(kernels.shape[1:]) == expected,
            f"kernels of shape {tuple(kernels.shape[1:])}: expected {expected}",
        )
        checked = validated_kernel(given, "weights")
        sound = validated_kernel(kernels, "kernels of the mixture")
        return cls(space, sound, checked.log(), text=text)

    def width(self, n_tokens: int) -> int:
        """Numbers that weighing one history takes, however long it is."""
        return max(len(self.kernels), self.space.n_contexts) * self.space.vocab_size

    @property
    def spec(self) -> str:
        """The text it was made of, if that is not the kernels themselves; weights of a posterior
        are its own."""
        if self.text and not self.context:
            return self.text
        kernels = ",".join(str(kernel.tolist()) for kernel in self.kernels)
        return f"mixture({kernels},weights={self.log_weights.exp().tolist()})"

    def as_atoms(self) -> AtomPrior:
        """Its kernels as atoms, where the context has left them."""
        return AtomPrior(
            from_kernels(list(self.kernels)), self.log_weights, self.spec, context=self.context
        )

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
        return replace(self, log_weights=log_joint - evidence)

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


def coins(spec: Spec) -> FiniteMixture:
    """`coins(0.2,0.7)`: an order-0 binary mixture of biases; `weights=[..]` if not equal."""
    biases = [number(bias, "coins: bias") for bias in spec.arguments]
    given = Spec(spec.name, (), spec.keywords).take(weights=None)
    require(len(biases) > 0, "coins: expected at least one bias, as in coins(0.2,0.7)")
    kernels = torch.tensor([[[1 - bias, bias]] for bias in biases], dtype=torch.float64)
    return FiniteMixture.of(ContextSpace(2, 0), kernels, given_weights(given["weights"]))


def from_spec(spec: Spec) -> FiniteMixture | AtomPrior:
    """`mixture([[..],[..]], [[..],[..]])`: kernels over one vocabulary, their orders read off them;
    `mixture(kernels.safetensors)`: from a file. Of one order they are counted, else read."""
    given = Spec(spec.name, (), spec.keywords).take(weights=None)
    if is_file(spec):
        return from_file(spec, given["weights"])
    tables = [table(kernel, "mixture: kernel") for kernel in spec.arguments]
    require(len(tables) > 0, "mixture: expected at least one kernel, as in mixture([0.2,0.8])")
    spaces = [space_of_table(len(rows), len(rows[0]), "mixture") for rows in tables]
    vocabs = sorted({space.vocab_size for space in spaces})
    require(len(vocabs) == 1, f"mixture: kernels over {vocabs} tokens: expected one vocabulary")
    weights = given_weights(given["weights"])
    kernels = [torch.tensor(rows, dtype=torch.float64) for rows in tables]
    if len(set(spaces)) == 1:
        return FiniteMixture.of(spaces[0], torch.stack(kernels), weights)
    require(len(tables) <= MOST_KERNELS, f"{len(tables)} kernels: expected at most {MOST_KERNELS}")
    checked = [validated_kernel(one, "kernels of the mixture") for one in kernels]
    said = "" if weights is None else f",weights={weights.tolist()}"
    text = f"mixture({','.join(str(one.tolist()) for one in kernels)}{said})"
    return AtomPrior.of(from_kernels(checked), weights, text)


def given_weights(given: object) -> Float[Tensor, "J"] | None:
    """Weights as a specification gives them; None where it gives none."""
    if given is None:
        return None
    return torch.tensor(table(given, "weights")[0], dtype=torch.float64)
