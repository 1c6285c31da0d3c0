"""Training curves from records: excess risk over exact Bayes against steps.

    python studies/curves.py docs/records/training --out docs/figures/training.svg

Reads every `*.jsonl` of a folder, one run each, as `posteer train` writes them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SERIES = {"overall": "all positions", "first_50": "first 50", "first_10": "first 10"}
AIMS = {"overall": 1e-4, "first_50": 5e-4}


def read_run(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def draw(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    """One panel per run; values at or below zero (noise around Bayes) are not drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "posteer"  # the same records give the same bytes
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(runs), figsize=(5 * len(runs), 3.6), sharey=True)
    for panel, (name, records) in zip(
        [panels] if len(runs) == 1 else panels, runs.items(), strict=True
    ):
        for key, label in SERIES.items():
            points = [(r["step"], r[key]) for r in records if r[key] is not None and r[key] > 0]
            (line,) = panel.plot(*zip(*points, strict=True), label=label, linewidth=1.2)
            if key in AIMS:
                panel.axhline(AIMS[key], color=line.get_color(), linestyle=":", linewidth=1)
        panel.set(title=name, xlabel="step", yscale="log")
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("excess risk, nats per token (dotted: aim)")
    figure.axes[0].legend()
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    draw({path.stem: read_run(path) for path in sorted(given.folder.glob("*.jsonl"))}, given.out)


if __name__ == "__main__":
    main()
