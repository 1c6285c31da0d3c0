"""The last word to the model: the best candidates of a bank ranked by their exact J."""

from __future__ import annotations

from dataclasses import replace

from posteer.core.progress import phase
from posteer.evaluation import ENUMERABLE_CONTINUATIONS, expected_utility
from posteer.methods.answers import Answer
from posteer.methods.protocol import Problem
from posteer.models.meter import QueryCount

SAMPLED_ROLLOUTS = 2000
"""Continuations of each candidate where there are too many to enumerate."""


def verify(problem: Problem, answer: Answer, most: int) -> Answer:
    """The best of at most `most` candidates on the model itself, its cost charged to the run.

    A method that has one candidate, or asked the model already, is left as it is, and so is an
    answer whose budget does not pay for two candidates.
    """
    if most < 1:
        return answer
    if answer.candidates is None or len(answer.candidates) < 2:
        return replace(answer, verified="no: the method has one candidate")
    prompts = answer.candidates[: min(most, _affordable(problem, answer, most))]
    if len(prompts) < min(most, 2):
        return replace(answer, verified="no: the budget does not pay for two candidates")
    before = replace(problem.model.queries)
    with phase("verify"):
        judged = expected_utility(
            problem.model,
            problem.utility,
            prompts,
            problem.horizon,
            seed=problem.seed,
            n_rollouts=SAMPLED_ROLLOUTS,
            sharing=True,
        )
    spent = problem.model.queries.since(before)
    best = int(judged.expected_utility.argmax())
    tokens = spent.forward_tokens + spent.backward_tokens
    place = "its own first choice" if best == 0 else f"the one it had in place {best + 1}"
    how = "" if judged.exact else f", each ± {float(judged.standard_error[best]):.4f} by sampling"
    return replace(
        answer,
        prompt=prompts[best],
        queries=QueryCount(
            answer.queries.forward_tokens + spent.forward_tokens,
            answer.queries.backward_tokens + spent.backward_tokens,
        ),
        verified=f"best of {len(prompts)} on the model itself{how}: {place}; "
        f"{tokens:,} model tokens",
    )


def _affordable(problem: Problem, answer: Answer, most: int) -> int:
    """Candidates that the rest of the budget pays for, were none of them to share anything."""
    if problem.max_model_tokens is None:
        return most
    used = answer.queries.forward_tokens + answer.queries.backward_tokens
    price = problem.model.tokens_of(problem.length, problem.horizon)
    if problem.model.space.vocab_size**problem.horizon > ENUMERABLE_CONTINUATIONS:
        price = problem.length + SAMPLED_ROLLOUTS * (problem.horizon - 1)
    return max(0, (problem.max_model_tokens - used) // price)
