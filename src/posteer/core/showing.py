"""How records show themselves in a notebook: written in views, looked up when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.registry import Registry

SHOWN: Registry[Callable[..., Any]] = Registry(
    "way to show a record",
    "shown",
    {
        "html": "posteer.views.notebook.html:html_of",
        "plot": "posteer.views.notebook.plots:plot_of",
    },
)


class Shown:
    """A record that a notebook shows as a table, and that can be plotted."""

    def _repr_html_(self) -> str:
        text: str = SHOWN["html"](self)
        return text

    def plot(self, axes: Any = None) -> Any:
        """Draw it with matplotlib, on `axes` if they are given; the axes it is drawn on."""
        return SHOWN["plot"](self, axes)
