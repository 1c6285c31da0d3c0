"""The best prompt on a prior of finitely many latents, with a proof of how good it is.

Where prompts are few all are tried. Else they are climbed, and where the latents have states,
branch and bound over the ends of prompts goes on from the best: the bound holds at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from posteer.core import Float, Progress, Spec, integer, number, phase, require
from posteer.core.limits import MOST_OF_ANY
from posteer.core.spec import within
from posteer.families.atoms.prior import AtomPrior
from posteer.families.finite_state.suffixes import suffixes_of
from posteer.families.protocol import FinitePrior
from posteer.methods.answers import Answer, Proof, StopReason
from posteer.methods.bounds.odds import Odds
from posteer.methods.bounds.search import BranchAndBound, Limits
from posteer.methods.climbing.method import PromptClimb
from posteer.methods.climbing.prompts import PromptSearchSettings
from posteer.methods.protocol import Needs, Problem, Work

MOST_PROMPTS = 2**20
"""Prompts up to which all are tried."""

MOST_READ = 2**28
"""Prompts x latents up to which they are."""

SHARES = 8
"""Prompts whose losing latents, weighed as they are there, are bounded together."""

LEAST_SHARE = 1e-6


@dataclass(frozen=True, kw_only=True)
class BoundedSearch:
    """Climb, then prove. `gap`, `nodes` and `seconds` say when to stop: a request's own come
    first."""

    gap: float = 1e-9
    nodes: int = 200_000
    seconds: float = 20.0
    search: PromptSearchSettings = field(
        default_factory=lambda: PromptSearchSettings(limit=MOST_PROMPTS)
    )

    def __post_init__(self) -> None:
        require(self.gap >= 0, f"gap {self.gap:g}: expected at least 0")
        require(self.seconds >= 0, f"seconds {self.seconds:g}: expected at least 0")
        within(self.nodes, "nodes", 0, 1000 * MOST_OF_ANY)

    @property
    def needs(self) -> Needs:
        return replace(self._climb(self.search).needs, finite=True, proves=True)

    @staticmethod
    def _climb(search: PromptSearchSettings) -> PromptClimb:
        return PromptClimb(analytic=True, search=search)

    def forecast(self, problem: Problem, together: int) -> Work:
        quick = replace(problem, request=replace(problem.request, nodes=0))
        return self._climb(self.search).forecast(quick, together)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        answers = []
        for problem in problems:
            before = replace(problem.model.queries)
            prior = atoms_of(problem)
            n_prompts = problem.vocab_size ** min(problem.length, 64)
            few = n_prompts * len(prior.atoms) <= MOST_READ
            seconds = min(self.search.seconds, self.seconds)
            search = replace(self.search, seconds=seconds)
            climb = self._climb(search if few else replace(search, limit=0))
            answer = climb.solve([problem], progress)[0]
            proven = self._proven(problem, prior, answer, progress)
            answers.append(replace(proven, queries=problem.model.queries.since(before)))
        return answers

    def _proven(
        self, problem: Problem, prior: AtomPrior, answer: Answer, progress: Progress | None
    ) -> Answer:
        value = answer.surrogate
        assert value is not None, "climbing has one"
        if answer.certificate is not None:
            return replace(answer, proof=Proof(value, 0.0, answer.certificate.count))
        if answer.stop_reason is StopReason.INTERRUPTED:
            return answer
        utility, request = problem.expected, problem.request
        with phase("bound"):
            suffixes = suffixes_of(
                prior.atoms, prior.context, problem.length, utility, problem.horizon
            )
            if suffixes is None:
                return answer
            limits = Limits(
                self.gap if request.gap is None else request.gap,
                self.nodes if request.nodes is None else request.nodes,
                self.seconds,
            )
            search = BranchAndBound(
                suffixes, prior.log_weights, problem.length, problem.allowed, limits, progress
            )
            self._bound_together(search.odds, problem, prior, answer)
            found = search.run(answer.prompt, value)
        gap = found.bound - found.value
        proven = gap <= limits.gap
        candidates = answer.candidates
        if found.value > value and candidates is not None:
            candidates = torch.cat([found.prompt[None], candidates])
        return replace(
            answer,
            prompt=found.prompt,
            surrogate=found.value,
            plain_surrogate=found.value,
            candidates=candidates,
            proof=Proof(found.bound, gap, found.nodes),
            stop_reason=StopReason.PROVEN if proven else found.stop_reason,
        )

    @staticmethod
    def _bound_together(odds: Odds, problem: Problem, prior: AtomPrior, answer: Answer) -> None:
        """What the best prompts lose by, as shares of latents, tells which odds to bound."""
        if answer.candidates is None or answer.surrogate is None or len(prior.atoms) == 1:
            return
        known: list[Tensor] = []
        for prompt in answer.candidates[:SHARES]:
            shares = _losing(problem, prior, prompt, answer.surrogate)
            if shares is not None and not any(torch.allclose(shares, one) for one in known):
                known.append(shares)
                odds.against(shares)


def _losing(
    problem: Problem, prior: AtomPrior, prompt: Tensor, level: float
) -> Float[Tensor, "J"] | None:
    belief = prior.read(prompt[None])
    contexts = problem.model.last_contexts(problem.goal.order, prompt[None])
    means = prior.latents.mean_after(problem.expected, problem.horizon)(belief.reading, contexts)
    losses = belief.log_joint.softmax(-1)[0] * (level - means[0]).clamp(min=0)
    total = losses.sum()
    if not bool(total > 0):
        return None
    shares = losses / total
    shares = shares.masked_fill(shares < LEAST_SHARE, 0.0)
    return shares / shares.sum()


def atoms_of(problem: Problem) -> AtomPrior:
    """The latents of the problem's prior, all of them."""
    prior = problem.model.prior
    assert isinstance(prior, FinitePrior), "declared in needs"
    found: AtomPrior = prior.as_atoms()
    return found


def from_spec(spec: Spec) -> BoundedSearch:
    """`bounds(gap=1e-9,nodes=200000,seconds=20,keep=10,width=64,restarts=8)`."""
    own = BoundedSearch()
    search = own.search
    given = spec.take(
        gap=own.gap,
        nodes=own.nodes,
        seconds=own.seconds,
        keep=search.keep,
        limit=search.limit,
        width=search.width,
        restarts=search.restarts,
    )
    return BoundedSearch(
        gap=number(given["gap"], "gap"),
        nodes=integer(given["nodes"], "nodes"),
        seconds=number(given["seconds"], "seconds"),
        search=PromptSearchSettings(
            keep=integer(given["keep"], "keep"),
            limit=integer(given["limit"], "limit"),
            width=integer(given["width"], "width"),
            restarts=integer(given["restarts"], "restarts"),
        ),
    )
