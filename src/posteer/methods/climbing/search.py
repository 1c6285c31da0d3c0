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

from posteer.core import InputError, Int
from posteer.core.limits import ENUMERABLE_CLASSES, MOST_OF_ANY
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.spec import within
from posteer.families.markov.kernels import sample_chains
from posteer.families.markov.prompt_classes import (
    ClassProblem,
    PromptClasses,
    transitions_behind,
    with_head,
)
from posteer.methods.answers import Scope, Step, StopReason
from posteer.methods.climbing.climb import climb
from posteer.methods.climbing.moves import ClassMoves, simple_cycles
from posteer.methods.climbing.token_moves import TokenMoves
from posteer.methods.scorers.protocol import HardScorer, HardScores
from posteer.methods.watching import Candidates, watcher_now
from posteer.tokens.contexts import ContextSpace, all_sequences


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """`keep` best classes are returned; up to `limit` classes (or prompts, where only they can tell
    what is allowed) are tried one and all, past it `restarts` repetitive and random prompts join
    the given ones as starts of a local search of at most `max_rounds` rounds."""

    keep: int = 10
    limit: int = ENUMERABLE_CLASSES
    restarts: int = 8
    max_rounds: int = 1000

    def __post_init__(self) -> None:
        within(self.keep, "keep", 1, MOST_OF_ANY)
        within(self.limit, "limit", 0, MOST_OF_ANY)
        within(self.restarts, "restarts", 1, MOST_OF_ANY)
        within(self.max_rounds, "rounds", 1, MOST_OF_ANY)


@dataclass(frozen=True, eq=False)
class BestClasses:
    """One prompt of each of the best classes, best first, and what the estimator makes of them."""

    prompts: Int[Tensor, "K m"]
    counts: Int[Tensor, "K C V"]
    last: Int[Tensor, "K"]
    scores: HardScores
    stop_reason: StopReason
    scope: Scope | None
    n_scored: int
    history: list[Step] = field(repr=False)


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
    kept = problem.allowed_rows(classes)
    counts, last = classes.counts[kept], classes.last[kept] % problem.tail.n_contexts
    scores = scorer(counts, classes.starts[kept], last)
    best = _distinct(counts, last, scores, settings.keep)
    prompts = [classes.prompt(int(kept[row])) for row in best]
    distinct = len(torch.cat([counts.flatten(1), last[:, None]], -1).unique(dim=0))
    scope = Scope.CLASSES if problem.allowed is None else Scope.ALLOWED_CLASSES
    return _complete(
        problem, prompts, counts[best], last[best], scores, best, distinct, scope, started
    )


def _all_prompts(
    problem: ClassProblem, scorer: HardScorer, settings: SearchSettings
) -> BestClasses:
    started = time.perf_counter()
    prompts = all_sequences(problem.space.vocab_size, problem.length)
    if problem.allowed is not None:
        prompts = prompts[problem.allowed.allows(prompts)]
    counts, first, last = problem.describe(prompts)
    last = last % problem.tail.n_contexts
    scores = scorer(counts, first, last)
    best = _distinct(counts, last, scores, settings.keep)
    chosen = [prompts[row] for row in best]
    scope = Scope.PROMPTS if problem.allowed is None else Scope.ALLOWED_PROMPTS
    return _complete(
        problem, chosen, counts[best], last[best], scores, best, len(prompts), scope, started
    )


def _complete(
    problem: ClassProblem,
    prompts: list[Tensor],
    counts: Int[Tensor, "K C V"],
    last: Int[Tensor, "K"],
    scores: HardScores,
    best: list[int],
    n_tried: int,
    scope: Scope,
    started: float,
) -> BestClasses:
    """The answer of a search that left nothing out."""
    if not best:
        raise InputError(_nothing(problem))
    kept, watcher = scores.select(torch.tensor(best)), watcher_now()
    if watcher is not None:
        watcher(Candidates(torch.stack(prompts), kept.value, n_tried))
    seconds = time.perf_counter() - started
    return BestClasses(
        torch.stack(prompts),
        counts,
        last,
        kept,
        scope.stop_reason,
        scope,
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
    head = problem.head
    if problem.by_classes:
        moves = ClassMoves.of(ends, len(head) + problem.length - ends.order)
        begin = moves.rows_of(with_head(head, starts))
    else:
        moves = TokenMoves.of(problem.describe, problem.mask(), numpy_stream(seed, "token-moves"))
        begin = starts

    def describe(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        counts, first, last = moves.parts_of(rows)
        if problem.by_classes:
            counts = narrowed(space, ends, counts, first, head)
        return counts, first, last

    def as_scored(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        counts, first, last = describe(rows)
        return counts, first, last % problem.tail.n_contexts

    def of_classes(rows: Tensor) -> Tensor:
        return problem.violations(*describe(rows))

    if problem.by_classes and (allowed is not None or head):
        violations = of_classes
    elif allowed is not None:
        violations = allowed.violations
    watcher = watcher_now()

    def leading(rows: Tensor, values: Tensor, tried: int) -> None:
        if watcher is not None:
            skipped = len(head) if problem.by_classes else 0
            watcher(Candidates(moves.prompts_of(rows)[:, skipped:], values, tried))

    found = climb(
        moves,
        as_scored,
        scorer,
        violations,
        begin,
        numpy_stream(seed, "climb"),
        settings.keep,
        settings.max_rounds,
        None if report is None else lambda done, most: report("climbing", done, most),
        leading=None if watcher is None else leading,
    )
    if len(found.rows) == 0:
        raise InputError(_nothing(problem))
    counts, first, last = as_scored(found.rows)
    return BestClasses(
        moves.prompts_of(found.rows)[:, len(head) if problem.by_classes else 0 :],
        counts,
        last,
        scorer(counts, first, last),
        StopReason.LOCAL_OPTIMUM if found.finished else StopReason.ROUND_LIMIT,
        None,
        found.n_scored,
        [Step(value, scored, 0, 0, seconds) for value, scored, seconds in found.history],
    )


def narrowed(
    space: ContextSpace,
    wide: ContextSpace,
    counts: Int[Tensor, "K W V"],
    first: Int[Tensor, "K"],
    head: tuple[int, ...] = (),
) -> Int[Tensor, "K C V"]:
    """Counts of the model's order from those of a higher one, whose first context hides some."""
    by_suffix = counts.unflatten(1, (-1, space.n_contexts)).sum(1)
    return by_suffix + transitions_behind(space, head, wide.decode(first))


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
        repeated = torch.tensor(tokens[: problem.length])
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
    if problem.head:  # the rest of the first context stays as drawn
        free = ends.vocab_size ** (ends.order - len(problem.head))
        given = ContextSpace(ends.vocab_size, len(problem.head)).encode(torch.tensor(problem.head))
        first = given * free + first % free
    generator = torch_stream(seed, "class-search-starts")
    steps = len(problem.head) + problem.length - ends.order
    tail = sample_chains(ends, torch.from_numpy(kernels), first, steps, generator)
    drawn = torch.cat([ends.decode(first), tail], -1)[:, len(problem.head) :]
    mask = problem.mask()
    others = torch.multinomial(mask.double(), n, replacement=True, generator=generator).T
    return torch.where(mask[torch.arange(problem.length), drawn], drawn, others)
