"""What a utility is, and its form as an automaton, by which its exact mean is had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from posteer.core.shapes import Float, Int


@dataclass(frozen=True)
class FiniteStateForm:
    """A utility as an automaton that reads a continuation and collects rewards.

    `step[s, v]` is the state after token `v`; `reward[s, c, v]` is earned by emitting `v` from
    context `c` in state `s` (axes of size 1 broadcast); `final[s]` is earned at the end.
    """

    start: int
    step: Int[Tensor, "S V"]
    reward: Float[Tensor, "#S #C #V"]
    final: Float[Tensor, "S"]


@runtime_checkable
class Utility(Protocol):
    """What to elicit. `context` is the prompt's last `order` tokens as a context number."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int:
        """How many of the prompt's last tokens the utility reads."""

    def __call__(
        self, continuations: Int[Tensor, "*B N"], contexts: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]: ...

    def finite_state(self, vocab_size: int, horizon: int) -> FiniteStateForm | None:
        """The automaton for continuations of `horizon` tokens, if there is a small one."""
