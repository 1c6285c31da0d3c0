"""The curves of scaling.py: a column for each setting that varies, time above memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measuring import MIB, RESOLUTION
from scaling import AXES, Point, on_axis, size_of
from workloads import PEERS

from posteer.views.figures.canvas import canvas, save

STYLES: dict[str, tuple[str, str]] = {
    "linear step": ("tab:orange", "o"),
    "geometric step": ("tab:blue", "o"),
    "importance score": ("tab:green", "s"),
    "conjugate score": ("tab:red", "s"),
    "conjugate fit": ("tab:pink", "D"),
    "smc score": ("tab:brown", "s"),
    "classes, all": ("black", "^"),
    "classes, climbing": ("tab:purple", "^"),
}
"""Colour and marker; a naive peer has those of its method, dashed."""

NAMES = {"m": "prompt length m", "V": "vocabulary V", "order": "order", "L": "latents L"}


def draw(points: list[Point], out: Path) -> None:
    pyplot = canvas()
    figure, axes = pyplot.subplots(
        2, 5, figsize=(15, 6.6), sharey="row", gridspec_kw={"width_ratios": [1, 1, 1, 1, 0.62]}
    )
    names = list(dict.fromkeys(point["method"] for point in points))
    for column, axis in enumerate(AXES):
        for name in names:
            own = on_axis(points, name, axis)
            colour, marker = STYLES[PEERS.get(name, name)]
            style: dict[str, Any] = {
                "color": colour,
                "marker": marker,
                "markersize": 4,
                "linewidth": 1.3,
                "linestyle": "--" if name in PEERS else "-",
                "markerfacecolor": "white" if name in PEERS else colour,
                "label": name,
            }
            x = [size_of(point) for point in own]
            axes[0, column].plot(x, [1e3 * point["seconds"] for point in own], **style)
            memory = [max(point["extra_bytes"], RESOLUTION) / MIB for point in own]
            axes[1, column].plot(x, memory, **style)
        for panel in axes[:, column]:
            _scale(panel, axis)
        axes[1, column].set_xlabel(NAMES[axis])
    axes[0, 0].set_ylabel("time of one call or prompt, ms")
    axes[1, 0].set_ylabel("peak extra memory, MiB (least 1)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    axes[0, 4].legend(handles, labels, loc="upper left", fontsize=9, frameon=False)
    for panel in axes[:, 4]:
        panel.set_axis_off()
    save(figure, out)


def _scale(panel: Any, axis: str) -> None:
    panel.set(xscale="log", yscale="log")
    panel.grid(alpha=0.3)
    if axis in ("V", "order"):
        values = AXES[axis]
        places = [2**value for value in values] if axis == "order" else list(values)
        panel.set_xticks(places, [str(value) for value in values])
        panel.minorticks_off()
