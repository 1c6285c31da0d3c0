"""What an estimator of hard prompts is asked, and what it answers.

A hard prompt enters through its transition counts, its first context and its last one, all in one
space whose order may exceed the latents' (a utility that reads further back). No model is called.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.kernels import lift, sample_chains
from posteer.families.markov.means import has_exact_mean, utility_of_kernels
from posteer.goals.protocol import Utility
from posteer.methods.scorers.protocol import HardScores
from posteer.tokens.contexts import ContextSpace, count_transitions

ROLLOUTS_PER_LATENT = 8
"""Continuations per latent and context, where a utility has no exact mean."""


class HardPromptPosterior(ABC):
    """The latent posterior of hard prompts, as far as a fixed bank tells it."""

    name: str
    bank: LatentBank
    certifies: bool = True
    """Whether what a search finds with it is the best by it: not if another one searched."""

    orders: bool = True
    """Whether it puts what a search found in its own order, or leaves it as found."""

    follows: bool = False
    """Whether it is worked out where the prompts are; else they are brought to the CPU."""

    def for_search(self) -> HardPromptPosterior:
        """The same, quick enough to be asked thousands of times: values matter, errors do not."""
        return self

    @abstractmethod
    def of_folded(self, utility: Utility, prompts: FoldedPrompts, horizon: int) -> HardScores:
        """J of prompts, as the latents see them."""


@dataclass(frozen=True, eq=False)
class FoldedPrompts:
    """Prompts as the latents see them: counts of the latents' order, last contexts of `wide`."""

    wide: ContextSpace
    counts: Float[Tensor, "K C V"]
    last: Int[Tensor, "K"]

    @classmethod
    def of(
        cls, space: ContextSpace, utility: Utility, prompts: Int[Tensor, "K m"]
    ) -> FoldedPrompts:
        """Of tokens, for latents of a space: a utility may read further back than they do."""
        wide = ContextSpace(space.vocab_size, max(space.order, utility.order))
        return cls(wide, count_transitions(space, prompts), wide.suffix(prompts))

    @property
    def device(self) -> torch.device:
        """Where they are, and where they are scored by all that can be asked there."""
        return self.counts.device

    def to(self, device: torch.device | str) -> FoldedPrompts:
        return FoldedPrompts(self.wide, self.counts.to(device), self.last.to(device))

    def select(self, rows: Int[Tensor, "R"]) -> FoldedPrompts:
        return FoldedPrompts(self.wide, self.counts[rows], self.last[rows])

    def stream(self, row: int, seed: int, purpose: str) -> np.random.Generator:
        """A stream that depends on the prompt's counts, not on the batch it is scored in."""
        counts = self.counts[row].cpu().numpy().tobytes()
        return numpy_stream(seed, purpose, hashlib.sha256(counts).hexdigest())


def scores_of_prompts(
    posterior: HardPromptPosterior, utility: Utility, prompts: Int[Tensor, "K m"], horizon: int
) -> HardScores:
    """Scores of prompts given as tokens."""
    folded = FoldedPrompts.of(posterior.bank.space, utility, prompts)
    return posterior.of_folded(utility, folded, horizon)


def mean_utilities(
    utility: Utility,
    space: ContextSpace,
    kernels: Float[Tensor, "L C V"],
    wide: ContextSpace,
    horizon: int,
    seed: int,
) -> Float[Tensor, "L W"]:
    """mu(kernel; context) from each context of `wide`: exact, or the mean of a few rollouts."""
    lifted = lift(space, kernels, wide.order)
    if has_exact_mean(utility, wide.vocab_size, horizon):
        return utility_of_kernels(utility, wide, lifted, horizon)
    device, lifted = lifted.device, lifted.cpu()
    generator = torch_stream(seed, "posterior-rollouts")
    repeated = lifted.repeat_interleave(ROLLOUTS_PER_LATENT, 0)
    columns = []
    for context in range(wide.n_contexts):
        start = torch.full((len(repeated),), context)
        tokens = sample_chains(wide, repeated, start, horizon, generator)
        values = utility(tokens, start % wide.vocab_size**utility.order)
        columns.append(values.view(-1, ROLLOUTS_PER_LATENT).mean(1))
    return torch.stack(columns, 1).to(device)
