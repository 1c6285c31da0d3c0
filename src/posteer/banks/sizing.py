"""Banks of models whose speed is not known: as large as time, tokens and the model's length allow.

The first block of rollouts is the measurement, and part of the bank. Sizes come from a ladder, so
what was chosen is a round number that can be named: the same sizes draw the same bank again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from posteer.banks.drawn import LatentBank
from posteer.banks.kept import earlier_bank, keep
from posteer.banks.parts import Parts
from posteer.banks.plans import BLOCK, DrawPlan, key_of
from posteer.banks.rollouts import (
    bank_there,
    draw_bank,
    draw_missing,
    going_on,
    kept_bank,
    roll_out,
)
from posteer.core import Progress, require
from posteer.families.markov.family import MarkovFamily
from posteer.families.protocol import Fittable
from posteer.models.meter import Metered
from posteer.models.protocol import Can, Model

SHORTEST_ROLLOUT = 64
"""Tokens a rollout must have to tell latents apart."""

SHORTEST_TUNED = 24
"""The same where the latents are those that predict best: a model that is no filter forgets, and
short rollouts told more of SmolLM2 than long ones (docs/LANGUAGE_MODELS.md)."""

ENOUGH_ROLLOUTS = 1024
"""Rollouts get longer while there is time for so many of them."""

Clock = Callable[[], float]


def is_sized(model: Model, plan: DrawPlan) -> bool:
    """Whether sizes that nobody named are found out: exact Bayes and our own networks are quick
    enough for the paper's."""
    return bool(plan.free) and not (Can.EXACT | Can.NARROW) & model.can


def speaks(model: Model) -> bool:
    """Whether a model is a language model over some of its tokens: nobody takes it for a filter."""
    return Can.SHARES in model.can


def to_tune(model: Model, plan: DrawPlan) -> DrawPlan:
    """The plan for a model that is no declared filter: latents are those that predict it best,
    where they are Markov kernels."""
    if not isinstance(model.family, MarkovFamily) or plan.family:
        return plan
    return replace(plan, tuned=True, keep_tokens=True)


def most_of(model: Model, plan: DrawPlan) -> DrawPlan:
    """The plan with rollouts as long as the model can read, where their length is free."""
    if model.max_length is None or "rollout_length" not in plan.free:
        return plan
    room = model.max_length + 1 - len(plan.context)
    return replace(plan, rollout_length=max(1, min(plan.rollout_length, room)))


def least_of(model: Model, plan: DrawPlan, n_samples: int = BLOCK) -> DrawPlan:
    """The smallest bank that is drawn for a plan with free sizes, or one of so many latents."""
    most = most_of(model, plan)
    fewest = min(n_samples, plan.n_samples) if "n_samples" in plan.free else plan.n_samples
    return replace(most, n_samples=fewest, rollout_length=_lengths(most)[0])


def draw(
    model: Metered,
    plan: DrawPlan,
    out: Path | None = None,
    *,
    tokens: int | None = None,
    chunk: int | None = None,
    progress: Progress | None = None,
    exclusive: bool = True,
) -> LatentBank:
    """The bank of a plan for at most so many model tokens; sizes that nobody named are found out
    where the model's speed is not known, and such a bank is kept for later calls (`banks.kept`).
    `out`, `chunk` and `exclusive` as in `draw_bank`."""
    if is_sized(model, plan):
        found = earlier_bank(model, plan, tokens) if out is None else None
        if found is None:
            found = draw_within(
                model, plan, out, tokens=tokens, chunk=chunk, progress=progress, exclusive=exclusive
            )
            if out is None and tokens is None:  # one that a budget cut short serves no other call
                keep(found, model, plan)
        return found
    whole = most_of(model, plan)
    require_affordable(whole.price(model), tokens)
    return draw_bank(model, whole, out, chunk=chunk, progress=progress, exclusive=exclusive)


def require_affordable(price: int, tokens: int | None) -> None:
    """Refuse a draw that takes more model tokens than there are."""
    require(
        tokens is None or price <= tokens,
        f"drawing a bank takes {price:,} model tokens and the budget is {tokens or 0:,}: give a "
        "bank, or fewer samples",
    )


def draw_within(
    model: Metered,
    plan: DrawPlan,
    out: Path | None = None,
    *,
    tokens: int | None = None,
    chunk: int | None = None,
    progress: Progress | None = None,
    exclusive: bool = True,
    clock: Clock = time.perf_counter,
) -> LatentBank:
    """A bank of the sizes that `plan.seconds` and so many model tokens allow.

    With `out`, what is drawn is kept beside it: the same call goes on after an interruption, with
    what is left of the time, and returns the bank if it is there already.
    """
    whole = most_of(model, plan)
    family = whole.check(model)
    require_affordable(least_of(model, plan).price(model), tokens)
    any_sizes = whole.of_sizes(dict.fromkeys(whole.free, 0))
    parts = Parts(out, key_of(model.fingerprint, any_sizes), exclusive)
    bank = bank_there(model, whole, parts, whole.free)
    if bank is not None:
        return bank
    with going_on(model, whole, parts):
        pace = _Pace(model, whole, parts, tokens, clock)
        if not parts.held:
            pace.draw_first_block(family, progress)
        plan = replace(whole, rollout_length=parts.length or whole.rollout_length)
        while (wanted := pace.next_size(plan)) is not None:
            plan = replace(plan, n_samples=wanted)
            draw_missing(model, plan, family, parts, chunk, progress, clock)
        whole = replace(plan, n_samples=parts.n_held)
        return kept_bank(model, whole, family, parts, out, progress)


@dataclass
class _Pace:
    """How fast a draw goes, and how far it may go on."""

    model: Metered
    whole: DrawPlan
    parts: Parts
    tokens: int | None
    clock: Clock
    times: dict[int, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time for rollouts: half of it where the model is read along histories too."""
        return self.whole.seconds / (2 if self.whole.tuned else 1)

    def draw_first_block(self, family: Fittable, progress: Progress | None) -> None:
        """Rollouts of one block, longer while there is time for enough as long."""
        count, whole = min(BLOCK, self.whole.n_samples), self.whole
        before, started = self.model.queries.forward_tokens, self.clock()

        def report(done: int) -> None:
            if progress is not None:
                progress("measuring speed", done, whole.rollout_length)

        def go_on(done: int) -> bool:
            self.times[done] = self.clock() - started
            if done not in _lengths(whole) or self._may_double(done):
                return True
            self.parts.length = done
            return False

        report(0)
        self.parts.length = whole.rollout_length
        rollouts = roll_out(self.model, whole, family, 0, count, report, go_on)
        spent = self.model.queries.forward_tokens - before
        self.parts.keep(0, count, rollouts, self.clock() - started, spent)

    def _may_double(self, done: int) -> bool:
        """Whether enough rollouts of the next length fit into time and tokens."""
        longer = next(length for length in _lengths(self.whole) if length > done)
        all_of_them = self.whole.n_samples
        enough = (
            min(ENOUGH_ROLLOUTS, all_of_them) if "n_samples" in self.whole.free else all_of_them
        )
        growth = min(max(self.times[done] / max(self.times[done // 2], 1e-9), 2.0), 4.0)
        seconds = self.times[done] * growth * enough / BLOCK
        price = replace(self.whole, n_samples=enough, rollout_length=longer).price(self.model)
        return seconds <= self.seconds and (self.tokens is None or price <= self.tokens)

    def next_size(self, plan: DrawPlan) -> int | None:
        """The next number of rollouts that time and tokens allow; None if there is none."""
        held = self.parts.held
        have = self.parts.n_held
        larger = [size for size in _sizes(self.whole) if size > have]
        if not larger:
            return None
        (_, count), (_, seconds, _) = max(held.items())
        spent = sum(part[1] for part in held.values())
        predicted = spent + (larger[0] - have) * seconds / count
        price = replace(plan, n_samples=larger[0]).price(self.model)
        in_time = "n_samples" not in self.whole.free or predicted <= self.seconds
        return larger[0] if in_time and (self.tokens is None or price <= self.tokens) else None


def _lengths(plan: DrawPlan) -> list[int]:
    """Lengths that rollouts may have, the shortest first."""
    if "rollout_length" not in plan.free:
        return [plan.rollout_length]
    shortest = SHORTEST_TUNED if plan.tuned else SHORTEST_ROLLOUT
    halves = (plan.rollout_length >> times for times in range(plan.rollout_length.bit_length()))
    return sorted({plan.rollout_length, *(n for n in halves if n >= shortest)})


def _sizes(plan: DrawPlan) -> list[int]:
    """Numbers of rollouts that a bank may have, the fewest first."""
    if "n_samples" not in plan.free:
        return [plan.n_samples]
    doubled = (BLOCK << times for times in range(plan.n_samples.bit_length()))
    return sorted({plan.n_samples, *(n for n in doubled if n < plan.n_samples)})
