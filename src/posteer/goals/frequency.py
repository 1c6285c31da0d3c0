"""Frequency match: the share of one token in the continuation should be a given figure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, integer, number, require
from posteer.goals.protocol import FiniteStateForm


@dataclass(frozen=True)
class FrequencyMatch:
    """`U(y) = -(share of token in y - target)**2`."""

    target: float
    token: int = 1
    order: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.target <= 1, f"frequency: {self.target} is not between 0 and 1")

    @property
    def name(self) -> str:
        which = "" if self.token == 1 else f",token={self.token}"
        return f"frequency({self.target:g}{which})"

    def __call__(
        self, continuations: Int[Tensor, "*B N"], contexts: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]:
        share = (continuations == self.token).to(torch.float64).mean(-1)
        return -((share - self.target) ** 2)

    def finite_state(self, vocab_size: int, horizon: int) -> FiniteStateForm:
        """The state is how often the token has been seen."""
        seen = torch.arange(horizon + 1)
        step = seen[:, None].repeat(1, vocab_size)
        step[:, self.token] = (seen + 1).clamp(max=horizon)
        return FiniteStateForm(
            start=0,
            step=step,
            reward=torch.zeros(1, 1, 1, dtype=torch.float64),
            final=-((seen.double() / horizon - self.target) ** 2),
        )


def from_spec(spec: Spec, vocab_size: int) -> FrequencyMatch:
    """`frequency(0.3)`, `frequency(0.3,token=0)`."""
    given = spec.take(("target",), target=..., token=1)
    token = integer(given["token"], "frequency: token")
    require(0 <= token < vocab_size, f"frequency: token {token} is not below {vocab_size}")
    return FrequencyMatch(number(given["target"], "frequency"), token)
