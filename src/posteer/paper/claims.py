"""Each statement of the paper's prose on its own figures and on ours, and why they differ.

A check reads means by (model, target, length, method, statistic) and nothing else, so the same code
asks the published tables and our records. Verdicts and reasons come out of that, none is typed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from posteer.paper.agreement import Outside, Why
from posteer.paper.cells import Cells, Key, compatible
from posteer.paper.claim_checks import TIE, Reader
from posteer.paper.claim_list import Claim, claims
from posteer.paper.joint import Joint, Read, Starts, holm, joint_test
from posteer.paper.published import published

FALSE_ALARM = 0.05
"""Of a joint test: below it, adjusted for the number of tests, chance is ruled out; where a single
test is above it unadjusted, chance is allowed as the reason."""


class Standing(StrEnum):
    """What became of a statement."""

    HOLDS = "holds"
    BETTER = "holds, not published"
    NEITHER = "holds in neither"
    CHANCE = "chance"
    SNAPPING = "snapping"
    DIGITS = "last digits"
    CELLS = "cells"
    UNDECIDED = "undecided"
    FAILS = "fails"


@dataclass(frozen=True)
class Verdict:
    """A claim held against the published figures and ours; where only ours say no, the joint test
    of the cells it reads and what else was found."""

    claim: Claim
    published: str
    published_holds: bool
    ours: str
    standing: Standing
    joint: Joint | None = None
    adjusted: float | None = None
    found: Mapping[str, object] = field(default_factory=dict)


def verdicts(
    cells: Cells,
    other_snapping: Cells | None = None,
    odd: Sequence[Outside] = (),
    starts: Starts | None = None,
) -> list[Verdict]:
    """Each claim, where ours has the cells for it."""
    first = [one for claim in claims() if (one := _first(claim, cells, starts)) is not None]
    tested = [one for one in first if one.joint is not None]
    adjusted = holm([one.joint.p for one in tested if one.joint is not None])
    by_name = {
        one.claim.name: _second(replace(one, adjusted=p), cells, other_snapping, odd)
        for one, p in zip(tested, adjusted, strict=True)
    }
    return [by_name.get(one.claim.name, one) for one in first]


def _first(claim: Claim, cells: Cells, starts: Starts | None) -> Verdict | None:
    """Whether it holds, here and there; where here alone it does not, the joint test."""
    theirs_hold, theirs = claim.check(Reader(_published, printed=True))
    try:
        hold, ours = claim.check(reader(cells))
    except KeyError:
        return None
    if hold:
        standing = Standing.HOLDS if theirs_hold else Standing.BETTER
        return Verdict(claim, theirs, theirs_hold, ours, standing)
    if not theirs_hold:
        return Verdict(claim, theirs, theirs_hold, ours, Standing.NEITHER)
    test = joint_test(cells, cells_read(claim), starts, claim.name)
    return Verdict(claim, theirs, theirs_hold, ours, Standing.FAILS, test)


def _second(
    seen: Verdict, cells: Cells, other_snapping: Cells | None, odd: Sequence[Outside]
) -> Verdict:
    """The first of these that is so: chance, by the joint test; the snapping rule; prompts so near
    in J that ranks hang on a trained model's last digits; cells that differ, each for a reason that
    was shown; a joint test that is not decided."""
    assert seen.joint is not None and seen.adjusted is not None
    if seen.joint.p >= FALSE_ALARM:
        return replace(seen, standing=Standing.CHANCE)
    reads = cells_read(seen.claim)
    if other_snapping is not None:
        try:
            hold, figure = seen.claim.check(reader(other_snapping))
            if hold:
                return replace(seen, standing=Standing.SNAPPING, found={"figure": figure})
        except KeyError:
            pass  # that sweep has no such cells
    gap = _largest_gap(cells, [key for key, statistic in reads if statistic == "rank"])
    if gap is not None and gap <= TIE:
        return replace(seen, standing=Standing.DIGITS, found={"gap": gap})
    reasons = {one.pair.key: one.why for one in odd if one.why is not Why.UNEXPLAINED}
    unlike = [key for key, statistic in reads if not _compatible(cells, key, statistic)]
    if unlike and all(key in reasons for key in unlike):
        kinds = sorted({reasons[key].value for key in unlike})
        return replace(seen, standing=Standing.CELLS, found={"cells": len(unlike), "kinds": kinds})
    undecided = seen.adjusted >= FALSE_ALARM
    return replace(seen, standing=Standing.UNDECIDED if undecided else Standing.FAILS)


def reader(cells: Cells) -> Reader:
    """Our means as the checks read them."""

    def read(model: str, target: str, m: int, method: str, statistic: str) -> float:
        figure = cells.figure((model, target, m, method), _kind(statistic))
        if figure is None:
            raise KeyError((model, target, m, method, statistic))
        return figure.value

    return Reader(read, printed=False)


def _published(model: str, target: str, m: int, method: str, statistic: str) -> float:
    return published()[model, target, m, method, statistic].value


def _kind(statistic: str) -> str:
    """A statistic of the published tables as cells have it."""
    return "ess" if statistic.startswith("ess") else statistic


def _compatible(cells: Cells, key: Key, statistic: str) -> bool:
    ours, theirs = cells.figure(key, _kind(statistic)), published()[*key, statistic]
    return ours is not None and compatible(ours, theirs, _kind(statistic))


def _largest_gap(cells: Cells, keys: Sequence[Key]) -> float | None:
    """How far in J any run of some cells is from the best prompt."""
    found = [cells.get(key) for key in keys]
    gaps = [
        row["optimum"] - row["expected_utility"]
        for cell in found
        if cell is not None
        for row in cell.rows
        if row["optimum"] is not None and row["expected_utility"] is not None
    ]
    return max(gaps) if gaps else None


def cells_read(claim: Claim) -> list[Read]:
    """The cells and statistics a check looks at, found by letting it look."""
    seen: dict[Read, None] = {}

    def watch(model: str, target: str, m: int, method: str, statistic: str) -> float:
        seen[(model, target, m, method), statistic] = None
        return _published(model, target, m, method, statistic)

    claim.check(Reader(watch, printed=True))
    return list(seen)
