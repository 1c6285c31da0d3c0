"""The best prompts for any score of prompts: all of them where they are few, else by climbing.

Beams grown from either end, prompts that repeat a short word, random ones and those given are the
starts. Each climbs by single changes; the best ends go on to the larger kinds of prompt_moves.py,
until no move of any kind that is tried improves them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, InputError, Int, Progress
from posteer.core.limits import LISTED_PROMPTS, MOST_OF_ANY
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.spec import within
from posteer.families.markov.kernels import sample_chains
from posteer.methods.answers import Step
from posteer.methods.climbing.climb import (
    AT_ONCE,
    Description,
    Known,
    Neighbourhood,
    best_of_each,
    better,
    first_of_equal,
)
from posteer.methods.climbing.prompt_moves import kinds_of_moves
from posteer.methods.scorers.protocol import HardScores
from posteer.methods.watching import Candidates, watcher_now
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace, all_sequences
from posteer.tokens.drawing import draw_allowed, list_allowed

Score = Callable[[Int[Tensor, "K m"]], Float[Tensor, "K"]]
"""The value of prompts of one length, larger is better; `-inf` for those that cannot be."""

MOST_WORDS = 4096
"""Words that are tried as what a prompt repeats."""

FINALISTS = 4
"""Ends of a climb by single changes that go on to larger kinds of moves."""


@dataclass(frozen=True, kw_only=True)
class PromptSearchSettings:
    """`keep` best prompts are returned; up to `limit` of them are tried one and all. Past it beams
    of `width`, `restarts` repetitive and as many random prompts are climbed from for at most
    `max_rounds` rounds, or until `seconds` have passed."""

    keep: int = 10
    limit: int = LISTED_PROMPTS
    width: int = 64
    restarts: int = 8
    max_rounds: int = 1000
    seconds: float = math.inf

    def __post_init__(self) -> None:
        within(self.keep, "keep", 1, MOST_OF_ANY)
        within(self.limit, "limit", 0, 1000 * MOST_OF_ANY)
        within(self.width, "width", 1, MOST_OF_ANY)
        within(self.restarts, "restarts", 1, MOST_OF_ANY)
        within(self.max_rounds, "rounds", 1, MOST_OF_ANY)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best prompts, best first. `complete`: every prompt was tried; `finished`: else no move
    improves the best; `interrupted`: somebody would not wait. `n_scored` counts whole prompts, each
    once."""

    prompts: Int[Tensor, "K m"]
    values: Float[Tensor, "K"]
    n_scored: int
    complete: bool
    finished: bool
    interrupted: bool = False
    history: list[Step] = field(default_factory=list, repr=False)


def search_prompts(
    score: Score,
    vocab_size: int,
    length: int,
    allowed: AllowedPrompts | None,
    settings: PromptSearchSettings,
    seed: int = 0,
    progress: Progress | None = None,
    starts: Int[Tensor, "R m"] | None = None,
    shortest: int = 1,
) -> SearchResult:
    """The best prompts by a score, which must also be able to say the value of prompts of fewer
    tokens, from `shortest` on: beams are grown by it."""
    if vocab_size**length <= settings.limit:
        return _all_prompts(score, vocab_size, length, allowed, settings.keep)
    search = _Search(score, vocab_size, length, allowed, settings, seed, progress)
    try:
        found = search.climb(search.starts(starts, min(max(shortest, 1), length)))
    except KeyboardInterrupt:
        if not search.known.values:
            raise
        found = replace(search.best(), interrupted=True)
    if len(found.prompts) == 0:
        raise InputError(_nothing(allowed, length))
    return found


def _nothing(allowed: AllowedPrompts | None, length: int) -> str:
    if allowed is None:
        return f"no prompt of {length} tokens was found that any latent can emit"
    return f"no allowed prompt of {length} tokens was found"


def _all_prompts(
    score: Score, vocab_size: int, length: int, allowed: AllowedPrompts | None, keep: int
) -> SearchResult:
    started = time.perf_counter()
    if allowed is None:
        prompts = all_sequences(vocab_size, length)
    else:
        prompts = list_allowed(allowed, length)
    values = score(prompts)
    best = values.argsort(descending=True, stable=True)[:keep]
    best = best[values[best] > -torch.inf]
    if len(best) == 0:
        raise InputError(_nothing(None, length))
    watcher = watcher_now()
    if watcher is not None:
        watcher(Candidates(prompts[best], values[best], len(prompts)))
    seconds = time.perf_counter() - started
    history = [Step(float(values[best[0]]), len(prompts), 0, 0, seconds)]
    return SearchResult(prompts[best], values[best], len(prompts), True, True, history=history)


class _Search:
    """One search that cannot try everything: its starts, what it knows, its climb."""

    def __init__(
        self,
        score: Score,
        vocab: int,
        length: int,
        allowed: AllowedPrompts | None,
        settings: PromptSearchSettings,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.score, self.vocab, self.length, self.allowed = score, vocab, length, allowed
        self.settings, self.seed, self.progress = settings, seed, progress
        whole = torch.ones(length, vocab, dtype=torch.bool)
        self.mask = whole if allowed is None else allowed.token_mask(length)
        self.started = time.perf_counter()
        self.known = Known(
            _by_itself,
            lambda counts, first, last: _scores(score(counts[..., 0])),
            None if allowed is None else allowed.violations,
            settings.keep,
        )

    # --- starts -----------------------------------------------------------------------------------

    def starts(self, given: Int[Tensor, "R m"] | None, shortest: int) -> Int[Tensor, "K m"]:
        n = self.settings.restarts
        parts = [self._best(self._repeated(), n), self._random(n)]
        for backwards in (False, True):
            parts.append(self._best(self._beam(shortest, backwards), n))
        if given is not None:
            parts.append(given)
        return torch.cat(parts).unique(dim=0)

    def _best(self, prompts: Int[Tensor, "K m"], n: int) -> Int[Tensor, "k m"]:
        standing = self.known.standing(prompts).numpy()
        return prompts[torch.from_numpy(np.lexsort((-standing[:, 1], -standing[:, 0])))][:n]

    def _fitted(
        self, prompts: Int[Tensor, "K m"], others: Int[Tensor, "K m"]
    ) -> Int[Tensor, "K m"]:
        """Prompts with tokens of others where their own may not stand."""
        return torch.where(self.mask[torch.arange(self.length), prompts], prompts, others)

    def _repeated(self) -> Int[Tensor, "K m"]:
        """Prompts that repeat a word: all words of each length that are few enough."""
        words, period = [], 1
        while self.vocab**period <= MOST_WORDS and period <= self.length:
            copies = -(-self.length // period)
            words.append(all_sequences(self.vocab, period).repeat(1, copies)[:, : self.length])
            period += 1
        if not words:
            return torch.zeros(0, self.length, dtype=torch.long)
        every = torch.cat(words).unique(dim=0)
        return self._fitted(every, self._random(1).expand_as(every))

    def _random(self, n: int) -> Int[Tensor, "n m"]:
        """Draws from random kernels, which differ more than uniform tokens; allowed ones alike."""
        generator = torch_stream(self.seed, "prompt-search-starts")
        if self.allowed is not None:
            return draw_allowed(self.allowed, self.length, n, generator)
        space = ContextSpace(self.vocab, 1)
        stream = numpy_stream(self.seed, "prompt-search-starts")
        kernels = stream.dirichlet(np.full(self.vocab, 0.5), size=(n, self.vocab))
        first = torch.from_numpy(stream.integers(0, self.vocab, size=n))
        rest = sample_chains(space, torch.from_numpy(kernels), first, self.length - 1, generator)
        return torch.cat([first[:, None], rest], 1)

    def _beam(self, shortest: int, backwards: bool) -> Int[Tensor, "K m"]:
        """The best prompts of each length grown by a token, at their end or before their start."""
        beam = self._beginnings(shortest - 1, backwards)
        for length in range(shortest, self.length + 1):
            mask = self.mask[self.length - length] if backwards else self.mask[length - 1]
            wider = _extended(beam, mask.nonzero()[:, 0], backwards)
            if not backwards:
                wider = self._may_begin(wider)
            if self.progress is not None:
                done = length + self.length * backwards
                self.progress("beam search", done, 2 * self.length)
            if length == self.length:
                return wider
            width = 1 if self._late() else self.settings.width
            if len(wider) > width:
                values = self.score(wider)
                wider = wider[values.argsort(descending=True, stable=True)[:width]]
            beam = wider
        return beam

    def _beginnings(self, length: int, backwards: bool) -> Int[Tensor, "K t"]:
        """Tokens before any has a value: all rows of them, or of whole prompts at random."""
        part = slice(self.length - length, None) if backwards else slice(length)
        if self.vocab**length <= self.settings.width:
            every = all_sequences(self.vocab, length)
            return every[self.mask[part][torch.arange(length), every].all(-1)]
        return self._random(self.settings.width)[:, part].unique(dim=0)

    def _may_begin(self, beam: Int[Tensor, "K t"]) -> Int[Tensor, "k t"]:
        if self.allowed is None:
            return beam
        kept = beam[self.allowed.may_begin(beam, self.length)]
        if len(kept):
            return kept
        # a dead end of what is allowed: begin again from whole prompts
        return self._random(self.settings.width)[:, : beam.shape[1]].unique(dim=0)

    # --- climb ------------------------------------------------------------------------------------

    def climb(self, current: Int[Tensor, "R m"]) -> SearchResult:
        """Each row by its own kind of moves: the next one once a kind gives nothing, the first
        again where one did. Rows with small kinds go first, and of their ends the best go on."""
        kinds = kinds_of_moves(self.mask, numpy_stream(self.seed, "prompt-moves"))
        standing = self.known.standing(current)
        at = torch.zeros(len(current), dtype=torch.long)
        history: list[Step] = []
        self._record(history, len(self.known.values))
        most = self.settings.max_rounds
        for done in range(1, most + 1):
            kind = int(at.min())
            if kind == len(kinds) or self._late():
                break
            if kind > 0 and len(current) > FINALISTS:
                order = np.lexsort((-standing[:, 1].numpy(), -standing[:, 0].numpy()))
                kept = torch.from_numpy(order[:FINALISTS])
                current, standing, at = current[kept], standing[kept], at[kept]
                continue
            before = len(self.known.values)
            rows = (at == kind).nonzero()[:, 0]
            near, reached, owners = self._best_neighbours(kinds[kind], current[rows])
            up = better(reached, standing[rows[owners]])
            at[rows] += 1
            moved = rows[owners[up]]
            current[moved], standing[moved], at[moved] = near[up], reached[up], 0
            kept = first_of_equal(current)
            current, standing, at = current[kept], standing[kept], at[kept]
            self._record(history, len(self.known.values) - before)
            if self.progress is not None:
                self.progress("climbing", done, most)
        finished = bool((at == len(kinds)).all())
        return replace(self.best(), finished=finished, history=history)

    def best(self) -> SearchResult:
        """What is known by now."""
        prompts, values = self.known.top(self.length)
        return SearchResult(prompts, values, len(self.known.values), False, False)

    def _late(self) -> bool:
        return time.perf_counter() - self.started > self.settings.seconds

    def _best_neighbours(
        self, kind: Neighbourhood, rows: Int[Tensor, "K m"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of each row the best neighbour, its standing and whose it is."""
        parts = []
        for moves in torch.arange(kind.size).split(max(1, AT_ONCE // rows.numel())):
            near, owners = kind(rows, moves)
            reached = self.known.standing(near)
            best = best_of_each(reached, owners)
            parts.append((near[best], reached[best], owners[best]))
        near, reached, owners = (torch.cat(some) for some in zip(*parts, strict=True))
        best = best_of_each(reached, owners)
        return near[best], reached[best], owners[best]

    def _record(self, history: list[Step], scored: int) -> None:
        seconds = time.perf_counter() - self.started
        history.append(Step(self.known.best, scored, 0, 0, seconds))
        watcher = watcher_now()
        if watcher is not None:
            watcher(Candidates(*self.known.top(self.length), len(self.known.values)))


def _by_itself(rows: Int[Tensor, "K m"]) -> Description:
    """Prompts as climb.py describes what it holds: their tokens stand for counts."""
    none = torch.zeros(len(rows), dtype=torch.long)
    return rows[..., None], none, none


def _scores(values: Float[Tensor, "K"]) -> HardScores:
    return HardScores.of(values, torch.full_like(values, torch.nan))


def _extended(
    beam: Int[Tensor, "K t"], tokens: Int[Tensor, "n"], backwards: bool
) -> Int[Tensor, "Kn t1"]:
    more = tokens.repeat(len(beam))[:, None]
    old = beam.repeat_interleave(len(tokens), 0)
    return torch.cat([more, old] if backwards else [old, more], 1)
