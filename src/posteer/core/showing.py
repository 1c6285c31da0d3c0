"""How records and work show themselves: written in views, looked up when it is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from posteer.core.errors import require
from posteer.core.registry import Registry
from posteer.core.spec import shown

SHOWN: Registry[Callable[..., Any]] = Registry(
    "way to show a record",
    "shown",
    {
        "html": "posteer.views.notebook.html:html_of",
        "plot": "posteer.views.notebook.plots:plot_of",
        "frame": "posteer.views.notebook.frames:frame_of",
        "progress": "posteer.views.terminal.panels:delayed_progress",
    },
)

Watch = Any
"""Who is told how work proceeds: nobody, a function (`Progress`), with True a progress bar."""

Door = TypeVar("Door", bound=Callable[..., Any])


def watched(door: Door) -> Door:
    """Let a door be given `progress=True`: a bar is shown once the work has taken a second."""
    signature = inspect.signature(door)

    @wraps(door)
    def opened(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        asked = bound.arguments.get("progress")
        good = asked is None or isinstance(asked, bool) or callable(asked)
        require(good, f"progress {shown(asked)}: expected True or a function")
        if asked is not True:
            bound.arguments["progress"] = asked or None
            return door(*bound.args, **bound.kwargs)
        with SHOWN["progress"]() as report:
            bound.arguments["progress"] = report
            return door(*bound.args, **bound.kwargs)

    return cast(Door, opened)


class Shown:
    """A record that a notebook shows as a table, that can be plotted, and made a data frame."""

    def _repr_html_(self) -> str:
        text: str = SHOWN["html"](self)
        return text

    def plot(self, axes: Any = None) -> Any:
        """Draw it with matplotlib, on `axes` if they are given; the axes it is drawn on."""
        return SHOWN["plot"](self, axes)

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for a result, for each run of a comparison, for each latent of
        a bank, for each test of a check."""
        return SHOWN["frame"](self)
