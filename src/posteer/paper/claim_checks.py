"""Ways to check a statement on the means of a table's cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from posteer.paper.published import VARIANTS

Read = Callable[[str, str, int, str, str], float]
"""The mean of a cell's statistic; a cell that is not there raises `KeyError`."""
Check = Callable[[Read], tuple[bool, str]]
"""Whether a statement holds, and the figure that says so."""

COIN, URN = "beta-bernoulli", "urn"
PRINTED = 0.0051
"""Half the last printed digit: figures this near may be printed the same."""


def all_equal(model: str, targets: list[str], m: int, methods: Sequence[str], rank: float) -> Check:
    """No method's mean rank is above `rank` in any cell."""

    def check(read: Read) -> tuple[bool, str]:
        worst = max(read(model, t, m, k, "rank") for t in targets for k in methods)
        return worst <= rank + 0.05, f"worst mean rank {worst:.1f}"

    return check


def same_j(model: str, targets: list[str], m: int, one: str, other: str) -> Check:
    """Two methods' figures differ by no more than printing rounds away."""

    def check(read: Read) -> tuple[bool, str]:
        gap = max(abs(read(model, t, m, one, "J") - read(model, t, m, other, "J")) for t in targets)
        return gap <= 2 * PRINTED, f"largest gap {gap:.3f}"

    return check


def worse(model: str, targets: list[str], m: int, losers: Sequence[str], winner: str) -> Check:
    """Every loser at or below the winner in every cell, and below on average."""

    def check(read: Read) -> tuple[bool, str]:
        gaps = [
            read(model, t, m, winner, "J") - read(model, t, m, k, "J")
            for t in targets
            for k in losers
        ]
        ahead = sum(gap >= -PRINTED for gap in gaps)
        figure = f"{winner} not behind in {ahead} of {len(gaps)} cells, by {fmean(gaps):.2f}"
        return ahead == len(gaps) and fmean(gaps) > 0, figure

    return check


def beat(
    model: str,
    targets: list[str],
    m: int,
    winners: Sequence[str],
    loser: str,
    least: float,
    by: float = PRINTED,
) -> Check:
    """Winners above by so much in at least a share of cells, and above on average."""

    def check(read: Read) -> tuple[bool, str]:
        gaps = [
            read(model, t, m, k, "J") - read(model, t, m, loser, "J")
            for t in targets
            for k in winners
        ]
        won = sum(gap > by for gap in gaps)
        figure = f"above {loser} in {won} of {len(gaps)} cells, by {fmean(gaps):.2f} on average"
        return won >= least * len(gaps) and fmean(gaps) > 0, figure

    return check


def near_zero_gap(model: str, targets: list[str], m: int, one: str, other: str) -> Check:
    """Two methods are level: their gap, averaged over targets, is 0.02 at most."""

    def check(read: Read) -> tuple[bool, str]:
        gap = fmean(read(model, t, m, one, "J") - read(model, t, m, other, "J") for t in targets)
        return abs(gap) <= 0.02, f"{one} minus {other}, mean over targets: {gap:+.3f}"

    return check


def between(
    model: str, targets: list[str], m: int, methods: Sequence[str], of: str, low: float, high: float
) -> Check:
    """Every mean within a printed range, give or take its rounding."""
    slack = 0.5 if of == "rank" else PRINTED

    def check(read: Read) -> tuple[bool, str]:
        values = [read(model, t, m, k, of) for t in targets for k in methods]
        good = low - slack <= min(values) and max(values) <= high + slack
        digits = 1 if of == "rank" else 3
        return good, f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    return check


def most(model: str, targets: list[str], m: int, methods: Sequence[str], rank: float) -> Check:
    """More than half of the cells are at a rank or better."""

    def check(read: Read) -> tuple[bool, str]:
        ranks = [read(model, t, m, k, "rank") for t in targets for k in methods]
        good = sum(value <= rank + 0.05 for value in ranks)
        figure = f"{good} of {len(ranks)} cells at mean rank {rank:g} or better"
        return good > len(ranks) / 2, figure

    return check


def together(model: str, targets: list[str], m: int, methods: Sequence[str], rank: float) -> Check:
    """All methods at a rank, for more than half of the targets."""

    def check(read: Read) -> tuple[bool, str]:
        good = sum(
            all(read(model, t, m, k, "rank") <= rank + 0.05 for k in methods) for t in targets
        )
        return good > len(targets) / 2, f"all methods for {good} of {len(targets)}"

    return check


def ranked_before(
    model: str, targets: list[str], m: int, winners: Sequence[str], loser: str
) -> Check:
    """Every winner's mean rank is below the loser's in every cell."""

    def check(read: Read) -> tuple[bool, str]:
        theirs = [read(model, t, m, loser, "rank") for t in targets]
        ours = [max(read(model, t, m, k, "rank") for k in winners) for t in targets]
        shown = ", ".join(f"{a:.1f} against {b:.1f}" for a, b in zip(ours, theirs, strict=True))
        return all(a < b for a, b in zip(ours, theirs, strict=True)), f"worst rank {shown}"

    return check


def ess_falls(read: Read) -> tuple[bool, str]:
    """The urn's ESS for Dyck falls from 0.22 at m=6 to 0.07 at m=50, give or take 0.02."""
    short = read(URN, "dyck", 6, "ppt-rb", "ess_over_l_mean")
    long = read(URN, "dyck", 50, "ppt-rb", "ess_over_l_mean")
    near = abs(short - 0.22) <= 0.02 and abs(long - 0.07) <= 0.02
    return near, f"{short:.2f} to {long:.2f}"


def inverts(read: Read) -> tuple[bool, str]:
    """On the urn's Dyck at m=50 GCG leads every variant by 0.3."""
    gcg = read(URN, "dyck", 50, "gcg", "J")
    best = max(read(URN, "dyck", 50, k, "J") for k in VARIANTS)
    return gcg - best > 0.3, f"gcg {gcg:.2f}, best variant {best:.2f}"


def gcg_just_misses(read: Read) -> tuple[bool, str]:
    """On the coin's Dyck at m=6 GCG misses rank 1, and J by less than printing shows."""
    rank = read(COIN, "dyck", 6, "gcg", "rank")
    gap = read(COIN, "dyck", 6, "ppt-rb", "J") - read(COIN, "dyck", 6, "gcg", "J")
    behind = rank > 1.05 and abs(gap) <= 1e-4 + PRINTED
    return behind, f"mean rank {rank:.1f}, J behind by {gap:.5f}"


def ppt_close(read: Read) -> tuple[bool, str]:
    """PPT is near its Rao-Blackwellised form."""
    best, single = read(URN, "dyck", 6, "ppt-rb", "J"), read(URN, "dyck", 6, "ppt", "J")
    near = 0 <= best - single <= 0.06 and single >= 0.5
    return near, f"ppt {single:.2f}, ppt-rb {best:.2f}"
