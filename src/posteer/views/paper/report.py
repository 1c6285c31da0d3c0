"""What a sweep says about the paper, in words and tables: counts, cells outside, claims, pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posteer.paper.agreement import Outside, counts, orderings, outside
from posteer.paper.cells import NEAR, Cells
from posteer.paper.claims import claims_table, verdicts
from posteer.paper.layouts import HEADINGS, layouts_for
from posteer.paper.paired import paired_comparisons, paired_table
from posteer.paper.tables import markdown

NAMES = {"J": "J", "rank": "rank at m=6", "ess": "mean ESS/L"}


def counts_table(cells: Cells) -> str:
    """Cells that agree with the published ones, by model, length and method; in brackets those
    within three standard errors, rounding included."""
    by_statistic = {statistic: counts(cells, statistic) for statistic in NAMES}
    keys = list(by_statistic["J"])
    heads = [f"{name} (within {NEAR[s]:g} or three errors)" for s, name in NAMES.items()]
    lines = [f"| model | m | method | {' | '.join(heads)} |", "|---" * 6 + "|"]
    for key in keys:
        found = [by_statistic[statistic].get(key) for statistic in NAMES]
        shown = ["" if hit is None else f"{hit[0]} of {hit[2]} ({hit[1]})" for hit in found]
        model, length, method = key
        lines.append(
            f"| {model} | {length} | {HEADINGS.get(method, method)} | {' | '.join(shown)} |"
        )
    totals = [[sum(n) for n in zip(*f.values(), strict=True)] for f in by_statistic.values()]
    shown = [f"**{t[0]} of {t[2]}** ({t[1]})" if t else "" for t in totals]
    return "\n".join([*lines, f"| all | | | {' | '.join(shown)} |", ""])


def orderings_table(cells: Cells) -> str:
    """Where the paper tells two methods apart: do we, and the same way?"""
    lines = [
        "| model | m | pairs the paper tells apart | same order | tied in ours | reversed |",
        "|---" * 6 + "|",
    ]
    for model in cells.models:
        for length in cells.lengths:
            found = orderings(cells, length, model)
            if found.total:
                lines.append(
                    f"| {model} | {length} | {found.total} | {found.same} "
                    f"({found.same / found.total:.0%}) | {found.tied} | {found.reversed} |"
                )
    return "\n".join([*lines, ""])


def outside_table(found: Sequence[Outside]) -> str:
    """Cells of J that are not the published ones, each with a reason that was tested."""
    lines = [
        "| model | m | target | method | published | ours | in standard errors | reason |",
        "|---" * 8 + "|",
    ]
    for one in found:
        model, target, length, method = one.pair.key
        theirs, ours = one.pair.theirs, one.pair.ours
        lines.append(
            f"| {model} | {length} | {target} | {HEADINGS.get(method, method)} "
            f"| {theirs.value:.2f} ({theirs.standard_error:.2f}) "
            f"| {ours.value:.2f} ({ours.standard_error or math.nan:.2f}) "
            f"| {one.in_errors:+.1f} | {one.reason} |"
        )
    return "\n".join([*lines, ""])


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
