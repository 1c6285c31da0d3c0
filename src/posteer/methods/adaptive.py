"""Asking the model where that tells most: candidates by corrected laws, a few at a time.

The bank's surrogate is corrected by what the model was read to say (`banks.correction`), and again
by every answer. Each round asks about the prompts that may be best, by their value and its error,
until the budget is spent or no prompt that was looked at can be better by two errors. Errors grow
with how far off the answers were so far (`Surprise`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.methods.corrected import CorrectedValues, readings_of
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import all_sequences
from posteer.tokens.drawing import list_allowed

ALL_PROMPTS = 2**11
"""Prompts up to which all are looked at."""

FEWEST = 128
"""Prompts below which they are not halved from one round to the next."""

ROUNDS = 6
"""Times that the model is asked, each time about as many."""

JUDGED = 64
"""Prompts of the largest values whose errors are worked out."""

ERRORS = 2.0
"""By how many errors no other prompt may be better for asking to stop."""

BEAM, SWEEPS = 6, 4
"""Prompts that a climb on corrected values goes on from, and how often."""

Ask = Callable[[Int[Tensor, "K m"]], tuple[Float[Tensor, "K"], Float[Tensor, "K Y"]]]
"""J of prompts on the model itself, and the laws of their continuations."""


@dataclass(frozen=True, eq=False)
class Answers:
    """All prompts that were asked about, with their J; what no other is expected to exceed."""

    prompts: Int[Tensor, "K m"]
    values: Float[Tensor, "K"]
    rounds: int
    bound: float
    settled: bool


@dataclass(frozen=True)
class Surprise:
    """How many errors answers were off by so far: a root mean square, with a few surprises of two
    errors put before them. Errors are multiplied by it."""

    squares: float = 16.0
    count: int = 4

    @property
    def scale(self) -> float:
        return (self.squares / self.count) ** 0.5

    def after(self, off: Float[Tensor, "K"]) -> Surprise:
        """With further answers, each off by so many unscaled errors."""
        known = off[off.isfinite()]
        return Surprise(self.squares + float((known**2).sum()), self.count + len(known))


@dataclass(frozen=True, eq=False)
class Pool:
    """Prompts that may be asked about: all where they are few, else candidates and what a climb
    from the best of them meets."""

    candidates: Int[Tensor, "K m"]
    vocab_size: int
    allowed: AllowedPrompts | None = None
    kept: Int[Tensor, "P m"] | None = None

    @property
    def is_all(self) -> bool:
        return bool(self.vocab_size ** self.candidates.shape[1] <= ALL_PROMPTS)

    def prompts(
        self, values: CorrectedValues, asked: Int[Tensor, "A m"]
    ) -> tuple[Int[Tensor, "P m"], Float[Tensor, "P"]]:
        """The pool by values, the best first."""
        if self.is_all:
            return _ordered(self._all() if self.kept is None else self.kept, values)
        prompts, value = _ordered(torch.cat([self.candidates, asked]).unique(dim=0), values)
        for _ in range(SWEEPS):
            near = self._near(prompts[:BEAM])
            fresh = near[_absent(near, prompts)]
            if len(fresh) == 0:
                break
            before = float(value[0])
            both = torch.cat([value, values.values(fresh)])
            order = both.argsort(descending=True, stable=True)
            prompts, value = torch.cat([prompts, fresh])[order], both[order]
            if float(value[0]) <= before:
                break
        return prompts, value

    def halved(self, prompts: Int[Tensor, "P m"]) -> Pool:
        """With the better half of its prompts, which are in order."""
        return replace(self, kept=prompts[: max(FEWEST, len(prompts) // 2)])

    def _all(self) -> Int[Tensor, "P m"]:
        length = self.candidates.shape[1]
        if self.allowed is not None:
            return list_allowed(self.allowed, length)
        return all_sequences(self.vocab_size, length)

    def _near(self, prompts: Int[Tensor, "K m"]) -> Int[Tensor, "N m"]:
        """Prompts with one token other, or two neighbours exchanged, that are allowed."""
        found = []
        for place in range(prompts.shape[1]):
            for token in range(self.vocab_size):
                other = prompts.clone()
                other[:, place] = token
                found.append(other)
            if place:
                swapped = prompts.clone()
                swapped[:, [place - 1, place]] = prompts[:, [place, place - 1]]
                found.append(swapped)
        near = torch.cat(found).unique(dim=0)
        return near if self.allowed is None else near[self.allowed.allows(near)]


def ask_adaptively(
    values: CorrectedValues, pool: Pool, ask: Ask, affordable: Callable[[], int], most: int
) -> Answers:
    """The answers to at most so many questions; `affordable` says how many the budget has left."""
    length = pool.candidates.shape[1]
    asked = torch.zeros(0, length, dtype=torch.long)
    found = torch.zeros(0, dtype=torch.float64)
    rounds, bound, settled, surprise = 0, torch.inf, False, Surprise()
    each = max(1, -(-most // ROUNDS))
    while (room := min(each, most - len(asked), affordable())) > 0:
        prompts, value = pool.prompts(values, asked)
        pool, new = pool.halved(prompts), _absent(prompts, asked)
        prompts, value = prompts[new][:JUDGED], value[new][:JUDGED]
        if len(prompts) == 0:
            settled, bound = pool.is_all, -torch.inf
            break
        error = surprise.scale * values.errors(prompts)
        bound = float((value + ERRORS * error).max())
        settled = len(found) > 0 and bound <= float(found.max())
        if settled:
            break
        first = (value + error).argsort(descending=True, stable=True)[:room]
        chosen = prompts[first]
        own, laws = ask(chosen)
        surprise = surprise.after((own.double() - value[first]) * surprise.scale / error[first])
        asked, found = torch.cat([asked, chosen]), torch.cat([found, own.double()])
        vocab, horizon = pool.vocab_size, values.horizon
        values = values.with_more(readings_of(chosen, laws, vocab, horizon))
        rounds += 1
    return Answers(asked, found, rounds, bound, settled)


def _ordered(
    prompts: Int[Tensor, "P m"], values: CorrectedValues
) -> tuple[Int[Tensor, "P m"], Float[Tensor, "P"]]:
    value = values.values(prompts)
    order = value.argsort(descending=True, stable=True)
    return prompts[order], value[order]


def _absent(prompts: Int[Tensor, "P m"], among: Int[Tensor, "A m"]) -> Tensor:
    """Which prompts are not among others."""
    known = {tuple(row) for row in among.tolist()}
    return torch.tensor([tuple(row) not in known for row in prompts.tolist()], dtype=torch.bool)
