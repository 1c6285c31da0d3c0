"""Dyck validity: the continuation is a balanced bracket sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, Int, Spec
from posteer.goals.protocol import FiniteStateForm

OPEN, CLOSE = 0, 1


@dataclass(frozen=True)
class Dyck:
    """1 if token 0 as `(` and token 1 as `)` balance, else 0; any other token breaks validity."""

    name: str = "dyck"
    order: int = 0

    def __call__(
        self, continuations: Int[Tensor, "*B N"], contexts: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]:
        brackets = (continuations <= CLOSE).all(-1)
        height = (1 - 2 * continuations).cumsum(-1)
        return (brackets & (height >= 0).all(-1) & (height[..., -1] == 0)).double()

    def finite_state(self, vocab_size: int, horizon: int) -> FiniteStateForm:
        """The state is the height; heights that cannot close in time share the dead state."""
        top = horizon // 2
        dead = top + 1
        step = torch.full((dead + 1, vocab_size), dead, dtype=torch.long)
        step[:top, OPEN] = torch.arange(1, top + 1)
        step[1 : top + 1, CLOSE] = torch.arange(top)
        final = torch.zeros(dead + 1, dtype=torch.float64)
        final[0] = 1.0
        return FiniteStateForm(0, step, torch.zeros(1, 1, 1, dtype=torch.float64), final)


def from_spec(spec: Spec, vocab_size: int) -> Dyck:
    """`dyck`: it has no settings."""
    spec.take()
    return Dyck()
