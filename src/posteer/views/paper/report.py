"""What a sweep says about the paper, in words and tables: counts, cells outside, claims, pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from posteer.paper.agreement import Outside, Pair, Why, counts, orderings, outside, pairs
from posteer.paper.cells import Cells
from posteer.paper.claims import FALSE_ALARM, Verdict, verdicts
from posteer.paper.joint import Starts, holm, joint_test, sign_test
from posteer.paper.layouts import heading, layouts_for
from posteer.paper.paired import Paired, family_of, paired_comparisons
from posteer.paper.power import Score, constant, nearer, right, swapped
from posteer.paper.tables import markdown
from posteer.sweeps.results import Sweep
from posteer.views.paper.reasons import SHOWN, cell_of, command_of, evidence, p_value, said_of

NAMES = {"J": "J", "rank": "rank at m=6", "ess": "mean ESS/L"}


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    first, *rest = [f"| {' | '.join(map(str, row))} |" for row in (heads, *rows)]
    return [first, "|---" * len(heads) + "|", *rest]


def _table(heads: str, rows: Iterable[Sequence[object]]) -> str:
    return "\n".join([*table_lines(heads.split(" | "), rows), ""])


def powers_table(cells: Cells) -> str:
    """Whole comparisons: how much matches, and how much of what should not would match too."""
    rows = []
    for statistic, name in NAMES.items():
        found = pairs(cells, statistic)
        if not found:
            continue
        ours, others = right(found, statistic), swapped(found, statistic)
        held, own = constant(found, statistic), nearer(found, statistic)
        rows.append(
            [
                *(name, ours.of, f"**{ours.within}**", _range([one.within for one in others])),
                *(f"{held.within} of {held.of}", f"**{ours.same}**"),
                *(_range([one.same for one in others]), f"{held.same} of {held.of}"),
                f"**{own.own}** of {own.of} ({own.own / own.of:.0%})" if own.of else "",
            ]
        )
    heads = (
        "figure | cells | within three errors | methods swapped | one constant | printed the same"
    )
    return _table(f"{heads} | methods swapped | one constant | nearer its own (chance 50 %)", rows)


def _range(values: Sequence[int]) -> str:
    low, high = (min(values), max(values)) if values else (0, 0)
    return f"{low}" if low == high else f"{low} to {high}"


def counts_table(cells: Cells) -> str:
    """Cells within three standard errors of the published ones, rounding included, by model, length
    and method; in brackets those printed the same."""
    found = {statistic: _by_method(pairs(cells, statistic), statistic) for statistic in NAMES}
    rows = []
    for key in found["J"]:
        hits = [found[statistic].get(key) for statistic in NAMES]
        shown = ["" if hit is None else f"{hit.within} of {hit.of} ({hit.same})" for hit in hits]
        rows.append([key[0], key[1], heading(key[2]), *shown])
    return "\n".join([*table_lines(["model", "m", "method", *NAMES.values()], rows), ""])


def _by_method(found: Sequence[Pair], statistic: str) -> dict[tuple[str, int, str], Score]:
    groups: dict[tuple[str, int, str], list[Pair]] = defaultdict(list)
    for pair in found:
        groups[pair.key[0], pair.key[2], pair.key[3]].append(pair)
    return {key: right(several, statistic) for key, several in groups.items()}


KINDS = {"gcg": "GCG", "analytic": "PPT of the prior", "rollouts": "PPT of rollouts"}


def joint_table(cells: Cells, starts: Starts | None) -> str:
    """Bias by model, length, family and kind of method: signs, and the joint test of all cells."""
    groups: dict[tuple[str, int, str, str], list[Pair]] = defaultdict(list)
    for pair in pairs(cells, "J"):
        model, target, length, method = pair.key
        kind = "gcg" if method == "gcg" else method.rpartition("-")[2]
        kind = kind if kind in KINDS else "rollouts"
        groups[model, length, family_of(target), kind].append(pair)
    signs, tests = [], []
    for key, several in groups.items():
        signs.append(
            [sum(p.difference < 0 for p in several), sum(p.difference > 0 for p in several)]
        )
        reads = [(pair.key, "J") for pair in several]
        tests.append(joint_test(cells, reads, starts, " ".join(map(str, key))))
    sign_p = holm([sign_test(below, above) for below, above in signs])
    joint_p = holm([one.p for one in tests])
    rows = []
    for at, key in enumerate(groups):
        below, above = signs[at]
        test = tests[at]
        law = "64 starts" if test.enumerated else "seeds"
        rows.append(
            [
                *(key[0], key[1], key[2], KINDS[key[3]], test.cells, below, above),
                *(p_value(sign_test(below, above)), p_value(sign_p[at])),
                *(f"{-test.mean:+.1f}", p_value(test.p), _bold(joint_p[at]), law),
            ]
        )
    heads = "model | m | family | method | cells | below | above | sign test p | after Holm"
    return _table(f"{heads} | mean, in errors | joint p | after Holm | law of ours", rows)


def _bold(p: float) -> str:
    return f"**{p_value(p)}**" if p < FALSE_ALARM else p_value(p)


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


def outside_tables(found: Sequence[Outside]) -> str:
    """Cells of J outside three standard errors by what was shown of them, the unexplained first."""
    parts: list[str] = []
    for why in reversed(Why):
        several = [one for one in found if one.why is why]
        if several:
            parts += [f"#### {why.value[0].upper()}{why.value[1:]}: {len(several)}", "", SHOWN[why]]
            command = command_of(several[0])
            if command is not None:
                parts += ["", f"The first by `{command}`, the others likewise."]
            parts += ["", unlike_table(several)]
    return "\n".join(parts)


def unlike_table(found: Sequence[Outside]) -> str:
    """Cells with the figures that bear on them."""
    heads = "model | m | target | method | published | ours | in standard errors | beside it"
    return _table(heads, [[*cell_of(one), evidence(one)] for one in found])


def claims_table(found: Sequence[Verdict]) -> str:
    """What the paper says, and whether it is so."""
    rows = [
        [one.claim.statement, f"`{one.claim.table}`", one.published, one.ours, said_of(one)]
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
        parts += ["### Agreement with the published cells", "", powers_table(cells)]
        parts += [counts_table(cells)]
        parts += ["### Order of methods", "", orderings_table(cells)]
        parts += ["### Cells of J outside", "", outside_tables(odd)]
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
                "reason": one.why.value,
            }
            for one in odd
        ],
        "claims": [
            {
                "claim": one.claim.name,
                "statement": one.claim.statement,
                "published": one.published,
                "ours": one.ours,
                "verdict": said_of(one),
            }
            for one in verdicts(cells, None, odd)
        ],
        "paired": [dict(vars(one)) for one in paired_comparisons(cells)],
    }


def _key(key: tuple[str, str, int, str]) -> Mapping[str, Any]:
    return dict(zip(("model", "target", "length", "method"), key, strict=True))
