"""What a sweep was and what it says of the paper: sessions, claims, agreement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from posteer.core.errors import InputError
from posteer.paper.agreement import Pair, outside, pairs
from posteer.paper.cells import Cells
from posteer.paper.claims import Standing, Verdict, verdicts
from posteer.paper.layouts import heading
from posteer.paper.power import nearer, right, swapped
from posteer.paper.published import RUNTIME_SECONDS
from posteer.sweeps.results import Row
from posteer.views.paper.reasons import SHOWN, said_of

NAMES = {"J": "J", "rank": "rank", "ess": "ESS"}
NOT_EXPLAINED = (Standing.NEITHER, Standing.UNDECIDED, Standing.FAILS)


def paper_facts(rows: Sequence[Row]) -> dict[str, Any]:
    """Claims and agreement, where these runs are of the paper's cells; else why not."""
    try:
        cells = Cells(rows)
    except InputError as error:
        return {"why": f"Runs are not held against the paper: {error}."}
    if not pairs(cells, "J"):
        return {"why": None}
    odd = outside(cells, None, {})
    return {
        "claims": [_claim(one) for one in verdicts(cells, None, odd)],
        "agreement": [_agreement(cells, statistic) for statistic in NAMES],
        "by_method": [one for statistic in NAMES for one in _by_method(cells, statistic)],
        "outside": [
            {
                **{"model": one.pair.key[0], "target": one.pair.key[1], "length": one.pair.key[2]},
                **{"method": heading(one.pair.key[3]), "published": one.pair.theirs.value},
                **{"ours": one.pair.ours.value, "errors": one.in_errors, "reason": SHOWN[one.why]},
            }
            for one in odd
        ],
        "published_seconds": RUNTIME_SECONDS,
    }


def _agreement(cells: Cells, statistic: str) -> dict[str, Any]:
    """How many cells match, and how many would if methods were taken for each other."""
    found = pairs(cells, statistic)
    ours, others = right(found, statistic), swapped(found, statistic)
    told = nearer(found, statistic)
    return {
        **{"statistic": NAMES[statistic], "of": ours.of, "within": ours.within, "same": ours.same},
        "swapped": [one.within for one in others if one.of],
        **{"nearer": told.own, "nearer_of": told.of},
    }


def _by_method(cells: Cells, statistic: str) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[str, int, str], list[Pair]] = defaultdict(list)
    for pair in pairs(cells, statistic):
        groups[pair.key[0], pair.key[2], pair.key[3]].append(pair)
    for (model, length, method), several in groups.items():
        score = right(several, statistic)
        yield {
            **{"statistic": NAMES[statistic], "model": model, "length": length},
            **{"method": heading(method), "of": score.of, "within": score.within},
            "same": score.same,
        }


def _claim(one: Verdict) -> dict[str, Any]:
    return {
        "name": one.claim.name,
        "statement": one.claim.statement,
        "table": one.claim.table,
        "published": one.published,
        "published_holds": one.published_holds,
        "ours": one.ours,
        "holds": one.standing in (Standing.HOLDS, Standing.BETTER),
        "explained": one.standing not in NOT_EXPLAINED,
        "verdict": said_of(one),
    }


def session_facts(sessions: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What the processes of a sweep did, together."""
    if not sessions:
        return None
    phases: dict[str, float] = {}
    for one in sessions:
        for name, seconds in one["phases"].items():
            if isinstance(seconds, int | float):
                phases[str(name)] = phases.get(str(name), 0.0) + seconds
    return {
        "processes": len(sessions),
        "runs": sum(one["runs"] for one in sessions),
        "process_seconds": sum(one["wall_seconds"] for one in sessions),
        "began": min(one["began"] for one in sessions),
        "ended": max(one["ended"] for one in sessions),
        "devices": sorted({str(one.get("device")) for one in sessions}),
        "phases": {name: round(seconds, 3) for name, seconds in sorted(phases.items())},
    }
