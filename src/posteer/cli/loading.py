"""How a command loads what it runs on: torch and all that stands on it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Imports within are not looked through for garbage, then or later.

    Modules stay until the process ends, and make hundreds of thousands of objects: the collector
    would go through them again and again while they are made, and once more at the end, for a
    quarter of the time that it takes to load torch. A process that has torch already is left as it
    is: what it holds may be garbage one day.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
