"""`auto` on the paper's cells, beside the five published methods as published and as we ran them.

    posteer sweep --preset auto --out runs/auto
    python studies/beyond.py [runs/auto] [--records docs/records/paper.parquet]

A cell where another method's mean J is higher by more than 1e-3 is listed. Without runs, those in
docs/records.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from places import RECORDS
from running import Options, run
from tables import grouped, heading

from posteer.paper.agreement import exact_optimum
from posteer.paper.cells import Cell, Cells
from posteer.paper.published import METHODS, TARGETS, published
from posteer.sweeps.results import read_rows

WITHIN = 1e-3
PRINTED = 0.005


@dataclass(frozen=True)
class Beside:
    """One cell: `auto`, the means of the five methods in our sweep, and the best published."""

    model: str
    target: str
    length: int
    value: float
    rank: float | None
    tokens: float
    optimum: float | None
    by_method: dict[str, float]
    theirs: float
    theirs_by: str
    gcg_tokens: float

    @property
    def ours_by(self) -> str:
        return max(self.by_method, key=self.by_method.__getitem__)

    @property
    def ours(self) -> float:
        return self.by_method[self.ours_by]

    @property
    def behind_ours(self) -> bool:
        return self.value < self.ours - WITHIN

    @property
    def behind_published(self) -> bool:
        """Published means are rounded to 0.01."""
        return self.value < self.theirs - WITHIN - PRINTED


def cells_beside(auto: Cells, paper: Cells) -> list[Beside]:
    """Every cell of the paper."""
    found = []
    for model, targets in TARGETS.items():
        for length in (6, 50):
            best = exact_optimum(model, length)
            for target in targets:
                cell = auto.get((model, target, length, "auto"))
                if cell is not None:
                    found.append(_beside(cell, paper, best.get(target)))
    return found


def _beside(cell: Cell, paper: Cells, exact: float | None) -> Beside:
    model, target, length, _ = cell.key
    keys = {method: (model, target, length, method) for method in METHODS}
    ours = {m: paper.figure(k, "J") for m, k in keys.items()}
    known = {m: figure.value for m, figure in ours.items() if figure is not None}
    theirs = {m: published()[*k, "J"].value for m, k in keys.items()}
    their_by = max(theirs, key=theirs.__getitem__)
    ranked = [row["optimum"] for row in cell.rows if row["optimum"] is not None]
    ranks = cell.values("rank")
    gcg = paper.get(keys["gcg"])
    return Beside(
        model,
        target,
        length,
        min(cell.values("J")),
        max(ranks) if ranks else None,
        fmean(_spent(cell)),
        ranked[0] if ranked else exact,
        known,
        theirs[their_by],
        their_by,
        0.0 if gcg is None else fmean(_spent(gcg)),
    )


def _spent(cell: Cell) -> list[float]:
    return [float(row["forward_tokens"] + row["backward_tokens"]) for row in cell.rows]


def summary(found: list[Beside]) -> list[str]:
    """By model and length."""
    lines = heading(
        "| model | m | cells | at least as good as all five, as we ran them | as published "
        "| rank 1 | mean gain over the best of ours | largest | tokens a run | GCG's |"
    )
    for (model, length), own in _grouped(found).items():
        gains = [one.value - one.ours for one in own]
        ranked = [one for one in own if one.rank is not None]
        first = f"{sum(one.rank == 1 for one in ranked)} of {len(ranked)}" if ranked else ""
        lines.append(
            f"| {model} | {length} | {len(own)} | {sum(not one.behind_ours for one in own)} "
            f"| {sum(not one.behind_published for one in own)} | {first} | {fmean(gains):.3f} "
            f"| {max(gains):.3f} | {fmean(o.tokens for o in own):,.0f} "
            f"| {fmean(o.gcg_tokens for o in own):,.0f} |"
        )
    return lines


def shortfalls(found: list[Beside]) -> list[str]:
    """How far the means of the five methods lie below `auto`."""
    lines = heading("| method | model | m | cells within 1e-3 of auto | mean shortfall | largest |")
    for method in METHODS:
        for (model, length), own in _grouped(found).items():
            gaps = {one.target: one.value - one.by_method[method] for one in own}
            worst = max(gaps, key=gaps.__getitem__)
            near = sum(gap < WITHIN for gap in gaps.values())
            lines.append(
                f"| {method} | {model} | {length} | {near} of {len(gaps)} "
                f"| {fmean(gaps.values()):.3f} | {gaps[worst]:.3f} ({worst}) |"
            )
    return lines


def _grouped(found: list[Beside]) -> dict[tuple[str, int], list[Beside]]:
    return grouped(found, lambda one: (one.model, one.length))


def behind(found: list[Beside]) -> list[str]:
    """Cells where something else is better, with why where it can be told."""
    lines = heading("| model | m | target | auto | best of ours | best published | optimum | why |")
    for one in found:
        unranked = one.rank is not None and one.rank > 1
        if one.behind_ours or one.behind_published or unranked:
            why = "unexplained"
            if not one.behind_ours and one.optimum is not None and one.theirs > one.optimum:
                whose = "there is on our model" if one.length == 6 else "of exact Bayes"
                why = f"published above the best prompt {whose}"
            elif one.rank == 1 and not one.behind_ours:
                why = "it is the best of all prompts on our model"
            lines.append(
                f"| {one.model} | {one.length} | {one.target} | {one.value:.4f} (rank {one.rank}) "
                f"| {one.ours:.4f} ({one.ours_by}) | {one.theirs:.2f} ({one.theirs_by}) "
                f"| {'' if one.optimum is None else f'{one.optimum:.4f}'} | {why} |"
            )
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("runs", type=Path, nargs="?", default=RECORDS / "auto.parquet")
    parser.add_argument("--records", type=Path, default=RECORDS / "paper.parquet")
    given = parser.parse_args(arguments)
    found = cells_beside(Cells(read_rows(given.runs)), Cells(read_rows(given.records)))
    print("\n".join([*summary(found), "", *shortfalls(found), "", *behind(found)]))


if __name__ == "__main__":
    run(main)
