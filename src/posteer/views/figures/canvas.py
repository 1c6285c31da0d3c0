"""Figures, drawn with matplotlib where that is installed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import write_atomically

SUFFIXES = (".svg", ".pdf", ".png")


def canvas() -> Any:
    """pyplot, off screen, writing the same bytes for the same data."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'posteer[plot]'") from error
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "posteer"
    from matplotlib import pyplot

    return pyplot


def check_path(out: Path) -> None:
    """Refuse a figure that could not be written, before the work for it is done."""
    require(out.suffix in SUFFIXES, f"figure '{out}': expected a name in {', '.join(SUFFIXES)}")
    require(out.parent.is_dir(), f"{out}: there is no folder {out.parent}")
    canvas()  # is matplotlib there?


def save(figure: Any, out: Path, close: bool = True) -> None:
    """Write a figure as its file's ending says, whole or not at all; the same figure is the same
    bytes."""
    figure.tight_layout()
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    data = io.BytesIO()
    figure.savefig(data, format=out.suffix[1:], metadata=dates.get(out.suffix), dpi=150)
    write_atomically(out, data.getvalue())
    if close:
        canvas().close(figure)
