"""Best utility against model tokens spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posteer.views.figures.canvas import canvas, save


def draw_trajectories(
    paths: dict[str, list[tuple[list[float], list[float]]]],
    title: str,
    optimum: float | None,
    out: Path,
) -> None:
    """One colour a method, one line a seed; a dot where a method gives one answer at the end."""
    pyplot = canvas()
    figure, panel = pyplot.subplots(figsize=(7, 4.5))
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    for index, (method, runs) in enumerate(paths.items()):
        draw_runs(panel, runs, colours[index % len(colours)], method)
    if optimum is not None:
        panel.axhline(optimum, color="black", linewidth=0.8, linestyle=":", label="optimum")
    panel.set(
        title=title, xlabel="model tokens (bank shared)", ylabel="expected utility", xscale="log"
    )
    panel.margins(x=0.08)
    panel.grid(alpha=0.3)
    panel.legend()
    save(figure, out)


def draw_runs(
    panel: Any, runs: Sequence[tuple[Sequence[float], Sequence[float]]], colour: Any, name: str
) -> None:
    """Values against tokens, one line a run; a dot at its end."""
    for number, (spent, values) in enumerate(runs):
        tokens = [max(count, 1.0) for count in spent]  # what costs nothing stands at the left edge
        label = name if number == 0 else None
        if len(tokens) > 1:
            panel.step(tokens, values, where="post", color=colour, alpha=0.6, label=label)
            label = None
        panel.plot(tokens[-1:], values[-1:], "o", color=colour, markersize=4, label=label)
