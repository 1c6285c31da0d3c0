"""Ways to check a statement on the means of a table's cells.

A check is as strict as what is said. What a table rounds away is granted to its own figures alone:
ours have all their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from posteer.paper.cells import ROUNDING
from posteer.paper.published import VARIANTS

COIN, URN = "beta-bernoulli", "urn"
TIE = 1e-3
"""The paper's own: figures of J this near are equally bold."""
ROUGHLY = 0.25
"""Methods are roughly level whose means differ by no more than this share of them."""


@dataclass(frozen=True)
class Reader:
    """Means of cells by (model, target, length, method, statistic); one that is not there raises
    `KeyError`. Printed ones are known to half their last digit."""

    read: Callable[[str, str, int, str, str], float]
    printed: bool

    def __call__(self, model: str, target: str, m: int, method: str, statistic: str) -> float:
        return self.read(model, target, m, method, statistic)

    def slack(self, statistic: str, figures: int = 1) -> float:
        """By how much so many printed figures may mislead; not at all if they are not printed."""
        kind = "ess" if statistic.startswith("ess") else statistic
        return figures * 0.501 * ROUNDING[kind] if self.printed else 0.0


Check = Callable[[Reader], tuple[bool, str]]
"""Whether a statement holds, and the figure that says so."""


def all_equal(model: str, targets: list[str], m: int, methods: Sequence[str], rank: float) -> Check:
    """No method's mean rank is above `rank` in any cell."""

    def check(read: Reader) -> tuple[bool, str]:
        worst = max(read(model, t, m, k, "rank") for t in targets for k in methods)
        return worst <= rank + read.slack("rank"), f"worst mean rank {worst:.1f}"

    return check


def same_j(model: str, targets: list[str], m: int, methods: Sequence[str]) -> Check:
    """Methods are within a tie of each other in every cell."""

    def check(read: Reader) -> tuple[bool, str]:
        gap = 0.0
        for t in targets:
            values = [read(model, t, m, k, "J") for k in methods]
            gap = max(gap, max(values) - min(values))
        return gap <= TIE + read.slack("J", 2), f"largest gap {gap:.4f}"

    return check


def behind(
    model: str, targets: list[str], m: int, losers: Sequence[str], winner: str, by: float = 0.0
) -> Check:
    """Every loser below the winner in every cell; printed figures must not say otherwise, and some
    must say so."""

    def check(read: Reader) -> tuple[bool, str]:
        gaps = [
            read(model, t, m, winner, "J") - read(model, t, m, k, "J")
            for t in targets
            for k in losers
        ]
        ahead = sum(gap > by for gap in gaps)
        against = sum(gap <= by - read.slack("J", 2) for gap in gaps)
        figure = f"{winner} above in {ahead} of {len(gaps)} cells, by {fmean(gaps):.3f} on average"
        return against == 0 and ahead > 0, figure

    return check


def not_behind(
    model: str, targets: list[str], lengths: Sequence[int], losers: Sequence[str], winner: str
) -> Check:
    """No loser is above the winner by more than a tie, in any cell."""

    def check(read: Reader) -> tuple[bool, str]:
        gaps = [
            read(model, t, m, k, "J") - read(model, t, m, winner, "J")
            for m in lengths
            for t in targets
            for k in losers
        ]
        good = sum(gap <= TIE + read.slack("J", 2) for gap in gaps)
        figure = (
            f"{winner} level or above in {good} of {len(gaps)} cells, at worst {-max(gaps):.4f}"
        )
        return good == len(gaps), figure

    return check


def beat(
    model: str,
    targets: list[str],
    m: int,
    winners: Sequence[str],
    loser: str,
    least: float,
    by: float = 0.0,
) -> Check:
    """Winners above by so much in at least a share of cells."""

    def check(read: Reader) -> tuple[bool, str]:
        gaps = [
            read(model, t, m, k, "J") - read(model, t, m, loser, "J")
            for t in targets
            for k in winners
        ]
        won = sum(gap > by - read.slack("J", 2) for gap in gaps)
        figure = f"above {loser} in {won} of {len(gaps)} cells, by {fmean(gaps):.2f} on average"
        return won >= least * len(gaps), figure

    return check


def ahead_on_average(
    model: str, groups: Sequence[list[str]], m: int, winners: Sequence[str], loser: str, by: float
) -> Check:
    """Every winner's mean over every group of targets is above the loser's by so much."""

    def check(read: Reader) -> tuple[bool, str]:
        gaps = [
            fmean(read(model, t, m, k, "J") - read(model, t, m, loser, "J") for t in targets)
            for targets in groups
            for k in winners
        ]
        won = sum(gap > by for gap in gaps)
        figure = f"above {loser} in {won} of {len(gaps)} means, least by {min(gaps):+.3f}"
        return won == len(gaps), figure

    return check


def roughly_level(model: str, targets: list[str], m: int, one: str, other: str) -> Check:
    """The means over targets differ by no more than a quarter of the larger."""

    def check(read: Reader) -> tuple[bool, str]:
        first = fmean(read(model, t, m, one, "J") for t in targets)
        second = fmean(read(model, t, m, other, "J") for t in targets)
        share = abs(first - second) / (max(abs(first), abs(second)) or 1.0)
        figure = f"{one} {first:.3f}, {other} {second:.3f}: {share:.0%} apart"
        return share <= ROUGHLY, figure

    return check


def between(
    model: str,
    targets: list[str],
    m: int,
    methods: Sequence[str],
    of: str,
    low: float,
    high: float,
    digit: float,
) -> Check:
    """Every mean within a range that is said to such a digit."""

    def check(read: Reader) -> tuple[bool, str]:
        values = [read(model, t, m, k, of) for t in targets for k in methods]
        slack = digit / 2 + read.slack(of)
        good = low - slack <= min(values) and max(values) <= high + slack
        digits = 1 if of == "rank" else 3
        return good, f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    return check


def most(model: str, targets: list[str], m: int, methods: Sequence[str], rank: float) -> Check:
    """More than half of the cells are at a rank or better."""

    def check(read: Reader) -> tuple[bool, str]:
        ranks = [read(model, t, m, k, "rank") for t in targets for k in methods]
        good = sum(value <= rank + read.slack("rank") for value in ranks)
        figure = f"{good} of {len(ranks)} cells at mean rank {rank:g} or better"
        return good > len(ranks) / 2, figure

    return check


def together(model: str, targets: list[str], m: int, methods: Sequence[str], rank: float) -> Check:
    """All methods at a rank, for more than half of the targets."""

    def check(read: Reader) -> tuple[bool, str]:
        near = rank + read.slack("rank")
        good = sum(all(read(model, t, m, k, "rank") <= near for k in methods) for t in targets)
        return good > len(targets) / 2, f"all methods for {good} of {len(targets)}"

    return check


def ranked_before(
    model: str, targets: list[str], m: int, winners: Sequence[str], loser: str
) -> Check:
    """Every winner's mean rank is below the loser's in every cell."""

    def check(read: Reader) -> tuple[bool, str]:
        theirs = [read(model, t, m, loser, "rank") for t in targets]
        ours = [max(read(model, t, m, k, "rank") for k in winners) for t in targets]
        shown = ", ".join(f"{a:.1f} against {b:.1f}" for a, b in zip(ours, theirs, strict=True))
        return all(a < b for a, b in zip(ours, theirs, strict=True)), f"worst rank {shown}"

    return check


def alone_at_the_top(model: str, target: str, m: int, winner: str, others: Sequence[str]) -> Check:
    """The winner is at rank 1 on every seed, and no other method is."""

    def check(read: Reader) -> tuple[bool, str]:
        own = read(model, target, m, winner, "rank")
        best = min(read(model, target, m, k, "rank") for k in others)
        alone = own <= 1 + read.slack("rank") < best
        return alone, f"{winner} {own:.1f}, best of the others {best:.1f}"

    return check


def ess_falls(read: Reader) -> tuple[bool, str]:
    """The urn's ESS for Dyck falls from 0.22 at m=6 to 0.07 at m=50, to the digits said."""
    short = read(URN, "dyck", 6, "ppt-rb", "ess_over_l_mean")
    long = read(URN, "dyck", 50, "ppt-rb", "ess_over_l_mean")
    near = 0.005 + read.slack("ess")
    return abs(short - 0.22) <= near and abs(long - 0.07) <= near, f"{short:.3f} to {long:.3f}"


def inverts(read: Reader) -> tuple[bool, str]:
    """On the urn's Dyck at m=50 GCG leads every variant by 0.3."""
    gcg = read(URN, "dyck", 50, "gcg", "J")
    best = max(read(URN, "dyck", 50, k, "J") for k in VARIANTS)
    return gcg - best > 0.3, f"gcg {gcg:.2f}, best variant {best:.2f}"


def gcg_just_misses(read: Reader) -> tuple[bool, str]:
    """On the coin's Dyck at m=6 GCG misses rank 1, and J by at most 1e-4."""
    rank = read(COIN, "dyck", 6, "gcg", "rank")
    gap = read(COIN, "dyck", 6, "ppt-rb", "J") - read(COIN, "dyck", 6, "gcg", "J")
    misses = rank > 1 + read.slack("rank") and gap <= 1e-4 + read.slack("J", 2)
    return misses, f"mean rank {rank:.1f}, J behind by {gap:.5f}"


def ppt_close(read: Reader) -> tuple[bool, str]:
    """PPT is behind PPT-RB by no more than 0.54 is behind 0.59, as those are rounded."""
    best, single = read(URN, "dyck", 6, "ppt-rb", "J"), read(URN, "dyck", 6, "ppt", "J")
    near = 0 < best - single <= 0.06 and abs(best - 0.59) <= 0.02
    return near, f"ppt {single:.2f}, ppt-rb {best:.2f}"
