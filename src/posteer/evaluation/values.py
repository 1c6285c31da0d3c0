"""The exact expected utility of hard prompts, the optimum over all of them, and ranks.

Any model: all continuations are enumerated (`models.continuations`); past
`ENUMERABLE_CONTINUATIONS`, Monte Carlo with a standard error. A counted prior sees a prompt through
statistics that many share, so on an exact model prompts fall into classes and the optimum is exact
far past enumeration. Prompts follow what a conditioned model has read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank, open_bank, sound_latents
from posteer.core import Float, InputError, Int, require
from posteer.core.device import undisturbed
from posteer.core.limits import (
    ENUMERABLE_CONTINUATIONS,
    MONTE_CARLO_ROLLOUTS,
    MOST_HORIZON,
    MOST_LATENTS,
    MOST_SEED,
)
from posteer.core.randomness import torch_stream
from posteer.core.spec import within
from posteer.core.weights import weighted_mean
from posteer.families.markov.means import has_exact_mean
from posteer.families.protocol import FinitePrior, Latents
from posteer.goals.objectives import ForwardCrossEntropy, Objective, objective_of
from posteer.goals.utilities import Goal, expected, open_goal
from posteer.models.continuations import (
    continuation_laws,
    log_probs_along,
    read_prompts,
    roll_out_from,
    shared_laws,
)
from posteer.models.meter import Metered
from posteer.models.protocol import Can, Model
from posteer.models.registry import open_metered
from posteer.tokens.contexts import ContextSpace, all_sequences
from posteer.tokens.prompts import parse_prompt
from posteer.tokens.vocabularies import Vocabulary


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Expected utilities of a batch of prompts; standard errors are 0 where they are exact."""

    expected_utility: Float[Tensor, "B"]
    standard_error: Float[Tensor, "B"]
    exact: bool


@undisturbed()
def expected_utility(
    model: Model | Any,
    goal: Goal | Any,
    prompts: Int[Tensor, "B m"] | Any,
    horizon: int | Any,
    *,
    seed: int | Any = 0,
    n_rollouts: int | Any = MONTE_CARLO_ROLLOUTS,
    sharing: bool = False,
    device: Any = "auto",
) -> Evaluation:
    """J of each prompt: exact while the continuations can be enumerated, else Monte Carlo.

    Model and goal are names or objects, prompts texts or tokens; one alone is a batch of one. A
    model is on `device` then; with None, or behind a meter, it stays where it was.
    With `sharing`, what prompts begin with in common is read once.

    >>> J = expected_utility("exact:urn", "dyck", [0, 1, 0, 1], 4)
    >>> round(float(J.expected_utility[0]), 4)
    0.4688
    """
    model = open_metered(model, device)
    goal, prompts = open_goal(goal, model), rows_of(prompts, model.vocabulary)
    horizon = within(horizon, "horizon", 1, MOST_HORIZON)
    seed = within(seed, "seed", -MOST_SEED, MOST_SEED)
    n_rollouts = within(n_rollouts, "n_rollouts", 2, MOST_LATENTS)
    _require_sense(model, [goal], prompts, horizon)
    contexts = model.last_contexts(goal.order, prompts)
    if model.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS:
        objective = objective_of(goal, model.vocab_size, horizon)
        read = shared_laws if sharing else continuation_laws
        value = objective.of_laws(read(model, prompts, horizon), contexts)
        require_numbers(goal, value)
        return Evaluation(value, torch.zeros_like(value), exact=True)
    by_atoms = _by_atoms(model, goal, prompts, horizon, contexts)
    if by_atoms is not None:
        require_numbers(goal, by_atoms)
        return Evaluation(by_atoms, torch.zeros_like(by_atoms), exact=True)
    results = []
    for row, prompt in enumerate(prompts):
        generator = torch_stream(seed, "evaluation", row)
        context = contexts[row].expand(n_rollouts)
        if isinstance(goal, ForwardCrossEntropy):
            drawn = goal.draw(context, horizon, generator)
            values = log_probs_of(model, prompt, drawn)
        else:
            values = goal(_rolled_out(model, prompt, horizon, n_rollouts, generator), context)
        results.append((values.mean(), values.std() / n_rollouts**0.5))
    means, errors = zip(*results, strict=True)
    require_numbers(goal, torch.stack(means))
    return Evaluation(torch.stack(means), torch.stack(errors), exact=False)


def _rolled_out(
    model: Model, prompt: Int[Tensor, "m"], horizon: int, n: int, generator: torch.Generator
) -> Int[Tensor, "n N"]:
    """So many continuations of a prompt, which is read once."""
    read_once = read_prompts(model, prompt[None])
    parts = torch.zeros(n, dtype=torch.long).split(model.batch_limit(len(prompt) + horizon))
    states = (read_once.select(some) for some in parts)
    return torch.cat([roll_out_from(model, state, horizon, generator) for state in states])


def log_probs_of(
    model: Model, prompt: Int[Tensor, "m"], continuations: Int[Tensor, "n N"]
) -> Float[Tensor, "n"]:
    """How likely given continuations of a prompt are, which is read once."""
    read_once = read_prompts(model, prompt[None])
    limit = model.batch_limit(len(prompt) + continuations.shape[1])
    return torch.cat(
        [
            log_probs_along(model, read_once.select(torch.zeros(len(some)).long()), some)
            for some in continuations.split(limit)
        ]
    )


def _by_atoms(
    model: Model,
    goal: Goal,
    prompts: Int[Tensor, "B m"],
    horizon: int,
    contexts: Int[Tensor, "B"],
) -> Float[Tensor, "B"] | None:
    """J at any horizon where all latents of an exact model are known, and each has its mean."""
    prior: object = model.prior
    known = Can.EXACT in model.can and isinstance(prior, FinitePrior)
    if not known or isinstance(goal, ForwardCrossEntropy) or model.tokens_per_token > 1:
        return None
    assert isinstance(prior, FinitePrior)
    if not has_exact_mean(goal, model.vocab_size, horizon):
        return None
    atoms = prior.as_atoms()
    belief = atoms.read(prompts)
    means = atoms.latents.mean_after(goal, horizon)(belief.reading, contexts)
    return weighted_mean(belief.log_joint, means).value


def tokens_of_value(
    model: Metered, length: int, horizon: int, n_rollouts: int = MONTE_CARLO_ROLLOUTS
) -> int:
    """Model tokens that J of one prompt takes: all continuations, or so many that are drawn."""
    if model.vocab_size**horizon <= ENUMERABLE_CONTINUATIONS:
        return model.tokens_of(length, horizon)
    read = length + n_rollouts * (horizon - 1)
    return model.context_tokens + read * model.tokens_per_token


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
        require_numbers(goal, value)
        found.append(Evaluation(value, torch.zeros_like(value), exact=True))
    return found


def require_numbers(goal: Goal | Objective, values: Float[Tensor, "B"]) -> None:
    """Refuse a goal that is not finite on some prompt: there is nothing to compare."""
    good = values.isfinite()
    if bool(good.all()):
        return
    found = float(values[~good][0])
    why = ""
    if isinstance(goal, ForwardCrossEntropy) and found == -torch.inf:
        why = " (the target does what the model, so prompted, never will)"
    raise InputError(f"{goal.name} is {found}{why}: expected a finite number")


def require_best(goal: Goal | Objective, values: Float[Tensor, "K"]) -> None:
    """The same of all prompts there are. Those on which a forward cross-entropy is minus infinity
    are the worst of them and no prompt's own value: some other must be the best."""
    if isinstance(goal, ForwardCrossEntropy) and float(values.max()) > -torch.inf:
        values = values[values > -torch.inf]
    require_numbers(goal, values)


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


def rows_of(prompts: Any, vocabulary: Vocabulary | int) -> Int[Tensor, "B m"]:
    """Prompts as a table of tokens: one, or several of one length, as texts or as tokens."""
    if isinstance(prompts, Tensor) and prompts.ndim == 2 and not prompts.is_floating_point():
        require(prompts.dtype != torch.bool, "prompts of truth values: expected tokens")
        return prompts.long()
    plain = prompts.tolist() if hasattr(prompts, "tolist") else prompts
    several = isinstance(plain, list | tuple) and len(plain) > 0 and not _is_token(plain[0])
    rows = [parse_prompt(one, vocabulary) for one in (plain if several else [plain])]
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


@undisturbed()
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
    temper = 1.0
    if isinstance(bank, Latents):
        latents = sound_latents(bank)
    else:
        bank = open_bank(bank)
        latents, temper = bank.latents, bank.temper
    goal = open_goal(goal, latents.family)
    prompts = rows_of(prompts, latents.family.vocab_size)
    horizon = within(horizon, "horizon", 1, MOST_HORIZON)
    longer = max(latents.family.order, goal.order)
    require(
        prompts.shape[1] >= longer,
        f"prompt of {prompts.shape[1]} tokens: expected at least {longer}",
    )
    own = latents.log_likelihood(prompts)
    log_weights = own if temper == 1 else temper * own
    if not isinstance(goal, ForwardCrossEntropy):
        means = latents.mean_utility(expected(goal), prompts, horizon)
        return weighted_mean(log_weights, means).value
    vocab = latents.family.vocab_size
    require(
        vocab**horizon <= ENUMERABLE_CONTINUATIONS,
        f"{goal.name} by a bank needs every continuation: {vocab}**{horizon} are too many",
    )
    continuations = all_sequences(vocab, horizon)
    log_joint = torch.stack(
        [
            (
                latents.log_likelihood(
                    torch.cat([prompt.expand(len(continuations), -1), continuations], 1)
                )
                - (0 if temper == 1 else (1 - temper) * weight)
            ).logsumexp(-1)
            for prompt, weight in zip(prompts, own, strict=True)
        ]
    )
    last = ContextSpace(vocab, goal.order).suffix(prompts)
    return goal.of_laws(log_joint - log_weights.logsumexp(-1)[:, None], last)
