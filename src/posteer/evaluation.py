"""The exact expected utility of hard prompts, the optimum over all of them, and ranks.

Any model: continuations are enumerated level by level, so prompts share the prefix tree of their
continuations and each node is read once. Past `ENUMERABLE_CONTINUATIONS`: Monte Carlo with a
standard error. An exact model depends on a prompt only through its transition counts and last
context, so prompts fall into classes and the optimum is exact far past enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from posteer.errors import InputError, require
from posteer.kernels import ContextSpace, count_transitions, log_likelihood
from posteer.latents.bank import LatentBank
from posteer.latents.hard_prompts import score_classes
from posteer.models.base import Metered, SequenceModel
from posteer.models.exact import ExactModel
from posteer.models.memory import free_cached, is_out_of_memory
from posteer.models.tree import tree_size
from posteer.objectives import ForwardCrossEntropy, Objective, objective_of
from posteer.problem import Progress
from posteer.prompt_classes import prompt_classes
from posteer.randomness import torch_stream
from posteer.shapes import Bool, Float, Int
from posteer.utilities.base import (
    Utility,
    all_sequences,
    continuation_log_probabilities,
    utility_of_kernels,
)

ENUMERABLE_CONTINUATIONS = 2**16
"""Continuations of a prompt up to which its expected utility is enumerated."""

NODES_IN_ONE_PASS = 256
"""Nodes of a continuation tree up to which a transformer reads it behind one mask."""

TOKENS_AT_ONCE = 2**15
"""Tokens in one such pass: activations of a hundred megabytes or so."""

LEAVES_AT_ONCE = 2**20
"""Prompts x continuations that are enumerated together."""

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
) -> Evaluation:
    """J of each prompt: exact while the continuations can be enumerated, else Monte Carlo."""
    check_prompts(model.space, prompts)
    require(horizon >= 1, f"horizon {horizon}: expected at least 1")
    require(
        prompts.shape[1] >= utility.order,
        f"prompt of {prompts.shape[1]} tokens: {utility.name} reads the last {utility.order}",
    )
    _require_possible(model, prompts)
    contexts = _utility_contexts(model.space, utility, prompts)
    if model.space.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS:
        objective = objective_of(utility, model.space.vocab_size, horizon)
        value = objective.of_laws(continuation_laws(model, prompts, horizon), contexts)
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
            state = _read(model, prompt[None]).select(some)
            continuations.append(_roll_out(model, state, horizon, generator))
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
    check_prompts(model.space, prompts)
    _require_possible(model, prompts)
    distinct, where = prompts.unique(dim=0, return_inverse=True)
    laws = continuation_laws(model, distinct, horizon)
    found = []
    for row, utility in enumerate(utilities):
        contexts = _utility_contexts(model.space, utility, prompts[[row]])
        objective = objective_of(utility, model.space.vocab_size, horizon)
        value = objective.of_laws(laws[[int(where[row])]], contexts)
        found.append(Evaluation(value, torch.zeros_like(value), exact=True))
    return found


def check_prompts(space: ContextSpace, prompts: Int[Tensor, "B m"]) -> None:
    """Refuse tokens outside the vocabulary and prompts that are not longer than the order."""
    outside = (prompts < 0) | (prompts >= space.vocab_size)
    if bool(outside.any()):
        raise InputError(
            f"prompt has the symbol {int(prompts[outside][0])}: expected symbols 0 to "
            f"{space.vocab_size - 1}"
        )
    require(
        prompts.shape[1] > space.order,
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
    return inner.process.log_marginal(count_transitions(inner.space, prompts)).isneginf()


def _utility_contexts(
    space: ContextSpace, utility: Utility | ForwardCrossEntropy, prompts: Int[Tensor, "B m"]
) -> Int[Tensor, "B"]:
    return ContextSpace(space.vocab_size, utility.order).suffix(prompts)


def _read(model: SequenceModel, prompts: Int[Tensor, "B m"]) -> Any:
    state = model.start(len(prompts))
    for token in prompts.unbind(-1):
        _, state = model.advance(state, token)
    return state


def continuation_laws(
    model: SequenceModel, prompts: Int[Tensor, "B m"], horizon: int
) -> Float[Tensor, "B Y"]:
    """Log-probabilities of all continuations of each prompt, in float64.

    A transformer reads a prompt and the tree of its continuations in one pass; any other model is
    led through the tree level by level. Both read each node once.
    """
    length, vocab = prompts.shape[1], model.space.vocab_size
    inner = model.inner if isinstance(model, Metered) else model
    n_nodes = tree_size(vocab, horizon)
    in_one_pass = hasattr(inner, "continuation_log_probs") and n_nodes <= NODES_IN_ONE_PASS
    if in_one_pass:
        part = max(1, TOKENS_AT_ONCE // (length + n_nodes + 1))
    else:
        limit = min(model.batch_limit(length + horizon), LEAVES_AT_ONCE)
        part = max(1, limit // vocab ** (horizon - 1))
    laws, at, part = [], 0, min(part, len(prompts))
    while at < len(prompts):
        some = prompts[at : at + part]
        before = replace(model.queries) if isinstance(model, Metered) else None
        try:
            if in_one_pass:
                law = model.continuation_log_probs(some, horizon)  # type: ignore[attr-defined]
            else:
                law = _by_levels(model, _read(model, some), len(some), horizon)
        except RuntimeError as error:
            if part == 1 or not is_out_of_memory(error):
                raise
            if isinstance(model, Metered) and before is not None:
                model.refund(before)
            part = (part + 1) // 2
            free_cached()
            continue
        laws.append(law.double().cpu())
        at += len(some)
    return torch.cat(laws)


def _by_levels(
    model: SequenceModel, state: Any, n_prompts: int, horizon: int
) -> Float[Tensor, "B Y"]:
    """Expand all continuations of all histories one level at a time."""
    vocab = model.space.vocab_size
    log_probability = state.log_probs
    for depth in range(1, horizon):
        n_nodes = n_prompts * vocab ** (depth - 1)
        children = torch.arange(n_nodes).repeat_interleave(vocab)
        law, state = model.advance(state.select(children), torch.arange(vocab).repeat(n_nodes))
        log_probability = (log_probability.flatten()[:, None] + law).view(n_prompts, -1)
    return log_probability


def _roll_out(
    model: SequenceModel, state: Any, horizon: int, generator: torch.Generator
) -> Int[Tensor, "B N"]:
    law, tokens = state.log_probs, []
    for t in range(horizon):
        uniform = torch.rand(len(law), 1, dtype=torch.float64, generator=generator)
        token = (uniform >= law.double().exp().cumsum(-1)[:, :-1].cpu()).sum(-1)
        tokens.append(token)
        if t + 1 < horizon:
            law, state = model.advance(state, token)
    return torch.stack(tokens, -1)


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
) -> PromptLandscape | None:
    """All prompts of a length, or None where neither prompts nor classes can be enumerated."""
    return landscapes(model, [utility], length, horizon, progress)[0]


def landscapes(
    model: SequenceModel,
    utilities: Sequence[Utility | ForwardCrossEntropy],
    length: int,
    horizon: int,
    progress: Progress | None = None,
) -> list[PromptLandscape | None]:
    """The landscape of each goal; a network reads all prompts once for all of them."""
    inner = model.inner if isinstance(model, Metered) else model
    vocab = model.space.vocab_size
    if vocab**horizon > ENUMERABLE_CONTINUATIONS:
        return [None] * len(utilities)
    objectives = [objective_of(utility, vocab, horizon) for utility in utilities]
    part = max(1, min(LEAVES_AT_ONCE, model.batch_limit(length + horizon)) // vocab**horizon)
    if isinstance(inner, ExactModel):
        return [
            _landscape_of_classes(model, inner, objective, length, horizon, part, progress)
            for objective in objectives
        ]
    n_bits = length * math.log2(vocab)
    if n_bits > math.log2(ENUMERABLE_PROMPTS) or vocab ** (length + horizon) > ENUMERABLE_LEAVES:
        return [None] * len(utilities)
    prompts = all_sequences(vocab, length)
    laws: list[Tensor] = []
    for rows in prompts.split(part):
        laws.append(continuation_laws(model, rows, horizon))
        _report(progress, laws, len(prompts))
    every = torch.cat(laws)
    found: list[PromptLandscape | None] = []
    for objective in objectives:
        value = objective.of_laws(every, ContextSpace(vocab, objective.order).suffix(prompts))
        found.append(PromptLandscape(value, [1] * len(prompts), prompts[int(value.argmax())]))
    return found


def _report(progress: Progress | None, values: list[Tensor], total: int) -> None:
    if progress is not None:
        progress("ranking all prompts", sum(map(len, values)), total)


def _landscape_of_classes(
    model: SequenceModel,
    exact: ExactModel,
    objective: Objective,
    length: int,
    horizon: int,
    part: int,
    progress: Progress | None,
) -> PromptLandscape | None:
    """On an exact model one member speaks for its class, and need not even be read.

    Prompts that no latent can emit are left out.
    """
    space = exact.space
    classes = prompt_classes(space, length, max(objective.order, space.order))
    if classes is None or len(classes) * space.vocab_size**horizon > ENUMERABLE_LEAVES:
        return None
    possible = exact.process.log_marginal(classes.counts.double()) > -torch.inf
    kept = possible.nonzero().flatten()
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
    law = _by_levels(model, state, len(counts), horizon)
    return objective.of_laws(law, last % space.vocab_size**objective.order)
