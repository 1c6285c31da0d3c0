"""Latents that read: token by token, many histories at once, each history by every latent.

Likelihoods and mean utilities follow from `start`, `observe` and `mean_after`, and prompts that
begin alike can be read once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.shapes import Float, Int
from posteer.families.protocol import Family
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace


@runtime_checkable
class Reading(Protocol):
    """What each of L latents makes of each of B histories."""

    @property
    def log_likelihood(self) -> Float[Tensor, "B L"]:
        """`log p_l` of what was read since the start."""

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        """Each latent's own next-token law; any law where the history is impossible to it."""

    def select(self, rows: Int[Tensor, "K"]) -> Any:
        """The readings of some histories, repeats allowed."""


MeanAfter = Callable[[Any, Int[Tensor, "B"]], Float[Tensor, "B L"]]
"""The mean utility of what follows readings, with the last tokens that the utility reads."""


class ReadingLatents(ABC):
    """L latents of which nothing is known but how they read."""

    @property
    @abstractmethod
    def family(self) -> Family: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers that the reading of one history takes."""

    @abstractmethod
    def start(self, batch: int) -> Any:
        """The reading of so many empty histories."""

    @abstractmethod
    def observe(self, reading: Any, tokens: Int[Tensor, "B"]) -> Any:
        """The reading after one more token of each history."""

    @abstractmethod
    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        """Works out once what is asked of many readings."""

    @abstractmethod
    def pick(self, rows: Int[Tensor, "K"]) -> ReadingLatents:
        """Some of the latents, repeats allowed."""

    def read(self, prompts: Int[Tensor, "K m"]) -> Any:
        """The reading of whole prompts."""
        reading = self.start(len(prompts))
        for tokens in prompts.unbind(1):
            reading = self.observe(reading, tokens)
        return reading

    def log_likelihood(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K L"]:
        """`log p_l(y)` of each prompt under each latent; `-inf` where it is impossible."""
        return torch.cat([self.read(some).log_likelihood for some in self._parts(prompts)])

    def mean_utility(
        self, utility: Utility, prompts: Int[Tensor, "K m"], horizon: int
    ) -> Float[Tensor, "K L"]:
        """`mu_l(y)`: the mean utility of what each latent emits after each prompt."""
        mean = self.mean_after(utility, horizon)
        last = ContextSpace(self.family.vocab_size, utility.order)
        return torch.cat(
            [mean(self.read(some), last.suffix(some)) for some in self._parts(prompts)]
        )

    def _parts(self, prompts: Int[Tensor, "K m"]) -> tuple[Tensor, ...]:
        return prompts.split(max(1, NUMBERS_AT_ONCE // self.width))

    @abstractmethod
    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        """`length` tokens of each latent, going on from a head."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What the file of a bank holds of them."""


def read_shared(latents: ReadingLatents, prompts: Int[Tensor, "K m"]) -> Any:
    """The reading of prompts in lexicographic order, what they begin alike with read once."""
    differs = prompts[1:] != prompts[:-1]
    fresh = torch.ones(prompts.shape, dtype=torch.bool)  # whether the prefix up to here is new
    fresh[1:] = differs.cummax(1).values if differs.numel() else differs
    reading, group = latents.start(1), torch.zeros(len(prompts), dtype=torch.long)
    for place in range(prompts.shape[1]):
        rows = fresh[:, place].nonzero()[:, 0]
        reading = latents.observe(reading.select(group[rows]), prompts[rows, place])
        group = fresh[:, place].cumsum(0) - 1
    return reading if len(group) == int(group[-1]) + 1 else reading.select(group)
