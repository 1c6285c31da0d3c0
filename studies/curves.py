"""Training curves from records: excess risk over exact Bayes against steps.

    python studies/curves.py [docs/records/training] --out docs/figures/training.svg

Reads every `*.jsonl` of a folder, one run each, as `posteer train` writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from places import RECORDS
from running import Options, read_records, run

from posteer.core.errors import require
from posteer.views.figures.canvas import canvas, check_path, save

SERIES = {"overall": "all positions", "first_50": "first 50", "first_10": "first 10"}
WIDEST = 4
"""Panels side by side."""
AIMS = {"overall": 1e-4, "first_50": 5e-4}


def draw(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    """One panel per run; values at or below zero (noise around Bayes) are not drawn."""
    columns = min(len(runs), WIDEST)
    rows = -(-len(runs) // columns)
    figure, panels = canvas().subplots(
        rows, columns, figsize=(4 * columns, 3.4 * rows), sharey=True, squeeze=False
    )
    for spare in panels.flat[len(runs) :]:
        spare.remove()
    for panel, (name, records) in zip(panels.flat, runs.items(), strict=False):
        for key, label in SERIES.items():
            points = [(r["step"], r[key]) for r in records if r[key] is not None and r[key] > 0]
            (line,) = panel.plot(*zip(*points, strict=True), label=label, linewidth=1.2)
            if key in AIMS:
                panel.axhline(AIMS[key], color=line.get_color(), linestyle=":", linewidth=1)
        panel.set(title=name, xlabel="step", yscale="log")
        panel.grid(alpha=0.3)
    for panel in panels[:, 0]:
        panel.set_ylabel("excess risk, nats per token (dotted: aim)")
    figure.axes[0].legend()
    save(figure, out)


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=RECORDS / "training")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    check_path(given.out)
    runs = {path.stem: read_records(path) for path in sorted(given.folder.glob("*.jsonl"))}
    require(len(runs) > 0, f"{given.folder}: there are no records of training here")
    draw(runs, given.out)


if __name__ == "__main__":
    run(main)
