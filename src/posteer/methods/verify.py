"""The last word to the model: the best candidates of a bank ranked by their exact J."""

from __future__ import annotations

from dataclasses import replace

from posteer.core.limits import ENUMERABLE_CONTINUATIONS
from posteer.core.progress import phase
from posteer.evaluation import expected_utility
from posteer.methods.answers import Answer, Asked, Verification
from posteer.methods.protocol import Needs, Problem

SAMPLED_ROLLOUTS = 2000
"""Continuations of each candidate where there are too many to enumerate."""


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
    prompts = answer.candidates[: min(most, _affordable(problem, answer, most))]
    if len(prompts) < min(most, 2):
        return replace(answer, verified=Verification(Asked.NO_BUDGET))
    before = replace(problem.model.queries)
    with phase("verify"):
        judged = expected_utility(
            problem.model,
            problem.goal,
            prompts,
            problem.horizon,
            seed=problem.seed,
            n_rollouts=SAMPLED_ROLLOUTS,
            sharing=True,
        )
    spent = problem.model.queries.since(before)
    best = int(judged.expected_utility.argmax())
    return replace(
        answer,
        prompt=prompts[best],
        queries=answer.queries.plus(spent),
        verified=Verification(
            Asked.RANKED,
            len(prompts),
            best + 1,
            spent.total,
            float(judged.standard_error[best]),
        ),
    )


def _affordable(problem: Problem, answer: Answer, most: int) -> int:
    """Candidates that the rest of the budget pays for, were none of them to share anything."""
    if problem.max_model_tokens is None:
        return most
    price = problem.model.tokens_of(problem.length, problem.horizon)
    if problem.vocab_size**problem.horizon > ENUMERABLE_CONTINUATIONS:
        price = problem.length + SAMPLED_ROLLOUTS * (problem.horizon - 1)
    return max(0, (problem.max_model_tokens - answer.queries.total) // price)
