"""Figures of a sweep: J by method and target, ascents with their ESS, tokens against utility, and
the method itself drawn from real latents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posteer.views.figures.canvas import canvas, save
from posteer.views.figures.compare import draw_runs

Curve = tuple[Sequence[float], Sequence[float]]
COLOURS = {
    "gcg": "#444444",
    "ppt-rb-analytic": "#1f77b4",
    "ppt-rb": "#ff7f0e",
    "ppt-analytic": "#7fb2d9",
    "ppt": "#ffbf80",
}


@dataclass(frozen=True)
class Point:
    """One cell: ours with its standard error, the published mean, the optimum."""

    method: str
    target: str
    value: float
    error: float
    published: float | None
    optimum: float | None


def draw_cells(
    rows: Mapping[str, Mapping[str, Sequence[Point]]], outs: Sequence[Path], least: float = -4.0
) -> None:
    """J by target, a panel for each family and one colour a method: dots are ours, rings the
    published, bars the optimum. What lies below `least` is out of the picture."""
    pyplot = canvas()
    columns = max(len(families) for families in rows.values())
    widths = [
        max((len({p.target for p in points}) for points in column), default=1) + 1
        for column in zip(*([*f.values()] for f in rows.values()), strict=False)
    ]
    figure, axes = pyplot.subplots(
        len(rows),
        columns,
        figsize=(12, 2.7 * len(rows)),
        squeeze=False,
        gridspec_kw={"width_ratios": (widths + [1] * columns)[:columns]},
    )
    for panels, (title, families) in zip(axes, rows.items(), strict=True):
        for panel, (family, points) in zip(panels, families.items(), strict=False):
            _draw_points(panel, points, least)
            panel.set_title(f"{title}: {family}" if len(points) > 5 else family, fontsize=8)
        panels[0].set_ylabel("J")
        for panel in panels[len(families) :]:
            panel.set_visible(False)
    points = [p for families in rows.values() for some in families.values() for p in some]
    names = list(dict.fromkeys(point.method for point in points))
    handles = [
        pyplot.Line2D([], [], marker="o", linestyle="", color=_colour(name, names), label=name)
        for name in names
    ]
    axes[0, -1].legend(handles=handles, fontsize=7, ncols=2, loc="upper center")
    _save(figure, outs)


def _draw_points(panel: Any, points: Sequence[Point], least: float) -> None:
    targets = list(dict.fromkeys(point.target for point in points))
    methods = list(dict.fromkeys(point.method for point in points))
    for point in points:
        if min(point.value, point.published or 0.0) < least:
            continue
        shift = (methods.index(point.method) - (len(methods) - 1) / 2) * 0.16
        x, colour = targets.index(point.target) + shift, _colour(point.method, methods)
        panel.errorbar(x, point.value, point.error, fmt="o", markersize=3, color=colour)
        if point.published is not None:
            panel.plot(x, point.published, "o", markersize=6, color=colour, fillstyle="none")
        if point.optimum is not None:
            at = targets.index(point.target)
            panel.plot([at - 0.45, at + 0.45], [point.optimum] * 2, color="black", linewidth=0.7)
    panel.set_xticks(range(len(targets)), targets, rotation=60, fontsize=7)
    panel.tick_params(axis="y", labelsize=7)
    panel.grid(axis="y", alpha=0.3)
    panel.margins(x=0.02)


def draw_ascents(
    panels: Mapping[str, Mapping[str, Sequence[tuple[Curve, Curve]]]], outs: Sequence[Path]
) -> None:
    """Surrogate above, ESS/L below, against steps; one line a seed, one colour a method."""
    figure, axes = _bands(len(panels), 4.6, rows=2)
    columns = axes.shape[1]
    for at, (title, methods) in enumerate(panels.items()):
        upper = axes[2 * (at // columns), at % columns]
        lower = axes[2 * (at // columns) + 1, at % columns]
        for method, runs in methods.items():
            for number, (surrogate, ess) in enumerate(runs):
                label = method if number == 0 else None
                colour = _colour(method, list(methods))
                upper.plot(*surrogate, color=colour, alpha=0.8, linewidth=0.9, label=label)
                lower.plot(*ess, color=colour, alpha=0.8, linewidth=0.9)
        upper.set(title=title, ylabel="surrogate", xscale="log")
        lower.set(xlabel="step", ylabel="ESS/L", xscale="log")
        lower.set_ylim(0, None)
        for panel in (upper, lower):
            panel.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    _save(figure, outs)


def draw_costs(
    panels: Mapping[str, Mapping[str, Sequence[Curve]]],
    optima: Mapping[str, float],
    outs: Sequence[Path],
) -> None:
    """Best expected utility against model tokens spent; a dot where a method answers once."""
    figure, axes = _bands(len(panels), 3.2)
    for panel, (title, methods) in zip(axes.flat, panels.items(), strict=False):
        for method, runs in methods.items():
            draw_runs(panel, runs, _colour(method, list(methods)), method)
        if title in optima:
            panel.axhline(optima[title], color="black", linewidth=0.8, linestyle=":")
        panel.set(title=title, xscale="log", xlabel="model tokens (bank shared by 51)")
        panel.set_ylabel("expected utility")
        panel.grid(alpha=0.3)
        panel.margins(x=0.08)
    axes[0, 0].legend(fontsize=7)
    _save(figure, outs)


@dataclass(frozen=True, eq=False)
class Steering:
    """The method at one length: utility over a grid of latents, samples, their tilted weights."""

    title: str
    landscape: np.ndarray
    samples: np.ndarray
    weights: np.ndarray
    ess_fraction: float
    caption: str


def draw_steering(
    rows: Sequence[Steering], axes_names: tuple[str, str], outs: Sequence[Path]
) -> None:
    """Utility over latents; prior samples; the same samples, as large as their weights."""
    pyplot = canvas()
    figure, axes = pyplot.subplots(
        len(rows), 3, figsize=(11, 3.6 * len(rows)), squeeze=False, sharex=True, sharey=True
    )
    titles = ("utility of each latent", "samples of the prior", "the same, tilted")
    for panels, row in zip(axes, rows, strict=True):
        for panel, title in zip(panels, titles, strict=True):
            image = panel.imshow(
                row.landscape.T, origin="lower", extent=(0, 1, 0, 1), cmap="viridis", alpha=0.55
            )
            panel.set(title=title, xlabel=axes_names[0], aspect="equal")
        panels[0].set_ylabel(f"{row.title}\n{axes_names[1]}")
        figure.colorbar(image, ax=panels[0], fraction=0.046)
        x, y = row.samples.T
        panels[1].scatter(x, y, s=3, color="black", alpha=0.35, linewidths=0, rasterized=True)
        size = 600 * row.weights / max(row.weights.max(), 1e-300) / 6
        panels[2].scatter(x, y, s=size, color="#c34b32", alpha=0.5, linewidths=0, rasterized=True)
        panels[2].set_title(f"the same, tilted: ESS/L {row.ess_fraction:.3f}")
        panels[2].text(
            0.5, 0.02, row.caption, ha="center", fontsize=7, transform=panels[2].transAxes
        )
    _save(figure, outs)


def _bands(panels: int, height: float, rows: int = 1) -> tuple[Any, Any]:
    """A figure with three panels abreast, and as many bands of so many rows as that takes."""
    columns = min(3, panels)
    bands = -(-panels // columns)
    size = (4 * columns, height * bands)
    figure, axes = canvas().subplots(rows * bands, columns, figsize=size, squeeze=False)
    return figure, axes


def _colour(method: str, methods: Sequence[str]) -> Any:
    spare = canvas().rcParams["axes.prop_cycle"].by_key()["color"]
    return COLOURS.get(method, spare[methods.index(method) % len(spare)])


def _save(figure: Any, outs: Sequence[Path]) -> None:
    """The same picture in every format asked for."""
    for out in outs[:-1]:
        save(figure, out, close=False)
    save(figure, outs[-1])
