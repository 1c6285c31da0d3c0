"""The exact expected utility of hard prompts, the optimum over all of them, and ranks.

Any model: all continuations are enumerated (`models.continuations`); past
`ENUMERABLE_CONTINUATIONS`, Monte Carlo with a standard error. An exact model depends on a prompt
only through its transition counts and last context, so prompts fall into classes and the optimum is
exact far past enumeration. Prompts follow what a conditioned model has read before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.core.errors import InputError, require
from posteer.core.progress import Progress
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Bool, Float, Int
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.goals.objectives import ForwardCrossEntropy, Objective, objective_of
from posteer.goals.protocol import Utility
from posteer.methods.scorers.protocol import score_classes
from posteer.models.conditioned import after_context, context_of, counts_after_context
from posteer.models.continuations import (
    LEAVES_AT_ONCE,
    continuation_laws,
    laws_by_levels,
    read_prompts,
    roll_out_from,
    shared_laws,
)
from posteer.models.exact import ExactModel
from posteer.models.meter import Metered
from posteer.models.protocol import SequenceModel
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import (
    ContextSpace,
    all_sequences,
    continuation_log_probabilities,
    count_transitions,
)
from posteer.tokens.drawing import list_allowed

ENUMERABLE_CONTINUATIONS = 2**16
"""Continuations of a prompt up to which its expected utility is enumerated."""

ENUMERABLE_LEAVES = 2**25
"""Classes or prompts x continuations up to which a whole landscape is computed."""

MONTE_CARLO_ROLLOUTS = 20_000
ENUMERABLE_PROMPTS = 2**12
TIE = 1e-5
"""Prompts whose expected utilities differ by no more share a rank, as in the paper."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Expected utilities of a batch of prompts; standard errors are 0 where they are exact."""

    expected_utility: Float[Tensor, "B"]
    standard_error: Float[Tensor, "B"]
    exact: bool


def expected_utility(
    model: SequenceModel,
    utility: Utility | ForwardCrossEntropy,
    prompts: Int[Tensor, "B m"],
    horizon: int,
    *,
    seed: int = 0,
    n_rollouts: int = MONTE_CARLO_ROLLOUTS,
    sharing: bool = False,
) -> Evaluation:
    """J of each prompt: exact while the continuations can be enumerated, else Monte Carlo.

    With `sharing`, what prompts begin with in common is read once.
    """
    check_prompts(model, prompts)
    require(horizon >= 1, f"horizon {horizon}: expected at least 1")
    require(
        len(context_of(model)) + prompts.shape[1] >= utility.order,
        f"prompt of {prompts.shape[1]} tokens: {utility.name} reads the last {utility.order}",
    )
    _require_possible(model, prompts)
    contexts = last_contexts(model, utility.order, prompts)
    if model.space.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS:
        objective = objective_of(utility, model.space.vocab_size, horizon)
        read = shared_laws if sharing else continuation_laws
        value = objective.of_laws(read(model, prompts, horizon), contexts)
        return Evaluation(value, torch.zeros_like(value), exact=True)
    if isinstance(utility, ForwardCrossEntropy):
        raise InputError(
            f"{utility.name} needs every continuation: {model.space.vocab_size}**{horizon} are too "
            "many to enumerate"
        )
    results = []
    for row, prompt in enumerate(prompts):
        generator = torch_stream(seed, "evaluation", row)
        continuations = []
        for some in torch.zeros(n_rollouts, dtype=torch.long).split(
            model.batch_limit(prompts.shape[1] + horizon)
        ):
            state = read_prompts(model, prompt[None]).select(some)
            continuations.append(roll_out_from(model, state, horizon, generator))
        values = utility(torch.cat(continuations), contexts[row].expand(n_rollouts))
        results.append((values.mean(), values.std() / n_rollouts**0.5))
    means, errors = zip(*results, strict=True)
    return Evaluation(torch.stack(means), torch.stack(errors), exact=False)


def expected_utilities(
    model: SequenceModel,
    utilities: Sequence[Utility | ForwardCrossEntropy],
    prompts: Int[Tensor, "B m"],
    horizon: int,
    *,
    seeds: Sequence[int],
) -> list[Evaluation]:
    """J of each prompt under a goal of its own; each distinct prompt is read once."""
    if model.space.vocab_size**horizon > ENUMERABLE_CONTINUATIONS:
        return [
            expected_utility(model, utility, prompt[None], horizon, seed=seed)
            for utility, prompt, seed in zip(utilities, prompts, seeds, strict=True)
        ]
    check_prompts(model, prompts)
    _require_possible(model, prompts)
    distinct, where = prompts.unique(dim=0, return_inverse=True)
    laws = continuation_laws(model, distinct, horizon)
    found = []
    for row, utility in enumerate(utilities):
        contexts = last_contexts(model, utility.order, prompts[[row]])
        objective = objective_of(utility, model.space.vocab_size, horizon)
        value = objective.of_laws(laws[[int(where[row])]], contexts)
        found.append(Evaluation(value, torch.zeros_like(value), exact=True))
    return found


def check_prompts(model: SequenceModel, prompts: Int[Tensor, "B m"]) -> None:
    """Refuse tokens outside the vocabulary and prompts that are not longer than the order."""
    space = model.space
    outside = (prompts < 0) | (prompts >= space.vocab_size)
    if bool(outside.any()):
        raise InputError(
            f"prompt has the symbol {int(prompts[outside][0])}: expected symbols 0 to "
            f"{space.vocab_size - 1}"
        )
    require(
        len(context_of(model)) + prompts.shape[1] > space.order,
        f"prompt of {prompts.shape[1]} tokens: expected more than the order {space.order}",
    )


def _require_possible(model: SequenceModel, prompts: Int[Tensor, "B m"]) -> None:
    """Exact Bayes has nothing to say after a prompt that no latent can emit."""
    impossible = impossible_prompts(model, prompts)
    if bool(impossible.any()):
        tokens = prompts[impossible][0].tolist()
        raise InputError(f"the prompt {tokens} is impossible under {model.name}: no prediction")


def impossible_prompts(model: SequenceModel, prompts: Int[Tensor, "B m"]) -> Bool[Tensor, "B"]:
    """Which prompts no latent of an exact model can emit; a network predicts after anything."""
    inner = model.inner if isinstance(model, Metered) else model
    if not isinstance(inner, ExactModel):
        return torch.zeros(len(prompts), dtype=torch.bool)
    return inner.process.log_marginal(counts_after_context(inner, prompts)).isneginf()


def last_contexts(
    model: SequenceModel, order: int, prompts: Int[Tensor, "B m"]
) -> Int[Tensor, "B"]:
    """The last tokens that a goal reads, of what the model had read before if need be."""
    return ContextSpace(model.space.vocab_size, order).suffix(after_context(model, prompts))


def estimate_from_bank(
    bank: LatentBank,
    goal: Utility | ForwardCrossEntropy,
    prompts: Int[Tensor, "B m"],
    horizon: int,
) -> Float[Tensor, "B"]:
    """What a bank makes of hard prompts, without the model: latents weighted by their likelihood.

    The mean utility `sum_l w_l mu_l`, or for the forward cross-entropy
    `E_target[log sum_l w_l kernel_l(y)]`.
    """
    order = max(bank.space.order, goal.order)
    lifted = bank.at_order(order)
    contexts = lifted.space.suffix(prompts)
    counts = count_transitions(bank.space, prompts)
    if not isinstance(goal, ForwardCrossEntropy):
        means = utility_of_kernels(goal, lifted.space, lifted.kernels, horizon)
        return score_classes(bank.kernels, means, counts, contexts).value
    log_weights = log_likelihood(counts, bank.kernels).log_softmax(-1)
    continuations = all_sequences(bank.space.vocab_size, horizon)
    logs = continuation_log_probabilities(lifted.space, lifted.kernels, continuations)
    mixed = [
        (own[:, None] + logs[:, context]).logsumexp(0)
        for own, context in zip(log_weights, contexts.tolist(), strict=True)
    ]
    last = ContextSpace(bank.space.vocab_size, goal.order).suffix(prompts)
    return goal.of_laws(torch.stack(mixed), last)


@dataclass(frozen=True, eq=False)
class PromptLandscape:
    """Expected utilities over *all* prompts of a length, by class of equivalent prompts."""

    values: Float[Tensor, "K"]
    sizes: list[int]
    best_prompt: Int[Tensor, "m"]

    @property
    def optimum(self) -> float:
        return float(self.values.max())

    @property
    def n_prompts(self) -> int:
        return sum(self.sizes)

    def rank(self, value: float) -> int:
        """1 + how many prompts are better by more than the tie tolerance."""
        better = (self.values > value + TIE).nonzero().flatten().tolist()
        return 1 + sum(self.sizes[row] for row in better)


def landscape(
    model: SequenceModel,
    utility: Utility | ForwardCrossEntropy,
    length: int,
    horizon: int,
    progress: Progress | None = None,
    allowed: AllowedPrompts | None = None,
) -> PromptLandscape | None:
    """All prompts of a length, or None where neither prompts nor classes can be enumerated."""
    return landscapes(model, [utility], length, horizon, progress, allowed)[0]


def landscapes(
    model: SequenceModel,
    utilities: Sequence[Utility | ForwardCrossEntropy],
    length: int,
    horizon: int,
    progress: Progress | None = None,
    allowed: AllowedPrompts | None = None,
) -> list[PromptLandscape | None]:
    """The landscape of each goal; a network reads all prompts once for all of them.

    With `allowed`, of allowed prompts alone.
    """
    inner = model.inner if isinstance(model, Metered) else model
    vocab = model.space.vocab_size
    if vocab**horizon > ENUMERABLE_CONTINUATIONS:
        return [None] * len(utilities)
    objectives = [objective_of(utility, vocab, horizon) for utility in utilities]
    part = max(1, min(LEAVES_AT_ONCE, model.batch_limit(length + horizon)) // vocab**horizon)
    if isinstance(inner, ExactModel):
        asked = [
            ClassProblem(inner.space, length, objective.order, allowed, context_of(inner))
            for objective in objectives
        ]
        if all(one.decided for one in asked):
            return [
                _landscape_of_classes(model, inner, one, objective, horizon, part, progress)
                for one, objective in zip(asked, objectives, strict=True)
            ]
    n_bits = length * math.log2(vocab)
    if n_bits > math.log2(ENUMERABLE_PROMPTS) or vocab ** (length + horizon) > ENUMERABLE_LEAVES:
        return [None] * len(utilities)
    prompts = all_sequences(vocab, length) if allowed is None else list_allowed(allowed, length)
    prompts = prompts[~impossible_prompts(model, prompts)]
    laws: list[Tensor] = []
    for rows in prompts.split(part):
        laws.append(continuation_laws(model, rows, horizon))
        _report(progress, laws, len(prompts))
    every = torch.cat(laws)
    found: list[PromptLandscape | None] = []
    for objective in objectives:
        value = objective.of_laws(every, last_contexts(model, objective.order, prompts))
        found.append(PromptLandscape(value, [1] * len(prompts), prompts[int(value.argmax())]))
    return found


def _report(progress: Progress | None, values: list[Tensor], total: int) -> None:
    if progress is not None:
        progress("ranking all prompts", sum(map(len, values)), total)


def _landscape_of_classes(
    model: SequenceModel,
    exact: ExactModel,
    asked: ClassProblem,
    objective: Objective,
    horizon: int,
    part: int,
    progress: Progress | None,
) -> PromptLandscape | None:
    """On an exact model one member speaks for its class, and need not even be read.

    Prompts that no latent can emit are left out.
    """
    classes = asked.enumerate()
    if classes is None or len(classes) * exact.space.vocab_size**horizon > ENUMERABLE_LEAVES:
        return None
    possible = exact.process.log_marginal(classes.counts.double()) > -torch.inf
    kept = possible.nonzero().flatten()
    if asked.allowed is not None:
        allowed = asked.allowed_rows(classes)
        require(len(allowed) > 0, f"no allowed prompt of {asked.length} tokens exists")
        kept = kept[torch.isin(kept, allowed)]
    values: list[Tensor] = []
    for rows in kept.split(part):
        counts, last = classes.counts[rows], classes.last[rows]
        values.append(values_of_classes(model, exact, objective, counts, last, horizon))
        _report(progress, values, len(kept))
    value = torch.cat(values)
    sizes = [classes.sizes[row] for row in kept.tolist()]
    return PromptLandscape(value, sizes, classes.prompt(int(kept[value.argmax()])))


def values_of_classes(
    model: SequenceModel,
    exact: ExactModel,
    objective: Objective,
    counts: Int[Tensor, "K C V"],
    last: Int[Tensor, "K"],
    horizon: int,
) -> Float[Tensor, "K"]:
    """The exact J of classes, read by `model`: `exact` itself or its meter."""
    space = exact.space
    state = exact.resume(counts.double(), last % space.n_contexts)
    law = laws_by_levels(model, state, len(counts), horizon)
    return objective.of_laws(law, last % space.vocab_size**objective.order)
