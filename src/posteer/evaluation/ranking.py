"""The optimum over all prompts of a length, and where one stands among them."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, Progress, require
from posteer.core.device import undisturbed
from posteer.core.limits import (
    ENUMERABLE_CONTINUATIONS,
    ENUMERABLE_LEAVES,
    ENUMERABLE_PROMPTS,
    MOST_HORIZON,
    MOST_TOKENS,
    ROUNDING_OF_EXACT,
    ROUNDING_OF_NETWORKS,
    TIE,
)
from posteer.core.spec import within
from posteer.evaluation.values import require_best
from posteer.families.protocol import CountedPrior
from posteer.goals.objectives import Objective, objective_of
from posteer.goals.utilities import Goal, open_goal
from posteer.models.continuations import (
    LEAVES_AT_ONCE,
    NODES_IN_ONE_PASS,
    ProductOfPrompts,
    continuation_laws,
    laws_by_levels,
    product_laws,
)
from posteer.models.meter import Metered
from posteer.models.protocol import Can, Model
from posteer.models.registry import open_metered
from posteer.models.trees import tree_size
from posteer.tokens.conditions import AllowedPrompts, open_allowed
from posteer.tokens.contexts import all_sequences
from posteer.tokens.drawing import list_allowed


@dataclass(frozen=True, eq=False)
class PromptLandscape:
    """Expected utilities over *all* prompts of a length, by class of equivalent prompts.

    `rounding` is what arithmetic may do to a value, of its size.
    """

    values: Float[Tensor, "K"]
    sizes: list[int]
    best_prompt: Int[Tensor, "m"]
    rounding: float = ROUNDING_OF_EXACT

    @property
    def optimum(self) -> float:
        return float(self.values.max())

    @property
    def n_prompts(self) -> int:
        return sum(self.sizes)

    @property
    def tie(self) -> float:
        """What is no difference: little beside the spread of all prompts, or mere rounding."""
        finite = self.values[self.values.isfinite()]
        spread, largest = finite.max() - finite.min(), finite.abs().max()
        return max(TIE * float(spread), self.rounding * float(largest))

    def rank(self, value: float) -> int:
        """1 + how many prompts are better by more than a tie."""
        better = (self.values > value + self.tie).nonzero().flatten().tolist()
        return 1 + sum(self.sizes[row] for row in better)


@undisturbed()
def landscape(
    model: Model | Any,
    goal: Goal | Any,
    length: int | Any,
    horizon: int | Any,
    progress: Progress | None = None,
    allowed: AllowedPrompts | Any = None,
    *,
    device: Any = "auto",
) -> PromptLandscape | None:
    """All prompts of a length, or None where neither prompts nor classes can be enumerated.

    Names or objects, as in `expected_utility`.

    >>> field = landscape("exact:urn", "dyck", length=6, horizon=4)
    >>> field.n_prompts, field.best_prompt.tolist()
    (64, [0, 1, 0, 1, 0, 1])
    """
    model = open_metered(model, device)
    goal, allowed = open_goal(goal, model), open_allowed(allowed, model.vocabulary)
    length = within(length, "length", 1, MOST_TOKENS)
    horizon = within(horizon, "horizon", 1, MOST_HORIZON)
    known = len(model.context) + length
    require(
        known > model.order and known >= goal.order,
        f"length {length}: expected more than the order {model.order}, and the {goal.order} "
        f"tokens that {goal.name} reads",
    )
    return landscapes(model, [goal], length, horizon, progress, allowed)[0]


def landscapes(
    model: Model,
    goals: Sequence[Goal],
    length: int,
    horizon: int,
    progress: Progress | None = None,
    allowed: AllowedPrompts | None = None,
) -> list[PromptLandscape | None]:
    """The landscape of each goal; a network reads all prompts once for all of them.

    With `allowed`, of allowed prompts alone.
    """
    vocab = model.vocab_size
    prior: object = model.prior
    if vocab**horizon > ENUMERABLE_CONTINUATIONS:
        return [None] * len(goals)
    objectives = [objective_of(goal, vocab, horizon) for goal in goals]
    part = max(1, min(LEAVES_AT_ONCE, model.batch_limit(length + horizon)) // vocab**horizon)
    if (
        Can.EXACT in model.can
        and isinstance(prior, CountedPrior)
        and all(prior.classes_can_tell(length, goal.order, allowed) for goal in objectives)
    ):
        return [
            _landscape_of_classes(model, prior, goal, length, horizon, allowed, part, progress)
            for goal in objectives
        ]
    n_bits = length * math.log2(vocab)
    if n_bits > math.log2(ENUMERABLE_PROMPTS) or vocab ** (length + horizon) > ENUMERABLE_LEAVES:
        return [None] * len(goals)
    prompts = all_sequences(vocab, length) if allowed is None else list_allowed(allowed, length)
    prompts = prompts[~model.impossible(prompts)]
    _require_some(model, prompts, length)
    every = _laws_of_all(model, prompts, horizon, part, allowed, progress)
    found: list[PromptLandscape | None] = []
    for objective in objectives:
        value = objective.of_laws(every, model.last_contexts(objective.order, prompts))
        require_best(objective, value)
        best = prompts[int(value.argmax())]
        found.append(PromptLandscape(value, [1] * len(prompts), best, _rounding(model)))
    return found


def _laws_of_all(
    model: Model,
    prompts: Int[Tensor, "K m"],
    horizon: int,
    part: int,
    allowed: AllowedPrompts | None,
    progress: Progress | None,
) -> Float[Tensor, "K Y"]:
    length = prompts.shape[1]
    if _as_product(model, horizon, allowed) and len(prompts) == model.vocab_size**length:
        whole = ProductOfPrompts.of(model.vocab_size, length, horizon)
        return product_laws(model, whole, horizon)
    laws: list[Tensor] = []
    for rows in prompts.split(part):
        laws.append(continuation_laws(model, rows, horizon))
        _report(progress, laws, len(prompts))
    return torch.cat(laws)


def _as_product(model: Model, horizon: int, allowed: AllowedPrompts | None) -> bool:
    """Whether all prompts are read with beginnings and ends in common."""
    reads = allowed is None and Can.READ_PRODUCTS in model.can
    return reads and tree_size(model.vocab_size, horizon) <= NODES_IN_ONE_PASS


def _require_some(model: Model, possible: Sized, length: int) -> None:
    """Refuse where all that is allowed is impossible."""
    require(
        len(possible) > 0, f"no allowed prompt of {length} tokens is possible under {model.name}"
    )


def _rounding(model: Model) -> float:
    """A network computes in single precision, whatever its laws are handed over in."""
    return ROUNDING_OF_EXACT if Can.EXACT in model.can else ROUNDING_OF_NETWORKS


def tokens_of_landscape(
    model: Metered, length: int, horizon: int, allowed: AllowedPrompts | None = None
) -> int | None:
    """Model tokens that reading all (allowed) prompts takes; None where they are too many."""
    vocab = model.vocab_size
    if length * math.log2(vocab) > math.log2(ENUMERABLE_PROMPTS):
        return None
    if vocab**horizon > ENUMERABLE_CONTINUATIONS or vocab ** (length + horizon) > ENUMERABLE_LEAVES:
        return None
    if _as_product(model, horizon, allowed):
        whole = ProductOfPrompts.of(vocab, length, horizon)
        return model.tokens_of_product(whole.firsts, whole.lasts, horizon)
    n_prompts = vocab**length if allowed is None else len(list_allowed(allowed, length))
    return int(n_prompts * model.tokens_of(length, horizon))


def _report(progress: Progress | None, values: list[Tensor], total: int) -> None:
    if progress is not None:
        progress("ranking all prompts", sum(map(len, values)), total)


def _landscape_of_classes(
    model: Model,
    prior: CountedPrior,
    objective: Objective,
    length: int,
    horizon: int,
    allowed: AllowedPrompts | None,
    part: int,
    progress: Progress | None,
) -> PromptLandscape | None:
    """On an exact model one member speaks for its class, and need not even be read."""
    classes = prior.classes_of_prompts(length, objective.order, allowed)
    if classes is None or len(classes) * model.vocab_size**horizon > ENUMERABLE_LEAVES:
        return None
    _require_some(model, classes, length)
    values: list[Tensor] = []
    for rows in torch.arange(len(classes)).split(part):
        law = laws_by_levels(model, classes.beliefs(rows), len(rows), horizon)
        values.append(objective.of_laws(law, classes.contexts(rows, objective.order)))
        _report(progress, values, len(classes))
    value = torch.cat(values)
    require_best(objective, value)
    return PromptLandscape(value, classes.sizes, classes.prompt(int(value.argmax())))
