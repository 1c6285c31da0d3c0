"""The last word to the model: the best candidates of a bank ranked by their exact J."""

from __future__ import annotations

from dataclasses import replace

from posteer.core.limits import SAMPLED_ROLLOUTS
from posteer.core.progress import phase
from posteer.evaluation import expected_utility, tokens_of_value
from posteer.methods.answers import Answer, Asked, Verification
from posteer.methods.protocol import Needs, Problem


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
    with phase("verify"), problem.model.spending.within(_left(problem, answer)):
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


def _left(problem: Problem, answer: Answer) -> int | None:
    """What the budget has left once the search is paid, and the bank if one was drawn for it."""
    if problem.max_model_tokens is None:
        return None
    return problem.max_model_tokens - answer.queries.total - problem.drawn.tokens


def _affordable(problem: Problem, answer: Answer, most: int) -> int:
    """Candidates that the rest of the budget pays for, were none of them to share anything."""
    left = _left(problem, answer)
    if left is None:
        return most
    model = problem.model
    return max(0, left) // tokens_of_value(model, problem.length, problem.horizon, SAMPLED_ROLLOUTS)
