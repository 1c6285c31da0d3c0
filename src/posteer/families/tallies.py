"""Rollouts kept whole, for families whose latents are not read off counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core import Int, require
from posteer.families.protocol import NextToken


class TokenTally:
    """All tokens, in the fewest bytes that hold them."""

    def __init__(self, vocab_size: int) -> None:
        self.kind = next(
            kind
            for kind in (torch.int8, torch.int16, torch.int32)
            if vocab_size - 1 <= torch.iinfo(kind).max
        )
        self._kept: list[Tensor] = []

    def add(self, tokens: Int[Tensor, "B"]) -> None:
        self._kept.append(tokens.to(self.kind))

    def counts(self) -> Int[Tensor, "L T"]:
        return torch.stack(self._kept, 1).cpu()


class WholeRollouts(ABC):
    """What families share whose latents are read off whole rollouts."""

    def fit(
        self,
        counts: Int[Tensor, "L T"],
        treatment: str,
        stream: np.random.Generator,
        law_after: NextToken,
    ) -> Any:
        """Latents of rollouts that continue nothing."""
        return self.fit_after((), counts, treatment, stream)

    @abstractmethod
    def fit_after(
        self,
        context: tuple[int, ...],
        counts: Int[Tensor, "L T"],
        treatment: str,
        stream: np.random.Generator,
    ) -> Any:
        """Latents of rollouts that continue a context, where that has left them."""


def sound_tokens(tensors: dict[str, Tensor], n: int, vocab_size: int) -> None:
    """Refuse what a bank holds as rollouts where that is none of its latents'."""
    for name, tokens in tensors.items():
        if name.startswith("counts"):
            shape = tuple(tokens.shape)
            require(
                len(shape) == 2 and shape[0] == n, f"{name} of shape {shape}: one for each latent"
            )
            inside = not tokens.numel() or int(tokens.max()) < vocab_size
            require(inside, f"{name} holds tokens past {vocab_size - 1}")
