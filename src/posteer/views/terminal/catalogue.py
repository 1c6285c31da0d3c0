"""Methods and utilities in a terminal: names, settings, an example each."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show_catalogue(entries: list[dict[str, Any]], console: Console | None = None) -> None:
    """Each name with what it does, its settings and a command."""
    screen = console or Console()
    for entry in entries:
        screen.print(Text.assemble((entry["name"], "bold green"), f"  {entry['about']}"))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(no_wrap=True)
        rows.add_column(overflow="fold")
        for setting in entry["settings"]:
            rows.add_row(Text(f"    {_with_default(setting)}"), Text(setting["about"]))
        if entry["settings"]:
            screen.print(rows)
        if entry["example"]:
            screen.print(Text(f"    {entry['example']}", style="cyan"), soft_wrap=True)


def _with_default(setting: dict[str, Any]) -> str:
    if setting["required"]:
        return f"{setting['name']} (required)"
    default = setting["default"]
    return str(setting["name"]) if default is None else f"{setting['name']}={default}"
