"""Linear and geometric tilt side by side, on a coin and on the urn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posteer.views.figures.canvas import canvas, save

Curves = dict[str, tuple[list[float], list[float]]]
"""By label, the points of a line."""

COLOURS = {"linear": "tab:orange", "geometric": "tab:blue"}


def draw_tilts(
    densities: Curves,
    coin_means: Curves,
    urn_means: Curves,
    urn_values: Curves,
    coin: float,
    length: int,
    out: Path,
) -> None:
    """Two panels of each model: where the posterior goes, and what follows from it."""
    pyplot = canvas()
    figure, panels = pyplot.subplots(1, 4, figsize=(18, 4.2))
    _densities(panels[0], densities, coin, length)
    _means(panels[1], coin_means, "coin: bias of the prompt kernel", "mean bias of the latent")
    _means(panels[2], urn_means, "urn: flip rate of the prompt kernel", "mean flip rate, latent")
    _values(panels[3], urn_values, length)
    save(figure, out)


def _style(label: str) -> dict[str, Any]:
    """Colour by tilt; longer prompts in heavier lines."""
    tilt, _, length = label.partition(", m=")
    widths = {"": 1.8, "6": 0.8, "50": 1.6, "500": 2.6}
    return {"color": COLOURS.get(tilt, "black"), "linewidth": widths.get(length, 1.6)}


def _densities(panel: Any, curves: Curves, coin: float, length: int) -> None:
    for label, (x, y) in curves.items():
        if label in COLOURS:
            panel.plot(x, y, label=label, **_style(label))
        else:
            panel.plot(x, y, "k--", label=label, linewidth=1.0)
    panel.axvline(coin, color="grey", linewidth=0.8, linestyle=":")
    panel.set(
        title=f"coin {coin} as prompt kernel, m={length}", xlabel="bias of the latent", ylim=(0, 12)
    )
    panel.set_ylabel("posterior density")
    panel.legend()


def _means(panel: Any, curves: Curves, x_label: str, y_label: str) -> None:
    panel.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":")
    for label, (x, y) in curves.items():
        panel.plot(x, y, label=label, **_style(label))
    panel.set(xlabel=x_label, ylabel=y_label, title="where the posterior goes")
    panel.legend(fontsize=8)


def _values(panel: Any, curves: Curves, length: int) -> None:
    for label, (x, y) in curves.items():
        if label in COLOURS:
            panel.plot(x, y, label=label, **_style(label))
        else:
            panel.plot(x, y, "k.", label=label, markersize=4)
    panel.set(
        title=f"urn: Dyck, m={length}",
        xlabel="flip rate of the prompt kernel, or of a prompt",
        ylabel="surrogate",
    )
    panel.legend(fontsize=8)
