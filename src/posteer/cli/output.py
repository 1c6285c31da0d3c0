"""How commands speak to machines, and how they refuse."""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated, NoReturn

from cyclopts import Parameter

AsJson = Annotated[bool, Parameter(negative="", help="Print one JSON object for machines.")]


def print_json(value: object) -> None:
    """One line of strict JSON: what it cannot hold (nan, infinities) is null."""
    print(json.dumps(_finite(value), allow_nan=False))


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def refuse(message: str) -> NoReturn:
    """One line, exit 2."""
    print(f"posteer: {message}", file=sys.stderr)
    sys.exit(2)
