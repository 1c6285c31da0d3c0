"""Reverse cross-entropy: how likely a target kernel finds the continuation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, InputError, Int, Spec, require, table
from posteer.goals.protocol import FiniteStateForm
from posteer.tokens.contexts import ContextSpace, space_of_table, validated_kernel

LOG_FLOOR = math.log(1e-12)
"""Log-probabilities of the target are floored here; the published sym-1.0 rows show this floor."""


@dataclass(frozen=True, eq=False)
class ReverseCrossEntropy:
    """`U(y) = sum_t log target[context_t, y_t]`, the first context being the prompt's last one."""

    name: str
    space: ContextSpace
    target: Float[Tensor, "C V"]

    @property
    def order(self) -> int:
        return self.space.order

    @property
    def log_target(self) -> Float[Tensor, "C V"]:
        return self.target.log().clamp(min=LOG_FLOOR)

    def __call__(
        self, continuations: Int[Tensor, "*B N"], contexts: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]:
        logs = self.log_target.to(continuations.device)
        next_context = self.space.next_context.to(continuations.device)
        total = torch.zeros(contexts.shape, dtype=logs.dtype, device=continuations.device)
        for token in continuations.unbind(-1):
            total = total + logs[contexts, token]
            contexts = next_context[contexts, token]
        return total

    def finite_state(self, vocab_size: int, horizon: int) -> FiniteStateForm:
        return FiniteStateForm(
            start=0,
            step=torch.zeros(1, vocab_size, dtype=torch.long),
            reward=self.log_target[None],
            final=torch.zeros(1, dtype=torch.float64),
        )


def target_kernel(target: object, vocab_size: int) -> tuple[str, Tensor]:
    """A target by name (`tau-0.2`, `sym-0.1`, `dir-4`) or as a table of rows."""
    if isinstance(target, list):
        rows = torch.tensor(table(target, "target"), dtype=torch.float64)
        return str(target).replace(" ", ""), validated_kernel(rows, "target")
    family, dash, parameter = str(target).partition("-")
    if not dash or family not in _FAMILIES:
        raise InputError(
            f"unknown target '{target}': expected tau-0.2, sym-0.1, dir-4 or a list of rows"
        )
    return str(target), _FAMILIES[family](parameter, vocab_size)


def _tau(parameter: str, vocab_size: int) -> Tensor:
    require(
        vocab_size == 2,
        f"tau-{parameter} is a binary target: with {vocab_size} tokens give a row, as in "
        "reverse-xent([0.2,0.3,0.5])",
    )
    tau = _probability(parameter, "tau")
    return torch.tensor([[1 - tau, tau]], dtype=torch.float64)


def _sym(parameter: str, vocab_size: int) -> Tensor:
    """Repeat the last token with probability r, else any other one alike."""
    repeat = _probability(parameter, "sym")
    other = (1 - repeat) / (vocab_size - 1)
    rows = torch.full((vocab_size, vocab_size), other, dtype=torch.float64)
    return rows.fill_diagonal_(repeat)


def _dir(parameter: str, vocab_size: int) -> Tensor:
    """Rows from Dirichlet(1/2): float32 and torch's own stream, as the published tables need."""
    require(
        parameter.isdigit() and len(parameter) <= 18,
        f"dir-{parameter}: expected a seed, as in dir-4",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(parameter))
        law = torch.distributions.Dirichlet(torch.full((vocab_size,), 0.5, dtype=torch.float32))
        rows = law.sample((vocab_size,)).double()
    return rows / rows.sum(-1, keepdim=True)


_FAMILIES = {"tau": _tau, "sym": _sym, "dir": _dir}


def _probability(text: str, family: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    require(0 <= value <= 1, f"'{family}-{text}': expected a probability between 0 and 1")
    return value


def open_target(target: object, vocab_size: int) -> tuple[str, ContextSpace, Tensor]:
    """A target's label, space and rows; its order is read off the rows."""
    label, rows = target_kernel(target, vocab_size)
    space = space_of_table(rows.shape[0], rows.shape[1], f"target {label}")
    require(
        space.vocab_size == vocab_size,
        f"target {label}: rows of {space.vocab_size} entries for a vocabulary of {vocab_size}",
    )
    return label, space, rows


def reverse_cross_entropy(target: object, vocab_size: int = 2) -> ReverseCrossEntropy:
    """The utility for a target named or given as rows."""
    label, space, rows = open_target(target, vocab_size)
    return ReverseCrossEntropy(f"reverse-xent({label})", space, rows)


def from_spec(spec: Spec, vocab_size: int) -> ReverseCrossEntropy:
    """`reverse-xent(sym-0.1)`, or a table of the target."""
    target = spec.take(("target",), target=...)["target"]
    return reverse_cross_entropy(target, vocab_size)
