"""How commands speak to machines, and how they refuse."""

from __future__ import annotations

import sys
from typing import Any, NoReturn


def print_json(value: Any) -> None:
    """One line of strict JSON; torch is loaded by now."""
    from posteer.views.machine import print_json as say

    say(value)


def refuse(message: str) -> NoReturn:
    """One line, exit 2."""
    print(f"posteer: {message}", file=sys.stderr)
    sys.exit(2)
