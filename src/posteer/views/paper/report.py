"""What a sweep says about the paper, in words and tables: counts, cells outside, claims, pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from posteer.paper.agreement import Outside, counts, orderings, outside
from posteer.paper.cells import NEAR, Cells
from posteer.paper.claims import Verdict, verdicts
from posteer.paper.layouts import heading, layouts_for
from posteer.paper.paired import Paired, paired_comparisons
from posteer.paper.tables import markdown
from posteer.sweeps.results import Sweep

NAMES = {"J": "J", "rank": "rank at m=6", "ess": "mean ESS/L"}


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    first, *rest = [f"| {' | '.join(map(str, row))} |" for row in (heads, *rows)]
    return [first, "|---" * len(heads) + "|", *rest]


def _table(heads: str, rows: Iterable[Sequence[object]]) -> str:
    return "\n".join([*table_lines(heads.split(" | "), rows), ""])


def counts_table(cells: Cells) -> str:
    """Cells that agree with the published ones, by model, length and method; in brackets those
    within three standard errors, rounding included."""
    by_statistic = {statistic: counts(cells, statistic) for statistic in NAMES}
    heads = [f"{name} (within {NEAR[s]:g} or three errors)" for s, name in NAMES.items()]
    rows = []
    for model, length, method in by_statistic["J"]:
        found = [by_statistic[statistic].get((model, length, method)) for statistic in NAMES]
        shown = ["" if hit is None else f"{hit[0]} of {hit[2]} ({hit[1]})" for hit in found]
        rows.append([model, length, heading(method), *shown])
    totals = [[sum(n) for n in zip(*f.values(), strict=True)] for f in by_statistic.values()]
    shown = [f"**{t[0]} of {t[2]}** ({t[1]})" if t else "" for t in totals]
    lines = table_lines(["model", "m", "method", *heads], rows)
    return "\n".join([*lines, f"| all | | | {' | '.join(shown)} |", ""])


def orderings_table(cells: Cells) -> str:
    """Where the paper tells two methods apart: do we, and the same way?"""
    rows = []
    for model, length in product(cells.models, cells.lengths):
        found = orderings(cells, length, model)
        if found.total:
            same = f"{found.same} ({found.same / found.total:.0%})"
            rows.append([model, length, found.total, same, found.tied, found.reversed])
    heads = "model | m | pairs the paper tells apart | same order | tied in ours | reversed"
    return _table(heads, rows)


def outside_table(found: Sequence[Outside]) -> str:
    """Cells of J that are not the published ones, each with a reason that was tested."""
    rows = []
    for one in found:
        model, target, length, method = one.pair.key
        theirs, ours = one.pair.theirs, one.pair.ours
        means = [
            f"{theirs.value:.2f} ({theirs.standard_error:.2f})",
            f"{ours.value:.2f} ({ours.standard_error or math.nan:.2f})",
        ]
        gap = f"{one.in_errors:+.1f}"
        rows.append([model, length, target, heading(method), *means, gap, one.reason])
    heads = "model | m | target | method | published | ours | in standard errors | reason"
    return _table(heads, rows)


def claims_table(found: Sequence[Verdict]) -> str:
    """What the paper says, and whether it is so."""
    rows = [
        [one.claim.statement, f"`{one.claim.table}`", one.published, one.ours, one.verdict]
        for one in found
    ]
    return _table("claim | table | published | ours | verdict", rows)


def paired_table(found: Sequence[Paired]) -> str:
    """Methods against each other."""
    rows = [
        [
            *(one.model, one.length, one.family, one.method, one.other),
            f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]",
            *(one.wins, one.ties, one.losses),
        ]
        for one in found
    ]
    heads = "model | m | family | method | against | mean difference of J [95 %] | better | same"
    return _table(f"{heads} | worse", rows)


def trouble_line(cells: Cells) -> str:
    """Failed and diverged runs, over everything."""
    runs = sum(len(cell.rows) for cell in cells)
    failed, diverged = sum(c.failed for c in cells), sum(c.diverged for c in cells)
    sizes = [len(cell.rows) for cell in cells]
    uneven = f" Cells have {min(sizes)} to {max(sizes)} runs." if min(sizes) < max(sizes) else ""
    return f"{runs:,} runs: {failed} failed, {diverged} diverged.{uneven}"


def whole_report(cells: Cells) -> str:
    """All tables, counts, claims and pairs as Markdown."""
    parts = [markdown(layout, cells) for layout in layouts_for(cells)]
    if counts(cells, "J"):
        odd = outside(cells, None, {})
        parts += ["### Agreement with the published cells", "", counts_table(cells)]
        parts += ["### Order of methods", "", orderings_table(cells)]
        parts += ["### Cells of J outside", "", outside_table(odd)]
        parts += ["### Claims", "", claims_table(verdicts(cells, None, odd))]
    parts += ["### Methods against each other", "", paired_table(paired_comparisons(cells))]
    return "\n".join([*parts, trouble_line(cells)])


def standing_lines(sweep: Sweep) -> list[str]:
    """What is to be known of runs before they are read as a whole sweep's."""
    there, lines = len(sweep.rows), []
    if sweep.total is not None and there < sweep.total:
        lines.append(f"{there:,} of {sweep.total:,} runs: the sweep is not finished")
    if sweep.strangers:
        first = sweep.strangers[0]
        lines.append(
            f"{len(sweep.strangers)} runs are of another sweep or version, and left out: first "
            f"{first}"
        )
    if sweep.unsealed is not None:
        lines.append(f"{sweep.unsealed} is of an earlier version and has no seal: read unchecked")
    return lines


def facts_of(cells: Cells, written: Sequence[Path]) -> dict[str, Any]:
    """The same for machines."""
    odd = outside(cells, None, {})
    return {
        "files": [str(path) for path in written],
        "agreement": [
            {
                **{"statistic": s, "model": k[0], "length": k[1], "method": k[2]},
                **{"agree": near, "within_three_errors": strict, "of": total},
            }
            for s in NAMES
            for k, (near, strict, total) in counts(cells, s).items()
        ],
        "outside": [
            {
                **_key(one.pair.key),
                "published": one.pair.theirs.value,
                "ours": one.pair.ours.value,
                "reason": one.reason,
            }
            for one in odd
        ],
        "claims": [
            {
                "claim": one.claim.name,
                "statement": one.claim.statement,
                "published": one.published,
                "ours": one.ours,
                "verdict": one.verdict,
            }
            for one in verdicts(cells, None, odd)
        ],
        "paired": [dict(vars(one)) for one in paired_comparisons(cells)],
    }


def _key(key: tuple[str, str, int, str]) -> Mapping[str, Any]:
    return dict(zip(("model", "target", "length", "method"), key, strict=True))
