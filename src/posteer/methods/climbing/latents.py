"""J of hard prompts by latents of any family: nothing but likelihoods and mean utilities is asked.

    J(y) = sum_l w_l p_l(y) mu_l(y) / sum_l w_l p_l(y)

with weights of a finite prior, of what a context told about a bank's latents, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from posteer.banks.atoms import AtomBank
from posteer.banks.drawn import Bank
from posteer.core import Float, Int
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.weights import pareto_smoothed, weighted_mean
from posteer.families.atoms.prior import Behind
from posteer.families.markov.family import MarkovLatents
from posteer.families.protocol import Latents
from posteer.families.reading import ReadingLatents, read_shared
from posteer.goals.protocol import Utility
from posteer.methods.scorers.protocol import HardScores
from posteer.tokens.contexts import ContextSpace

Weighed = tuple[Int[Tensor, "k"], Float[Tensor, "k L"], Float[Tensor, "k L"]]
"""Some rows of prompts, the log-weight of each latent after them, and its mean utility there."""


@dataclass(frozen=True, eq=False)
class LatentScore:
    """Scores prompts behind a context by latents that start from it, or read it before them."""

    latents: Latents
    log_weights: Float[Tensor, "L"]
    context: tuple[int, ...]
    utility: Utility
    horizon: int
    exact: bool = False

    @classmethod
    def of(
        cls, bank: Bank, context: tuple[int, ...], utility: Utility, horizon: int
    ) -> LatentScore:
        """By the latents of a bank: all there are, those of the posterior, or of the prior."""
        if isinstance(bank, AtomBank):
            atoms = bank.atoms
            return cls(atoms.latents, atoms.log_weights, context, utility, horizon, exact=True)
        drawn, latents = bank.drawn, bank.drawn.latents
        log_weights = torch.zeros(len(latents), dtype=torch.float64)
        if context and not drawn.origin.context:
            log_weights = latents.log_likelihood(torch.tensor([context]))[0]
        if context and isinstance(latents, ReadingLatents) and not isinstance(latents, Behind):
            latents = Behind(latents, context)
        return cls(latents, log_weights, context, utility, horizon)

    def __call__(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """The value of each prompt; `-inf` if no latent can emit it."""
        values = torch.empty(len(prompts), dtype=torch.float64)
        for rows, log_weights, means in self._weighed(prompts):
            values[rows] = weighted_mean(log_weights, means).value
        return values

    def scores(self, prompts: Int[Tensor, "K m"]) -> HardScores:
        """The same with standard errors, ESS and k-hat; 0 and nothing where J is exact."""
        if self.exact:
            value = self(prompts)
            return HardScores.of(value, torch.zeros_like(value))
        figures = torch.empty(4, len(prompts), dtype=torch.float64)
        for rows, log_weights, means in self._weighed(prompts):
            found = weighted_mean(log_weights, means)
            shapes = pareto_smoothed(log_weights)[1]
            figures[:, rows] = torch.stack(
                [found.value, found.standard_error, found.ess_fraction, shapes]
            )
        return HardScores.of(*figures)

    def _weighed(self, prompts: Int[Tensor, "K m"]) -> Iterator[Weighed]:
        if isinstance(self.latents, ReadingLatents):
            return self._read(self.latents, prompts)
        return self._asked(prompts)

    def _read(self, latents: ReadingLatents, prompts: Int[Tensor, "K m"]) -> Iterator[Weighed]:
        """Prompts in order, so that those which begin alike are read together."""
        order = _lexicographic(prompts, latents.family.vocab_size)
        known = self.context[len(self.context) - self.utility.order :] if self.context else ()
        last = ContextSpace(latents.family.vocab_size, self.utility.order)
        for rows in order.split(max(1, NUMBERS_AT_ONCE // latents.width)):
            reading = read_shared(latents, prompts[rows])
            means = self._mean_after(reading, last.suffix(_behind(known, prompts[rows])))
            yield rows, self.log_weights + reading.log_likelihood, means

    def _asked(self, prompts: Int[Tensor, "K m"]) -> Iterator[Weighed]:
        """Latents that only answer whole prompts read the context with each."""
        for rows in torch.arange(len(prompts)).split(max(1, NUMBERS_AT_ONCE // len(self.latents))):
            whole = _behind(self._head, prompts[rows])
            log_weights = self.log_weights + self.latents.log_likelihood(whole) - self._known
            yield rows, log_weights, self._means(whole)

    @cached_property
    def _mean_after(self) -> Callable[..., Tensor]:
        assert isinstance(self.latents, ReadingLatents)
        return self.latents.mean_after(self.utility, self.horizon)

    @cached_property
    def _means(self) -> Callable[[Tensor], Tensor]:
        latents = self.latents
        if isinstance(latents, MarkovLatents):
            return latents.means(self.utility, self.horizon)
        return lambda prompts: latents.mean_utility(self.utility, prompts, self.horizon)

    @cached_property
    def _head(self) -> tuple[int, ...]:
        """As much of the context as latents need to have read: kernels look back no further."""
        if not isinstance(self.latents, MarkovLatents):
            return self.context
        looked_at = max(self.latents.space.order, self.utility.order)
        return self.context[max(0, len(self.context) - looked_at) :]

    @cached_property
    def _known(self) -> Float[Tensor, "L"] | float:
        """What was read before the prompt is no news; what could not read it has no weight."""
        if not self._head:
            return 0.0
        found = self.latents.log_likelihood(torch.tensor([self._head]))[0]
        return torch.where(found > -torch.inf, found, 0.0)


def _behind(head: tuple[int, ...], prompts: Int[Tensor, "K m"]) -> Int[Tensor, "K n"]:
    known = torch.tensor(head, dtype=torch.long).expand(len(prompts), -1)
    return torch.cat([known, prompts], 1)


def _lexicographic(prompts: Int[Tensor, "K m"], vocab_size: int) -> Int[Tensor, "K"]:
    """The rows in lexicographic order, as many tokens at a time as a number holds."""
    order = torch.arange(len(prompts))
    digits = max(1, int(62 / max(1, (vocab_size - 1).bit_length())))
    for part in reversed(prompts.split(digits, 1)):
        places = vocab_size ** torch.arange(part.shape[1] - 1, -1, -1)
        codes = (part * places).sum(-1)
        order = order[codes[order].argsort(stable=True)]
    return order
