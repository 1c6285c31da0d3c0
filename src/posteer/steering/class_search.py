"""The best classes of prompts for any estimator: all of them where they are few, else by climbing.

What J depends on is a class: the transition counts and the last context of a prompt (its first
context follows from them, up to tokens the model never counts). So the search is over classes, and
any member of the best one, an Eulerian walk on its counts, is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from posteer.allowed import AllowedPrompts
from posteer.errors import InputError, require
from posteer.kernels import ContextSpace, count_transitions, sample_chains
from posteer.latents.hard_prompts import HardScorer, HardScores
from posteer.problem import Step
from posteer.prompt_classes import ENUMERABLE_CLASSES, PromptClasses, prompt_classes
from posteer.randomness import numpy_stream, torch_stream
from posteer.shapes import Bool, Int
from posteer.steering.climb import Climb, climb
from posteer.steering.moves import ClassMoves, simple_cycles
from posteer.steering.token_moves import TokenMoves
from posteer.steering.walks import eulerian_walk
from posteer.utilities.base import all_sequences

MOST_EDGES = 128
"""Edges of the de Bruijn graph up to which its cycles are the moves; past it, tokens are."""

MOST_ENDS = 4096
"""First or last contexts that a class may tell apart; longer fixed ends are left to prompts."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """`keep` best classes are returned; up to `limit` classes (or prompts, where only they can tell
    what is allowed) are tried one and all, past it `restarts` repetitive and random prompts join
    the given ones as starts of a local search of at most `max_rounds` rounds."""

    keep: int = 10
    limit: int = ENUMERABLE_CLASSES
    restarts: int = 8
    max_rounds: int = 200

    def __post_init__(self) -> None:
        require(self.keep >= 1, f"keep {self.keep}: expected at least 1")
        require(self.limit >= 0, f"limit {self.limit}: expected at least 0")
        require(self.restarts >= 1, f"{self.restarts} restarts: expected at least 1")
        require(self.max_rounds >= 1, f"{self.max_rounds} rounds: expected at least 1")


@dataclass(frozen=True, eq=False)
class BestClasses:
    """One prompt of each of the best classes, best first, and what the estimator makes of them."""

    prompts: Int[Tensor, "K m"]
    counts: Int[Tensor, "K C V"]
    last: Int[Tensor, "K"]
    scores: HardScores
    certificate: str | None
    stop_reason: str
    n_scored: int
    history: list[Step] = field(repr=False)


@dataclass(frozen=True, eq=False)
class ClassProblem:
    """Prompts of `length` for a model of `space`; the goal reads `goal_order` tokens of them."""

    space: ContextSpace
    length: int
    goal_order: int = 0
    allowed: AllowedPrompts | None = None

    @property
    def ends(self) -> ContextSpace:
        """The space of first and last contexts, wide enough for all that is asked of them."""
        order = max(self.space.order, self.goal_order)
        if self.allowed is not None and self._decided:
            order = self.allowed.context_order(order)
        return ContextSpace(self.space.vocab_size, order)

    @property
    def _decided(self) -> bool:
        """Whether counts and ends, if not too long, tell what is allowed."""
        if self.allowed is None:
            return True
        n_ends = self.space.vocab_size ** self.allowed.context_order(self.space.order)
        return self.allowed.decided_by_counts(self.space.order) and n_ends <= MOST_ENDS

    @property
    def by_classes(self) -> bool:
        """Whether classes tell what is allowed, on a graph small enough to know its cycles."""
        edges = self.ends.n_contexts * self.ends.vocab_size
        return self._decided and self.length > self.ends.order and edges <= MOST_EDGES

    def enumerate(self, limit: int) -> PromptClasses | None:
        """All classes, or None where there are more than `limit` or they cannot tell."""
        if not self._decided or self.length < self.ends.order:
            return None
        return prompt_classes(self.space, self.length, self.ends.order, limit)

    def few_prompts(self, limit: int) -> bool:
        """Whether all prompts are to be tried, where classes cannot tell what is allowed."""
        return not self.by_classes and self.space.vocab_size**self.length <= limit

    def mask(self) -> Bool[Tensor, "m V"]:
        """Which tokens may stand where."""
        if self.allowed is None:
            return torch.ones(self.length, self.space.vocab_size, dtype=torch.bool)
        return self.allowed.token_mask(self.length)


def search_classes(
    problem: ClassProblem,
    scorer: HardScorer,
    settings: SearchSettings,
    seed: int = 0,
    starts: Int[Tensor, "R m"] | None = None,
    classes: PromptClasses | None = None,
    report: Callable[[str, int, int], None] | None = None,
) -> BestClasses:
    """The best classes for a scorer. `classes` saves enumerating them again, `starts` are prompts
    to climb from besides random ones, if it comes to that."""
    problem.mask()  # refuses what cannot be satisfied
    if classes is None:
        classes = problem.enumerate(settings.limit)
    if classes is not None:
        return _all_classes(problem, classes, scorer, settings)
    if problem.few_prompts(settings.limit):
        return _all_prompts(problem, scorer, settings)
    begin = spread_prompts(problem, settings.restarts, seed)
    if starts is not None:
        begin = torch.cat([starts, begin])
    return _climb(problem, scorer, settings, begin, seed, report)


def _all_classes(
    problem: ClassProblem, classes: PromptClasses, scorer: HardScorer, settings: SearchSettings
) -> BestClasses:
    started = time.perf_counter()
    kept = torch.arange(len(classes))
    if problem.allowed is not None:
        broken = problem.allowed.class_violations(
            problem.space, classes.counts, problem.ends, classes.starts, classes.last
        )
        kept = (broken == 0).nonzero().flatten()
    counts, last = classes.counts[kept], classes.last[kept]
    scores = scorer(counts, classes.starts[kept], last)
    best = _distinct(counts, last, scores, settings.keep)
    prompts = [classes.prompt(int(kept[row])) for row in best]
    distinct = len(torch.cat([counts.flatten(1), last[:, None]], -1).unique(dim=0))
    which = "classes" if problem.allowed is None else "classes of allowed prompts"
    return _complete(
        problem, prompts, counts[best], last[best], scores, best, distinct, which, started
    )


def _all_prompts(
    problem: ClassProblem, scorer: HardScorer, settings: SearchSettings
) -> BestClasses:
    started = time.perf_counter()
    prompts = all_sequences(problem.space.vocab_size, problem.length)
    if problem.allowed is not None:
        prompts = prompts[problem.allowed.allows(prompts)]
    counts, last = count_transitions(problem.space, prompts).long(), problem.ends.suffix(prompts)
    scores = scorer(counts, problem.ends.encode(prompts[:, : problem.ends.order]), last)
    best = _distinct(counts, last, scores, settings.keep)
    chosen = [prompts[row] for row in best]
    which = "prompts" if problem.allowed is None else "allowed prompts"
    return _complete(
        problem, chosen, counts[best], last[best], scores, best, len(prompts), which, started
    )


def _complete(
    problem: ClassProblem,
    prompts: list[Tensor],
    counts: Int[Tensor, "K C V"],
    last: Int[Tensor, "K"],
    scores: HardScores,
    best: list[int],
    n_tried: int,
    which: str,
    started: float,
) -> BestClasses:
    """The answer of a search that left nothing out."""
    if not best:
        raise InputError(_nothing(problem))
    kept = _rows_of_scores(scores, torch.tensor(best))
    seconds = time.perf_counter() - started
    return BestClasses(
        torch.stack(prompts),
        counts,
        last,
        kept,
        f"optimal over all {n_tried:,} {which} for this bank",
        f"all {which}",
        n_tried,
        [Step(float(kept.value[0]), n_tried, 0, 0, seconds)],
    )


def _nothing(problem: ClassProblem) -> str:
    if problem.allowed is None:
        return f"no latent of the bank can emit any prompt of {problem.length} tokens"
    return f"no allowed prompt of {problem.length} tokens was found"


def _distinct(
    counts: Int[Tensor, "K C V"], last: Int[Tensor, "K"], scores: HardScores, keep: int
) -> list[int]:
    """The best rows, of each (counts, last context) one: more of their first context is no news."""
    seen: set[bytes] = set()
    best: list[int] = []
    for row in scores.value.argsort(descending=True, stable=True).tolist():
        if len(best) == keep or scores.value[row] == -torch.inf:
            break
        key = torch.cat([counts[row].flatten(), last[row][None]]).numpy().tobytes()
        if key not in seen:
            seen.add(key)
            best.append(row)
    return best


def _rows_of_scores(scores: HardScores, rows: Int[Tensor, "K"]) -> HardScores:
    return scores.select(rows)


def _climb(
    problem: ClassProblem,
    scorer: HardScorer,
    settings: SearchSettings,
    starts: Int[Tensor, "R m"],
    seed: int,
    report: Callable[[str, int, int], None] | None,
) -> BestClasses:
    space, ends, allowed = problem.space, problem.ends, problem.allowed
    violations: Callable[[Tensor], Tensor] | None = None
    moves: ClassMoves | TokenMoves
    if problem.by_classes:
        moves = ClassMoves.of(ends, problem.length - ends.order)
    else:
        moves = TokenMoves(ends, problem.mask(), numpy_stream(seed, "token-moves"))

    def describe(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        counts, first, last = moves.parts_of(rows)
        return narrowed(space, ends, counts, first), first, last

    def of_classes(rows: Tensor) -> Tensor:
        assert allowed is not None
        counts, first, last = describe(rows)
        return allowed.class_violations(space, counts, ends, first, last)

    if allowed is not None:
        violations = of_classes if problem.by_classes else allowed.violations
    found = climb(
        moves,
        describe,
        scorer,
        violations,
        moves.rows_of(starts),
        settings.keep,
        settings.max_rounds,
        None if report is None else lambda done, most: report("climbing", done, most),
    )
    if len(found.rows) == 0:
        raise InputError(_nothing(problem))
    counts, first, last = describe(found.rows)
    return BestClasses(
        _prompts_of(moves, found),
        counts,
        last,
        scorer(counts, first, last),
        None,
        "local optimum" if found.finished else "round limit",
        found.n_scored,
        [Step(value, scored, 0, 0, seconds) for value, scored, seconds in found.history],
    )


def narrowed(
    space: ContextSpace,
    wide: ContextSpace,
    counts: Int[Tensor, "K W V"],
    first: Int[Tensor, "K"],
) -> Int[Tensor, "K C V"]:
    """Counts of the model's order from those of a higher one, whose first context hides some."""
    by_suffix = counts.unflatten(1, (-1, space.n_contexts)).sum(1)
    return by_suffix + count_transitions(space, wide.decode(first)).long()


def _prompts_of(moves: ClassMoves | TokenMoves, found: Climb) -> Int[Tensor, "K m"]:
    if isinstance(moves, TokenMoves):
        return found.rows
    counts, first, _ = moves.parts_of(found.rows)
    prompts = []
    for table, start in zip(counts, first, strict=True):
        walk = eulerian_walk(moves.space, table, int(start))
        assert walk is not None, "moves keep an Eulerian walk possible"
        prompts.append(torch.cat([moves.space.decode(start), torch.tensor(walk)]))
    return torch.stack(prompts)


def spread_prompts(problem: ClassProblem, n: int, seed: int) -> Int[Tensor, "K m"]:
    """Prompts to start from: half of them repeat a short cycle, since a kernel that repeats itself
    is a corner of what a prompt can say, and half are drawn at random."""
    drawn = random_prompts(problem, n, seed)
    if not problem.by_classes:
        return drawn
    ends, mask = problem.ends, problem.mask()
    for row, (_, table) in enumerate(simple_cycles(ends, n // 2)[: n // 2]):
        context = int(table.sum(-1).argmax())
        tokens = ends.decode(torch.tensor(context)).tolist()
        while len(tokens) < problem.length:
            tokens.append(int(table[context].argmax()))
            context = int(ends.next_context[context, tokens[-1]])
        repeated = torch.tensor(tokens)
        fits = mask[torch.arange(problem.length), repeated]
        drawn[row] = torch.where(fits, repeated, drawn[row])
    return drawn


def random_prompts(problem: ClassProblem, n: int, seed: int) -> Int[Tensor, "K m"]:
    """Draws from random kernels, whose counts differ more than those of uniform tokens; tokens out
    of place are replaced by ones that may stand there."""
    ends = problem.ends
    stream = numpy_stream(seed, "class-search-starts")
    kernels = stream.dirichlet(np.full(ends.vocab_size, 0.5), size=(n, ends.n_contexts))
    first = torch.from_numpy(stream.integers(0, ends.n_contexts, size=n))
    generator = torch_stream(seed, "class-search-starts")
    tail = sample_chains(
        ends, torch.from_numpy(kernels), first, problem.length - ends.order, generator
    )
    drawn = torch.cat([ends.decode(first), tail], -1)
    mask = problem.mask()
    others = torch.multinomial(mask.double(), n, replacement=True, generator=generator).T
    return torch.where(mask[torch.arange(problem.length), drawn], drawn, others)
