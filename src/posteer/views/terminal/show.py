"""Any record in a terminal: each kind by its own panel."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from posteer.results import Comparison, Elicitation, Judgement
from posteer.views.terminal.compare import show_comparison
from posteer.views.terminal.record import show_details, show_elicitation, show_judgement


@singledispatch
def show(record: Any) -> None:
    """A panel of a record."""
    raise TypeError(f"there is no panel for a {type(record).__name__}")


show.register(Elicitation, show_elicitation)
show.register(Judgement, show_judgement)
show.register(Comparison, show_comparison)


@singledispatch
def details(record: Any) -> None:
    """All the figures of a record; what has no more than its panel is shown so."""
    show(record)


details.register(Elicitation, show_details)
