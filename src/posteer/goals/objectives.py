"""What is made large: a number for each prompt, from the law of its continuations.

Two kinds. The expected utility is linear in that law. The forward cross-entropy, the objective of
prompt tuning by distillation, is the logarithm of it averaged over a target: no utility of single
continuations has it as a mean, so it stands beside utilities, not among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, require
from posteer.goals.protocol import Utility
from posteer.goals.reverse_cross_entropy import open_target
from posteer.tokens.contexts import ContextSpace, all_sequences, continuation_log_probabilities


@runtime_checkable
class Objective(Protocol):
    """`contexts` are the prompts' last `order` tokens as context numbers."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int: ...

    def of_laws(
        self, log_probs: Float[Tensor, "K Y"], contexts: Int[Tensor, "K"]
    ) -> Float[Tensor, "K"]:
        """The value of each prompt; differentiable in `log_probs`."""


class ExpectedUtility:
    """J: the mean of a utility over the continuations of a vocabulary and horizon."""

    def __init__(self, utility: Utility, vocab_size: int, horizon: int) -> None:
        self.utility = utility
        self.name, self.order = utility.name, utility.order
        self._space = ContextSpace(vocab_size, utility.order)
        self._horizon = horizon

    @cached_property
    def values(self) -> Float[Tensor, "C Y"]:
        """The utility of every continuation from every context it can tell apart."""
        continuations = all_sequences(self._space.vocab_size, self._horizon)
        contexts = torch.arange(self._space.n_contexts)[:, None]
        return self.utility(
            continuations.expand(self._space.n_contexts, -1, -1),
            contexts.expand(-1, len(continuations)),
        ).double()

    def of_laws(
        self, log_probs: Float[Tensor, "K Y"], contexts: Int[Tensor, "K"]
    ) -> Float[Tensor, "K"]:
        values = self.values.to(log_probs.device)[contexts.to(log_probs.device)]
        return (log_probs.double().exp() * values).sum(-1)


@dataclass(frozen=True, eq=False)
class ForwardCrossEntropy:
    """`E_{y ~ target}[log pi(y | prompt)]`: how well the model, so prompted, predicts a target.

    The larger the better, up to minus the target's entropy. A Markov target goes on from the
    prompt's last context; it may be a mixture, of which one part is followed to the end.
    """

    name: str
    space: ContextSpace
    parts: Float[Tensor, "A C V"]
    weights: Float[Tensor, "A"]
    _laws: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def order(self) -> int:
        return self.space.order

    @property
    def target(self) -> Float[Tensor, "C V"]:
        """The rows of a target that is no mixture."""
        (rows,) = self.parts
        return rows

    def draw(
        self, contexts: Int[Tensor, "n"], horizon: int, generator: torch.Generator
    ) -> Int[Tensor, "n N"]:
        """Continuations that the target makes, each from a context of its own."""
        uniform = torch.rand(len(contexts), horizon + 1, dtype=torch.float64, generator=generator)
        part = (uniform[:, :1] >= self.weights.cumsum(0)[:-1]).sum(-1)
        tokens = []
        for at in range(1, horizon + 1):
            below = self.parts[part, contexts].cumsum(-1)[:, :-1]
            tokens.append((uniform[:, at, None] >= below).sum(-1))
            contexts = self.space.next_context[contexts, tokens[-1]]
        return torch.stack(tokens, -1)

    def law(self, horizon: int) -> Float[Tensor, "C Y"]:
        """The target's law of continuations from each context; worked out once a horizon."""
        if horizon not in self._laws:
            continuations = all_sequences(self.space.vocab_size, horizon)
            logs = continuation_log_probabilities(self.space, self.parts, continuations)
            self._laws[horizon] = (self.weights[:, None, None] * logs.exp()).sum(0)
        return self._laws[horizon]

    def of_laws(
        self, log_probs: Float[Tensor, "K Y"], contexts: Int[Tensor, "K"]
    ) -> Float[Tensor, "K"]:
        horizon = _horizon(log_probs.shape[1], self.space.vocab_size)
        weights = self.law(horizon).to(log_probs.device)[contexts.to(log_probs.device)]
        wanted = torch.where(weights > 0, log_probs.double(), 0.0)  # 0 log 0 is 0
        return (weights * wanted).sum(-1)


def _horizon(n_continuations: int, vocab_size: int) -> int:
    horizon, n = 0, 1
    while n < n_continuations:
        horizon, n = horizon + 1, n * vocab_size
    return horizon


def forward_cross_entropy(target: object, vocab_size: int = 2) -> ForwardCrossEntropy:
    """The objective for a target named (`tau-0.2`, `sym-0.1`, `dir-4`) or given as rows; or for a
    mixture of targets alike, `coins-0.2-0.7` or a list of tables."""
    label, several = _several(target)
    opened = [open_target(one, vocab_size) for one in several]
    spaces = {space.order: space for _, space, _ in opened}
    require(len(spaces) == 1, f"target {label}: parts of orders {sorted(spaces)}, expected one")
    parts = torch.stack([rows for _, _, rows in opened])
    weights = torch.full((len(parts),), 1 / len(parts), dtype=torch.float64)
    name = f"forward-xent({label or opened[0][0]})"
    return ForwardCrossEntropy(name, opened[0][1], parts, weights)


def _several(target: object) -> tuple[str, list[object]]:
    """The parts of a mixture and what it is called; any other target is its one part."""
    if isinstance(target, str) and target.startswith("coins-"):
        return target, [f"tau-{bias}" for bias in target.removeprefix("coins-").split("-")]
    tables = isinstance(target, list) and all(
        isinstance(one, list) and one and isinstance(one[0], list) for one in target
    )
    if tables and isinstance(target, list) and target:
        return str(target).replace(" ", ""), list(target)
    return "", [target]


def from_spec(spec: Spec, vocab_size: int) -> ForwardCrossEntropy:
    """`forward-xent(tau-0.2)`, `forward-xent(coins-0.2-0.7)`."""
    return forward_cross_entropy(spec.take(("target",), target=...)["target"], vocab_size)


def objective_of(
    goal: Utility | ForwardCrossEntropy, vocab_size: int, horizon: int
) -> ExpectedUtility | ForwardCrossEntropy:
    """A goal as a function of laws."""
    if isinstance(goal, ForwardCrossEntropy):
        return goal
    return ExpectedUtility(goal, vocab_size, horizon)
