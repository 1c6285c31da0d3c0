"""The exact expected utility of hard prompts, the optimum over all of them, and ranks.

Any model: all continuations are enumerated (`models.continuations`); past
`ENUMERABLE_CONTINUATIONS`, Monte Carlo with a standard error. A counted prior sees a prompt through
statistics that many share, so on an exact model prompts fall into classes and the optimum is exact
far past enumeration. Prompts follow what a conditioned model has read before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank, open_bank
from posteer.core import Float, InputError, Int, Progress, require
from posteer.core.limits import (
    ENUMERABLE_CONTINUATIONS,
    ENUMERABLE_LEAVES,
    ENUMERABLE_PROMPTS,
    MONTE_CARLO_ROLLOUTS,
    MOST_HORIZON,
    MOST_LATENTS,
    MOST_SEED,
    MOST_TOKENS,
    ROUNDING_OF_EXACT,
    ROUNDING_OF_NETWORKS,
    TIE,
)
from posteer.core.randomness import torch_stream
from posteer.core.spec import within
from posteer.core.weights import weighted_mean
from posteer.families.protocol import CountedPrior, Latents
from posteer.goals.objectives import ForwardCrossEntropy, Objective, objective_of
from posteer.goals.utilities import Goal, expected, open_goal
from posteer.models.continuations import (
    LEAVES_AT_ONCE,
    continuation_laws,
    laws_by_levels,
    read_prompts,
    roll_out_from,
    shared_laws,
)
from posteer.models.meter import Metered
from posteer.models.protocol import Can, Model
from posteer.models.registry import open_model
from posteer.tokens.conditions import AllowedPrompts, open_allowed
from posteer.tokens.contexts import ContextSpace, all_sequences
from posteer.tokens.drawing import list_allowed
from posteer.tokens.prompts import parse_prompt


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Expected utilities of a batch of prompts; standard errors are 0 where they are exact."""

    expected_utility: Float[Tensor, "B"]
    standard_error: Float[Tensor, "B"]
    exact: bool


def expected_utility(
    model: Model | Any,
    goal: Goal | Any,
    prompts: Int[Tensor, "B m"] | Any,
    horizon: int | Any,
    *,
    seed: int | Any = 0,
    n_rollouts: int | Any = MONTE_CARLO_ROLLOUTS,
    sharing: bool = False,
    device: Any = None,
) -> Evaluation:
    """J of each prompt: exact while the continuations can be enumerated, else Monte Carlo.

    Model and goal are names or objects, prompts texts or tokens; one alone is a batch of one. A
    model by name is opened on `device`, one that is given stays where it is unless there is one.
    With `sharing`, what prompts begin with in common is read once.

    >>> J = expected_utility("exact:urn", "dyck", [0, 1, 0, 1], 4)
    >>> round(float(J.expected_utility[0]), 4)
    0.4688
    """
    model = open_model(model, device)
    goal, prompts = open_goal(goal, model), rows_of(prompts, model.vocab_size)
    horizon = within(horizon, "horizon", 1, MOST_HORIZON)
    seed = within(seed, "seed", -MOST_SEED, MOST_SEED)
    n_rollouts = within(n_rollouts, "n_rollouts", 2, MOST_LATENTS)
    _require_sense(model, [goal], prompts, horizon)
    contexts = model.last_contexts(goal.order, prompts)
    if model.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS:
        objective = objective_of(goal, model.vocab_size, horizon)
        read = shared_laws if sharing else continuation_laws
        value = objective.of_laws(read(model, prompts, horizon), contexts)
        return Evaluation(value, torch.zeros_like(value), exact=True)
    if isinstance(goal, ForwardCrossEntropy):
        raise InputError(
            f"{goal.name} needs every continuation: {model.vocab_size}**{horizon} are too many to "
            "enumerate"
        )
    results = []
    for row, prompt in enumerate(prompts):
        generator = torch_stream(seed, "evaluation", row)
        continuations = []
        read_once = read_prompts(model, prompt[None])
        for some in torch.zeros(n_rollouts, dtype=torch.long).split(
            model.batch_limit(prompts.shape[1] + horizon)
        ):
            state = read_once.select(some)
            continuations.append(roll_out_from(model, state, horizon, generator))
        values = goal(torch.cat(continuations), contexts[row].expand(n_rollouts))
        results.append((values.mean(), values.std() / n_rollouts**0.5))
    means, errors = zip(*results, strict=True)
    return Evaluation(torch.stack(means), torch.stack(errors), exact=False)


def tokens_of_value(
    model: Metered, length: int, horizon: int, n_rollouts: int = MONTE_CARLO_ROLLOUTS
) -> int:
    """Model tokens that J of one prompt takes: all continuations, or so many that are drawn."""
    if model.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS:
        return model.tokens_of(length, horizon)
    return model.context_tokens + length + n_rollouts * (horizon - 1)


def expected_utilities(
    model: Model,
    goals: Sequence[Goal],
    prompts: Int[Tensor, "B m"],
    horizon: int,
    *,
    seeds: Sequence[int],
) -> list[Evaluation]:
    """J of each prompt under a goal of its own; each distinct prompt is read once."""
    if model.vocab_size**horizon > ENUMERABLE_CONTINUATIONS:
        return [
            expected_utility(model, goal, prompt[None], horizon, seed=seed)
            for goal, prompt, seed in zip(goals, prompts, seeds, strict=True)
        ]
    _require_sense(model, goals, prompts, horizon)
    distinct, where = prompts.unique(dim=0, return_inverse=True)
    laws = continuation_laws(model, distinct, horizon)
    found = []
    for row, goal in enumerate(goals):
        contexts = model.last_contexts(goal.order, prompts[[row]])
        objective = objective_of(goal, model.vocab_size, horizon)
        value = objective.of_laws(laws[[int(where[row])]], contexts)
        found.append(Evaluation(value, torch.zeros_like(value), exact=True))
    return found


def _require_sense(
    model: Model, goals: Sequence[Goal], prompts: Int[Tensor, "B m"], horizon: int
) -> None:
    """Refuse prompts that the model or a goal cannot read, and those that cannot be."""
    check_prompts(model, prompts)
    require(horizon >= 1, f"horizon {horizon}: expected at least 1")
    for goal in goals:
        require(
            len(model.context) + prompts.shape[1] >= goal.order,
            f"prompt of {prompts.shape[1]} tokens: {goal.name} reads the last {goal.order}",
        )
    _require_possible(model, prompts)


def rows_of(prompts: Any, vocab_size: int) -> Int[Tensor, "B m"]:
    """Prompts as a table of tokens: one, or several of one length, as texts or as tokens."""
    if isinstance(prompts, Tensor) and prompts.ndim == 2 and not prompts.is_floating_point():
        require(prompts.dtype != torch.bool, "prompts of truth values: expected tokens")
        return prompts.long()
    plain = prompts.tolist() if hasattr(prompts, "tolist") else prompts
    several = isinstance(plain, list | tuple) and len(plain) > 0 and not _is_token(plain[0])
    rows = [parse_prompt(one, vocab_size) for one in (plain if several else [plain])]
    require(len({len(row) for row in rows}) == 1, "prompts of several lengths: expected one")
    return torch.stack(rows)


def _is_token(value: Any) -> bool:
    return not isinstance(value, str | list | tuple) and not hasattr(value, "tolist")


def check_prompts(model: Model, prompts: Int[Tensor, "B m"]) -> None:
    """Refuse tokens outside the vocabulary and prompts that are not longer than the order."""
    outside = (prompts < 0) | (prompts >= model.vocab_size)
    if bool(outside.any()):
        raise InputError(
            f"prompt has the symbol {int(prompts[outside][0])}: expected symbols 0 to "
            f"{model.vocab_size - 1}"
        )
    require(
        len(model.context) + prompts.shape[1] > model.order,
        f"prompt of {prompts.shape[1]} tokens: expected more than the order {model.order}",
    )


def _require_possible(model: Model, prompts: Int[Tensor, "B m"]) -> None:
    """Exact Bayes has nothing to say after a prompt that no latent can emit."""
    impossible = model.impossible(prompts)
    if bool(impossible.any()):
        tokens = prompts[impossible][0].tolist()
        raise InputError(f"the prompt {tokens} is impossible under {model.name}: no prediction")


def estimate_from_bank(
    bank: LatentBank | Latents | Any,
    goal: Goal | Any,
    prompts: Int[Tensor, "B m"] | Any,
    horizon: int | Any,
) -> Float[Tensor, "B"]:
    """What a bank, or latents of any family, make of hard prompts without the model.

    Latents are weighted by their likelihood: the mean utility is `sum_l w_l mu_l`, the forward
    cross-entropy `E_target[log sum_l w_l p_l(y | prompt)]`.

    >>> from posteer import sample
    >>> bank = sample("exact:urn", rollouts=500, length=200)
    >>> 0.4 < float(estimate_from_bank(bank, "dyck", "010101", 4)[0]) < 0.8
    True
    """
    given = bank if isinstance(bank, Latents) else open_bank(bank)
    latents = given.latents if isinstance(given, LatentBank) else given
    goal = open_goal(goal, latents.family)
    prompts = rows_of(prompts, latents.family.vocab_size)
    horizon = within(horizon, "horizon", 1, MOST_HORIZON)
    longer = max(latents.family.order, goal.order)
    require(
        prompts.shape[1] >= longer,
        f"prompt of {prompts.shape[1]} tokens: expected at least {longer}",
    )
    log_weights = latents.log_likelihood(prompts)
    if not isinstance(goal, ForwardCrossEntropy):
        means = latents.mean_utility(expected(goal), prompts, horizon)
        return weighted_mean(log_weights, means).value
    vocab = latents.family.vocab_size
    continuations = all_sequences(vocab, horizon)
    log_joint = torch.stack(
        [
            latents.log_likelihood(
                torch.cat([prompt.expand(len(continuations), -1), continuations], 1)
            ).logsumexp(-1)
            for prompt in prompts
        ]
    )
    last = ContextSpace(vocab, goal.order).suffix(prompts)
    return goal.of_laws(log_joint - log_weights.logsumexp(-1)[:, None], last)


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
        if len(finite) == 0:
            return 0.0
        spread, largest = finite.max() - finite.min(), finite.abs().max()
        return max(TIE * float(spread), self.rounding * float(largest))

    def rank(self, value: float) -> int:
        """1 + how many prompts are better by more than a tie."""
        better = (self.values > value + self.tie).nonzero().flatten().tolist()
        return 1 + sum(self.sizes[row] for row in better)


def landscape(
    model: Model | Any,
    goal: Goal | Any,
    length: int | Any,
    horizon: int | Any,
    progress: Progress | None = None,
    allowed: AllowedPrompts | Any = None,
    *,
    device: Any = None,
) -> PromptLandscape | None:
    """All prompts of a length, or None where neither prompts nor classes can be enumerated.

    Names or objects, as in `expected_utility`.

    >>> field = landscape("exact:urn", "dyck", length=6, horizon=4)
    >>> field.n_prompts, field.best_prompt.tolist()
    (64, [0, 1, 0, 1, 0, 1])
    """
    model = open_model(model, device)
    goal, allowed = open_goal(goal, model), open_allowed(allowed, model.vocab_size)
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
    laws: list[Tensor] = []
    for rows in prompts.split(part):
        laws.append(continuation_laws(model, rows, horizon))
        _report(progress, laws, len(prompts))
    every = torch.cat(laws)
    found: list[PromptLandscape | None] = []
    for objective in objectives:
        value = objective.of_laws(every, model.last_contexts(objective.order, prompts))
        best = prompts[int(value.argmax())]
        found.append(PromptLandscape(value, [1] * len(prompts), best, _rounding(model)))
    return found


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
    return PromptLandscape(value, classes.sizes, classes.prompt(int(value.argmax())))
