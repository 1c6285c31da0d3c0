"""The last word to the model: the best candidates of a bank ranked by their exact J.

Of a bank that keeps what the model says along some histories, asking adapts: answers correct the
surrogate, and what is asked next goes by it (`methods.adaptive`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from posteer.banks.drawn import LatentBank
from posteer.banks.reading import correction_of
from posteer.core.limits import ENUMERABLE_CONTINUATIONS, SAMPLED_ROLLOUTS
from posteer.core.progress import phase
from posteer.core.shapes import Float, Int
from posteer.evaluation import expected_utility, tokens_of_value
from posteer.goals.objectives import objective_of
from posteer.methods.adaptive import Answers, Pool, ask_adaptively
from posteer.methods.answers import Answer, Asked, Verification
from posteer.methods.corrected import CorrectedValues
from posteer.methods.protocol import Needs, Problem
from posteer.models.continuations import shared_laws

MOST_NODES = 512
"""Histories that J of one prompt takes up to which all are corrected."""


def verify(problem: Problem, answer: Answer, needs: Needs) -> Answer:
    """The best of the candidates on the model itself, its cost charged to the run.

    A method that declares no others, or found none, is left as it is, and so is an answer whose
    budget does not pay for two candidates.
    """
    most = problem.candidates
    if most < 1:
        return answer
    if not needs.candidates or answer.candidates is None or len(answer.candidates) < 2:
        return replace(answer, verified=Verification(Asked.ONE_CANDIDATE))
    if min(most, _affordable(problem, answer, most)) < min(most, 2):
        return replace(answer, verified=Verification(Asked.NO_BUDGET))
    values = corrected_values(problem)
    before = replace(problem.model.queries)
    with phase("verify"), problem.model.spending.within(_left(problem, answer)):
        if values is None:
            found = _ask_first(problem, answer, most)
        else:
            found = _ask_on(problem, answer, values, most)
    return replace(found, queries=found.queries.plus(problem.model.queries.since(before)))


def corrected_values(problem: Problem) -> CorrectedValues | None:
    """The surrogate as what was read of the model corrects it; None where nothing was, or after
    another context, or continuations are too many."""
    bank: LatentBank | None = problem.bank or problem.drawn.bank
    vocab, horizon = problem.vocab_size, problem.horizon
    if bank is None or bank.origin.context != problem.context:
        return None
    if vocab**horizon > min(ENUMERABLE_CONTINUATIONS, vocab * MOST_NODES):
        return None
    correction = correction_of(bank, problem.length, horizon)
    if correction is None:
        return None
    order, model = problem.goal.order, problem.model
    objective = objective_of(problem.goal, vocab, horizon)
    return CorrectedValues(
        correction, objective, horizon, lambda prompts: model.last_contexts(order, prompts)
    )


def _ask_first(problem: Problem, answer: Answer, most: int) -> Answer:
    """The model's choice among the best candidates, all asked about at once."""
    assert answer.candidates is not None
    prompts = answer.candidates[: min(most, _affordable(problem, answer, most))]
    before = problem.model.queries.total
    judged = expected_utility(
        problem.model,
        problem.goal,
        prompts,
        problem.horizon,
        seed=problem.seed,
        n_rollouts=SAMPLED_ROLLOUTS,
        sharing=True,
    )
    best = int(judged.expected_utility.argmax())
    return replace(
        answer,
        prompt=prompts[best],
        verified=Verification(
            Asked.RANKED,
            len(prompts),
            best + 1,
            problem.model.queries.total - before,
            float(judged.standard_error[best]),
            first=float(judged.expected_utility[0]),
        ),
    )


def _ask_on(problem: Problem, answer: Answer, values: CorrectedValues, most: int) -> Answer:
    """The model's choice among prompts that its own answers lead to."""
    assert answer.candidates is not None
    model, before = problem.model, problem.model.queries.total

    def ask(prompts: Int[Tensor, "K m"]) -> tuple[Float[Tensor, "K"], Float[Tensor, "K Y"]]:
        laws = shared_laws(model, prompts, problem.horizon)
        return values.objective.of_laws(laws, values.contexts(prompts)), laws

    def affordable() -> int:
        return _affordable(problem, answer, most, model.queries.total - before)

    pool = Pool(answer.candidates, problem.vocab_size, problem.allowed)
    found = ask_adaptively(values, pool, ask, affordable, most)
    return replace(
        answer,
        prompt=found.prompts[int(found.values.argmax())],
        verified=_verification(answer, found, model.queries.total - before),
    )


def _verification(answer: Answer, found: Answers, tokens: int) -> Verification:
    assert answer.candidates is not None
    best = found.prompts[int(found.values.argmax())]
    same = (answer.candidates == best).all(-1).nonzero()
    first = (found.prompts == answer.candidates[0]).all(-1).nonzero()
    return Verification(
        Asked.RANKED,
        len(found.prompts),
        int(same[0]) + 1 if len(same) else None,
        tokens,
        0.0,
        found.rounds,
        found.bound if abs(found.bound) < torch.inf else None,
        found.settled,
        float(found.values[first[0]]) if len(first) else None,
    )


def _left(problem: Problem, answer: Answer) -> int | None:
    """What the budget has left once the search is paid, and the bank if one was drawn for it."""
    if problem.max_model_tokens is None:
        return None
    return problem.max_model_tokens - answer.queries.total - problem.drawn.tokens


def _affordable(problem: Problem, answer: Answer, most: int, spent: int = 0) -> int:
    """Candidates that the rest of the budget pays for, were none of them to share anything."""
    left = _left(problem, answer)
    if left is None:
        return most
    model = problem.model
    price = tokens_of_value(model, problem.length, problem.horizon, SAMPLED_ROLLOUTS)
    return max(0, left - spent) // price
