"""What the paper says in prose, each statement as a check on figures: on its own and on ours.

A check reads means by (model, target, length, method, statistic) and nothing else, so the same code
asks the published tables and our records. Verdicts and reasons come out of that, none is typed in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from posteer.paper.agreement import Outside
from posteer.paper.cells import Cells, Key, agrees, spread
from posteer.paper.claim_checks import (
    COIN,
    PRINTED,
    URN,
    Check,
    Read,
    all_equal,
    beat,
    between,
    ess_falls,
    gcg_just_misses,
    inverts,
    most,
    near_zero_gap,
    ppt_close,
    ranked_before,
    same_j,
    together,
    worse,
)
from posteer.paper.published import FREQUENCIES, METHODS, TARGETS, VARIANTS, published

TAUS = [t for t in TARGETS[COIN] if t.startswith("tau-")]
KERNELS = [t for t in TARGETS[URN] if t.startswith(("sym-", "dir-"))]


@dataclass(frozen=True)
class Claim:
    """A statement, the table it rests on, how it is checked, and what was read."""

    name: str
    statement: str
    table: str
    check: Check


@dataclass(frozen=True)
class Verdict:
    """A claim held against the published figures and ours."""

    claim: Claim
    published: str
    published_holds: bool
    ours: str
    verdict: str


EXTREMES = ["q-0.0", "q-0.1", "q-0.2", "q-0.8", "q-0.9", "q-1.0"]
MIDDLE = ["q-0.4", "q-0.5", "q-0.6"]


def claims() -> list[Claim]:
    """In the order of the paper's appendix, each in our words."""
    return [
        Claim(
            "coin-xent-6",
            "All five methods find the best prompt for every tau (coin, m=6)",
            "rev-xent-bb-rank",
            all_equal(COIN, TAUS, 6, METHODS, 1.0),
        ),
        Claim(
            "coin-xent-50-even",
            "GCG and PPT-RB are level for every tau (coin, m=50)",
            "rev-xent-bb",
            same_j(COIN, TAUS, 50, "gcg", "ppt-rb"),
        ),
        Claim(
            "coin-xent-50-ppt",
            "PPT without exact means is behind PPT-RB for every tau (coin, m=50)",
            "rev-xent-bb",
            worse(COIN, TAUS, 50, ("ppt",), "ppt-rb"),
        ),
        Claim(
            "urn-xent-6",
            "Every PPT variant is above GCG on every target (urn, m=6)",
            "rev-xent-urn",
            beat(URN, KERNELS, 6, VARIANTS, "gcg", 1.0),
        ),
        Claim(
            "urn-xent-50",
            "PPT variants are above GCG by 0.1 or more in most cells (urn, m=50)",
            "rev-xent-urn",
            beat(URN, KERNELS, 50, VARIANTS, "gcg", 0.6, 0.1),
        ),
        Claim(
            "urn-xent-rank",
            "PPT variants are at rank 1 to 3 in most cells (urn, m=6)",
            "rev-xent-urn-rank",
            most(URN, KERNELS, 6, VARIANTS, 3.0),
        ),
        Claim(
            "urn-xent-gcg",
            "GCG is at mean rank 5 to 16 (urn, m=6)",
            "rev-xent-urn-rank",
            between(URN, KERNELS, 6, ("gcg",), "rank", 5.0, 16.0),
        ),
        Claim(
            "coin-freq-6",
            "All methods are at rank 1 for most frequencies (coin, m=6)",
            "freq-match-rank",
            together(COIN, FREQUENCIES, 6, METHODS, 1.0),
        ),
        Claim(
            "coin-freq-6-high",
            "At q=0.6 and 0.7 PPT variants are at rank 6 to 11 (coin, m=6)",
            "freq-match-rank",
            between(COIN, ["q-0.6", "q-0.7"], 6, VARIANTS, "rank", 6.0, 11.0),
        ),
        Claim(
            "coin-freq-6-high-gcg",
            "At q=0.6 and 0.7 GCG is at rank 1 to 4 (coin, m=6)",
            "freq-match-rank",
            between(COIN, ["q-0.6", "q-0.7"], 6, ("gcg",), "rank", 1.0, 4.0),
        ),
        Claim(
            "coin-freq-6-low",
            "At q=0.3 and 0.4 it is GCG that ranks behind (coin, m=6)",
            "freq-match-rank",
            ranked_before(COIN, ["q-0.3", "q-0.4"], 6, VARIANTS, "gcg"),
        ),
        Claim(
            "coin-freq-50",
            "No PPT variant is printed nearer to zero than GCG in any cell (coin, m=50)",
            "freq-match-summary",
            worse(COIN, FREQUENCIES, 50, VARIANTS, "gcg"),
        ),
        Claim(
            "urn-freq-6",
            "PPT variants are at rank 1 to 4 at the extreme frequencies (urn, m=6)",
            "freq-match-rank",
            between(URN, EXTREMES, 6, VARIANTS, "rank", 1.0, 4.0),
        ),
        Claim(
            "urn-freq-6-gcg",
            "GCG is at rank 15 to 18 at the extreme frequencies (urn, m=6)",
            "freq-match-rank",
            between(URN, EXTREMES, 6, ("gcg",), "rank", 15.0, 18.0),
        ),
        Claim(
            "urn-freq-6-middle",
            "At q=0.4 to 0.6 PPT-RB and GCG are level on average (urn, m=6)",
            "freq-match-summary",
            near_zero_gap(URN, MIDDLE, 6, "ppt-rb", "gcg"),
        ),
        Claim(
            "urn-freq-6-hard",
            "At q=0.7 no method is near the best prompt: rank 8 or worse (urn, m=6)",
            "freq-match-rank",
            between(URN, ["q-0.7"], 6, METHODS, "rank", 8.0, 64.0),
        ),
        Claim(
            "urn-freq-50",
            "PPT-RB and GCG are level on average over frequencies (urn, m=50)",
            "freq-match-summary",
            near_zero_gap(URN, FREQUENCIES, 50, "ppt-rb", "gcg"),
        ),
        Claim(
            "urn-freq-50-ppt",
            "PPT without exact means is nowhere printed above PPT-RB (urn, m=50)",
            "freq-match-summary",
            worse(URN, FREQUENCIES, 50, ("ppt",), "ppt-rb"),
        ),
        Claim(
            "coin-dyck-6",
            "All PPT variants find the best prompt for Dyck on every seed (coin, m=6)",
            "dyck-rank",
            all_equal(COIN, ["dyck"], 6, VARIANTS, 1.0),
        ),
        Claim(
            "coin-dyck-6-gcg",
            "GCG ranks behind there, by next to nothing in J (coin, m=6)",
            "dyck-rank",
            gcg_just_misses,
        ),
        Claim(
            "coin-dyck-50",
            "All methods reach 0.12 for Dyck (coin, m=50)",
            "dyck-summary-table",
            between(COIN, ["dyck"], 50, METHODS, "J", 0.12, 0.12),
        ),
        Claim(
            "urn-dyck-6",
            "PPT-RB finds the best prompt for Dyck on every seed (urn, m=6)",
            "dyck-rank",
            all_equal(URN, ["dyck"], 6, ("ppt-rb",), 1.0),
        ),
        Claim(
            "urn-dyck-6-ppt",
            "PPT is close behind PPT-RB for Dyck (urn, m=6)",
            "dyck-summary-table",
            ppt_close,
        ),
        Claim(
            "urn-dyck-6-rest",
            "The analytic variants and GCG reach 0.29 to 0.38 for Dyck (urn, m=6)",
            "dyck-summary-table",
            between(URN, ["dyck"], 6, ("gcg", "ppt-analytic", "ppt-rb-analytic"), "J", 0.29, 0.38),
        ),
        Claim(
            "urn-dyck-50",
            "GCG leaves all PPT variants far behind for Dyck (urn, m=50)",
            "dyck-summary-table",
            inverts,
        ),
        Claim(
            "urn-dyck-50-gcg",
            "GCG reaches 0.61 for Dyck (urn, m=50)",
            "dyck-summary-table",
            between(URN, ["dyck"], 50, ("gcg",), "J", 0.56, 0.66),
        ),
        Claim(
            "urn-dyck-50-ppt",
            "The PPT variants reach 0.014 to 0.021 for Dyck (urn, m=50)",
            "dyck-summary-table",
            between(URN, ["dyck"], 50, VARIANTS, "J", 0.014, 0.021),
        ),
        Claim(
            "urn-dyck-ess",
            "ESS/L of PPT-RB for Dyck falls from 0.22 at m=6 to 0.07 at m=50 (urn)",
            "ess-k1-m50",
            ess_falls,
        ),
    ]


def reader(cells: Cells) -> Read:
    """Our means as the checks read them."""

    def read(model: str, target: str, m: int, method: str, statistic: str) -> float:
        figure = cells.figure((model, target, m, method), _kind(statistic))
        if figure is None:
            raise KeyError((model, target, m, method, statistic))
        return figure.value

    return read


def _published(model: str, target: str, m: int, method: str, statistic: str) -> float:
    return published()[model, target, m, method, statistic].value


def verdicts(
    cells: Cells, other_snapping: Cells | None = None, odd: Sequence[Outside] = ()
) -> list[Verdict]:
    """Each claim on the published figures and on ours, where ours has the cells for it. Where only
    ours says no, reasons are tried in turn (`_because`)."""
    found = []
    for claim in claims():
        theirs_hold, theirs = claim.check(_published)
        try:
            hold, ours = claim.check(reader(cells))
        except KeyError:
            continue
        verdict = "holds" if hold else "does not hold"
        if not hold and not theirs_hold:
            verdict = "does not hold, nor does it in the published tables"
        elif not hold:
            because = _because(claim, cells, other_snapping, odd)
            verdict = f"differs because {because}" if because else verdict
        elif not theirs_hold:
            verdict = "holds, though not in the published tables"
        found.append(Verdict(claim, theirs, theirs_hold, ours, verdict))
    return found


def _because(
    claim: Claim, cells: Cells, other_snapping: Cells | None, odd: Sequence[Outside]
) -> str | None:
    """The first of these that is so: errors, since no cell it reads is three of them off; the
    snapping rule; prompts so near in J that ranks hang on a trained model's last digits; cells that
    differ, each for a reason that was tested."""
    seen = _cells_read(claim)
    gaps = [_gap_in_errors(cells, key, statistic) for key, statistic in seen]
    if all(abs(gap) <= 3 for gap in gaps):
        return (
            f"errors allow it: none of its {len(gaps)} cells is more than "
            f"{max(map(abs, gaps)):.1f} standard errors off ({fmean(gaps):+.1f} on average)"
        )
    if other_snapping is not None:
        try:
            hold, figure = claim.check(reader(other_snapping))
            if hold:
                return f"of the snapping rule: scored by their own last context, {figure}"
        except KeyError:
            pass  # that sweep has no such cells
    gap = _largest_gap(cells, [key for key, statistic in seen if statistic == "rank"])
    if gap is not None and gap <= PRINTED:
        return f"ranks hang on the model's last digits: J is within {gap:.4f} of the best"
    reasons = {one.pair.key: one.reason for one in odd if one.tested}
    unlike = [key for key, statistic in seen if not _agreeing(cells, key, statistic)]
    if unlike and all(key in reasons for key in unlike):
        return f"of its cells: {reasons[unlike[0]]} ({len(unlike)} such)"
    return None


def _kind(statistic: str) -> str:
    """A statistic of the published tables as cells have it."""
    return "ess" if statistic.startswith("ess") else statistic


def _gap_in_errors(cells: Cells, key: Key, statistic: str) -> float:
    ours, theirs = cells.figure(key, _kind(statistic)), published()[*key, statistic]
    if ours is None:
        return math.inf
    return (ours.value - theirs.value) / spread(ours, theirs, _kind(statistic))


def _agreeing(cells: Cells, key: Key, statistic: str) -> bool:
    ours, theirs = cells.figure(key, _kind(statistic)), published()[*key, statistic]
    return ours is not None and agrees(ours, theirs, _kind(statistic))


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


def _cells_read(claim: Claim) -> list[tuple[Key, str]]:
    """The cells and statistics a check looks at, found by letting it look."""
    seen: dict[tuple[Key, str], None] = {}

    def watch(model: str, target: str, m: int, method: str, statistic: str) -> float:
        seen[(model, target, m, method), statistic] = None
        return _published(model, target, m, method, statistic)

    claim.check(watch)
    return list(seen)
