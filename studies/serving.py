"""The explorer, served to this process: for its pictures, measures and tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posteer.core.errors import InputError

if TYPE_CHECKING:
    from posteer.explorer.server import Serving


@contextmanager
def served(
    folder: Path, named: Sequence[str] = (), at_once: int = 2, **how: Any
) -> Iterator[Serving]:
    """A server in a thread of its own, until the block ends; runs are kept in the folder, and `how`
    is what else `Serving` takes."""
    try:
        from posteer.explorer.menu import Menu
        from posteer.explorer.runs import Runs
        from posteer.explorer.server import Explorer, Serving
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed: pip install 'posteer[explore]'"
        ) from error
    menu = Menu(named)
    serving = Serving(Explorer(menu, Runs(menu, folder, at_once)), **how)
    thread = threading.Thread(target=serving.run)
    thread.start()
    try:
        yield serving
    finally:
        serving.stop()
        thread.join()
