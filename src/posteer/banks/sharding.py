"""A bank drawn by many processes: each takes a range of rollouts, whoever is last joins them.

Rollout r of a seed is the same rollout in whatever range it is drawn, so the bank is the one that a
single process would draw, to the bit. Ranges are kept as the chunks of any draw: a single process
goes on with what many began, and they with what it began.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from posteer.banks.drawn import LatentBank
from posteer.banks.parts import Parts, Rollouts, chunk_name, chunks_in, folder_of
from posteer.banks.plans import BLOCK, DrawPlan, key_of, rounded
from posteer.banks.rollouts import bank_there, draw_bank, draw_missing
from posteer.core import Progress
from posteer.core.claiming import Claiming
from posteer.core.device import undisturbed
from posteer.core.leases import POLL_SECONDS
from posteer.models.meter import Metered

SHARDS_A_WORKER = 4
"""Ranges for each worker: so many that none waits long for the last."""


def shard_size(plan: DrawPlan, workers: int) -> int:
    """Rollouts of one range, in whole blocks."""
    return rounded(-(-plan.n_samples // (SHARDS_A_WORKER * workers)), BLOCK)


class _Range(Parts):
    """Rollouts from one to another, in memory."""

    def __init__(self, key: str, begin: int, end: int) -> None:
        super().__init__(None, key)
        self.begin, self.end = begin, end

    def missing(self, total: int, size: int) -> Iterator[tuple[int, int]]:
        at = self.begin + self.n_held
        while at < min(self.end, total):
            yield at, min(size, self.end - at)
            at = self.begin + self.n_held

    def joined(self, plan: DrawPlan) -> bytes:
        """All of them as one chunk."""
        lengths = plan.snapshot_lengths
        held = [self.held[at] for at in sorted(self.held)]
        whole = Rollouts.join([tensors for tensors, _, _ in held], lengths).tensors()
        seconds, tokens = sum(one[1] for one in held), sum(one[2] for one in held)
        at = (self.begin, self.end - self.begin)
        self.held = {at: (whole, seconds, tokens)}
        return self.chunk(*at)


@undisturbed()
def draw_together(
    model: Metered,
    plan: DrawPlan,
    out: Path,
    claiming: Claiming,
    size: int,
    begin: int = 0,
    progress: Progress | None = None,
) -> LatentBank:
    """Draw ranges of `size` rollouts beside any others who do, from range `begin` on; returns the
    bank once it is whole, whoever joined it."""
    plan.check(model)
    key = key_of(model.fingerprint, plan)
    while not out.exists() and (gaps := missing(folder_of(out), plan.n_samples, size)):
        gaps = gaps[begin % len(gaps) :] + gaps[: begin % len(gaps)]
        if not any(_draw(model, plan, out, claiming, gap, progress) for gap in gaps):
            time.sleep(POLL_SECONDS)  # the rest is in other hands: they may be killed
    while True:
        with claiming.claim(f"{out.name} whole") as mine:
            if mine:
                return draw_bank(model, plan, out, chunk=size, progress=progress, exclusive=False)
        if (bank := bank_there(model, plan, Parts(out, key, exclusive=False))) is not None:
            return bank
        time.sleep(POLL_SECONDS)


def _draw(
    model: Metered,
    plan: DrawPlan,
    out: Path,
    claiming: Claiming,
    gap: tuple[int, int],
    progress: Progress | None,
) -> bool:
    """Whether this range was ours to draw, and is drawn."""
    (begin, end), folder = gap, folder_of(out)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / chunk_name(begin, end - begin)
    name = f"{folder.name} {target.name}"
    with claiming.claim(name, target) as mine:
        if not mine or out.exists() or any(a < end and begin < b for a, b in chunks_in(folder)):
            return False
        family = plan.check(model)
        drawn = _Range(key_of(model.fingerprint, plan), begin, end)
        draw_missing(model, plan, family, drawn, None, progress)
        with suppress(FileNotFoundError):  # the bank was joined while we were away
            return claiming.publish(name, target, drawn.joined(plan))
    return False


def missing(folder: Path, total: int, size: int) -> list[tuple[int, int]]:
    """Ranges that no chunk holds, cut where ranges of `size` begin."""
    gaps, at = [], 0
    for first, last in [*chunks_in(folder), (total, total)]:
        while at < first:
            end = min(first, (at // size + 1) * size)
            gaps.append((at, end))
            at = end
        at = max(at, last)
    return gaps
