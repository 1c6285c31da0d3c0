"""The one error a user can cause, the helpers that raise it, and being interrupted."""

from __future__ import annotations

import re
from pathlib import Path


class InputError(ValueError):
    """Input refused at the boundary: one line that names the value and what was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def require(condition: bool, message: str) -> None:
    """Refuse the input with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def in_options(message: str) -> str:
    """A refusal as a command line says it: what Python calls `save_bank` is --save-bank there.

    >>> in_options("choose another `out`")
    'choose another --out'
    """
    return re.sub(r"`([a-z_]+)`", lambda name: "--" + name[1].replace("_", "-"), message)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C once rollouts were drawn: `done` of them are kept, of at most `wanted`.

    `where` is the bank or the folder of its parts; without one nothing is kept.
    """

    def __init__(self, where: Path | None, done: int, wanted: int) -> None:
        super().__init__()
        self.where, self.done, self.wanted = where, done, wanted
