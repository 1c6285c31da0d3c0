"""A prior of finitely many latents: filtered, scored and searched exactly, never sampled.

    J(y) = sum_j w_j p_j(y) mu_j(y) / sum_j w_j p_j(y)

over all atoms j: there is no standard error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.protocol import Family, Latents
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import validated_kernel

MOST_ATOMS = 100_000
"""Every history is weighed under each."""


@dataclass(frozen=True, eq=False)
class AtomBelief:
    """The reading of a batch of histories by all atoms."""

    prior: AtomPrior
    reading: Any

    @property
    def log_joint(self) -> Float[Tensor, "B J"]:
        """`log w_j p_j` of each history."""
        return self.prior.log_weights + self.reading.log_likelihood

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        # An impossible history has no posterior. It is met with probability 0 inside a tree of
        # continuations, where any law will do; prompts that are impossible are refused before.
        joint = self.log_joint
        impossible = joint.isneginf().all(-1, keepdim=True)
        weights = torch.where(impossible, self.prior.log_weights, joint).log_softmax(-1)
        return (weights[..., None] + self.reading.log_probs).logsumexp(1)

    def select(self, rows: Int[Tensor, "K"]) -> AtomBelief:
        return AtomBelief(self.prior, self.reading.select(rows))


@dataclass(frozen=True, eq=False)
class AtomPrior:
    """Atoms with their weights, after a context if there is one: `log_weights` are then those of
    the posterior, and a history begins where the context has left each atom. `content` tells apart
    what the same text may stand for: a file's."""

    atoms: ReadingLatents
    log_weights: Float[Tensor, "J"]
    text: str
    names: tuple[str, ...] = ()
    context: tuple[int, ...] = ()
    content: str = ""

    @classmethod
    def of(
        cls,
        atoms: ReadingLatents,
        weights: Float[Tensor, "J"] | None,
        text: str,
        names: tuple[str, ...] = (),
        content: str = "",
    ) -> AtomPrior:
        """Validated construction; equal weights unless given."""
        n = len(atoms)
        require(1 <= n <= MOST_ATOMS, f"{n} atoms: expected 1 to {MOST_ATOMS}")
        given = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights
        require(len(given) == n, f"weights: {len(given)} given for {n} atoms")
        require(len(names) in (0, n), f"names: {len(names)} given for {n} atoms")
        log_weights = validated_kernel(given.double(), "weights").log()
        return cls(atoms, log_weights, text, names, content=content)

    @property
    def family(self) -> Family:
        return self.atoms.family

    @property
    def spec(self) -> str:
        """The text it was made of; a posterior's own is that of its prior."""
        return self.text

    @property
    def latents(self) -> ReadingLatents:
        """The atoms where the context has left them."""
        return Behind(self.atoms, self.context) if self.context else self.atoms

    def as_atoms(self) -> AtomPrior:
        return self

    def width(self, n_tokens: int) -> int:
        """Numbers that the belief of one history takes."""
        return self.atoms.width

    def sample(self, n: int, stream: np.random.Generator) -> Latents:
        """Draws with repeats, for whoever wants samples of what is known whole."""
        weights = self.log_weights.softmax(0).numpy()
        return self.latents.pick(torch.from_numpy(stream.choice(len(weights), size=n, p=weights)))

    def start(self, batch: int) -> AtomBelief:
        return AtomBelief(self, self.latents.start(batch))

    def observe(self, belief: AtomBelief, tokens: Int[Tensor, "B"]) -> AtomBelief:
        return AtomBelief(self, self.latents.observe(belief.reading, tokens))

    def read(self, prompts: Int[Tensor, "K m"]) -> AtomBelief:
        """The belief after whole prompts."""
        belief = self.start(len(prompts))
        for tokens in prompts.unbind(1):
            belief = self.observe(belief, tokens)
        return belief

    def evidence(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        return self.read(prompts).log_joint.logsumexp(-1)

    def after(self, tokens: tuple[int, ...]) -> AtomPrior:
        joint = self.read(torch.tensor([tokens], dtype=torch.long)).log_joint[0]
        evidence = joint.logsumexp(0)
        require(bool(evidence.isfinite()), "these tokens are impossible under every atom")
        return replace(self, log_weights=joint - evidence, context=(*self.context, *tokens))


@dataclass(frozen=True, eq=False)
class BehindReading:
    """A reading of what came after a context: its likelihood is counted from there."""

    whole: Any
    known: Float[Tensor, "L"]

    @property
    def log_likelihood(self) -> Float[Tensor, "B L"]:
        # What could not even read the context has no weight there, and needs none here.
        possible = self.known > -torch.inf
        return self.whole.log_likelihood - torch.where(possible, self.known, 0.0)

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        found: Tensor = self.whole.log_probs
        return found

    def select(self, rows: Int[Tensor, "K"]) -> BehindReading:
        return BehindReading(self.whole.select(rows), self.known)


@dataclass(frozen=True, eq=False)
class Behind(ReadingLatents):
    """Latents that have read a context before any prompt."""

    latents: ReadingLatents
    context: tuple[int, ...]

    @property
    def family(self) -> Family:
        return self.latents.family

    def __len__(self) -> int:
        return len(self.latents)

    @property
    def width(self) -> int:
        return self.latents.width

    def start(self, batch: int) -> BehindReading:
        one = self.latents.read(torch.tensor([self.context], dtype=torch.long))
        rows = torch.zeros(batch, dtype=torch.long)
        return BehindReading(one.select(rows), one.log_likelihood[0])

    def observe(self, reading: BehindReading, tokens: Int[Tensor, "B"]) -> BehindReading:
        return BehindReading(self.latents.observe(reading.whole, tokens), reading.known)

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        mean = self.latents.mean_after(utility, horizon)
        return lambda reading, contexts: mean(reading.whole, contexts)

    def pick(self, rows: Int[Tensor, "K"]) -> Behind:
        return Behind(self.latents.pick(rows), self.context)

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        return self.latents.roll_out(length, generator, (*self.context, *head))

    def tensors(self) -> dict[str, Tensor]:
        return self.latents.tensors()
