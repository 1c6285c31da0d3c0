"""The last word to the model: the best candidates of a bank ranked by their exact J."""

from __future__ import annotations

from dataclasses import replace

from posteer.evaluation import expected_utility
from posteer.models.base import QueryCount
from posteer.phases import phase
from posteer.problem import Answer, Problem


def verify(problem: Problem, answer: Answer, most: int) -> Answer:
    """The best of at most `most` candidates on the model itself, its cost charged to the run.

    A method that has one candidate, or asked the model already, is left as it is.
    """
    if most < 1 or answer.candidates is None or len(answer.candidates) < 2:
        return answer
    prompts = answer.candidates[:most]
    before = replace(problem.model.queries)
    with phase("verify"):
        judged = expected_utility(
            problem.model,
            problem.utility,
            prompts,
            problem.horizon,
            seed=problem.seed,
            sharing=True,
        )
    spent = problem.model.queries.since(before)
    best = int(judged.expected_utility.argmax())
    tokens = spent.forward_tokens + spent.backward_tokens
    place = "its own first choice" if best == 0 else f"the one it had in place {best + 1}"
    return replace(
        answer,
        prompt=prompts[best],
        queries=QueryCount(
            answer.queries.forward_tokens + spent.forward_tokens,
            answer.queries.backward_tokens + spent.backward_tokens,
        ),
        verified=f"best of {len(prompts)} on the model itself: {place}; {tokens:,} model tokens",
    )
