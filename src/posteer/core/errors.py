"""The one error a user can cause, the helpers that raise it, and being interrupted."""

from __future__ import annotations

from pathlib import Path


class InputError(ValueError):
    """Input refused at the boundary: one line that names the value and what was expected."""


def require(condition: bool, message: str) -> None:
    """Refuse the input with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while rollouts were drawn: `done` of them are kept in `folder`, of at most `wanted`.

    Without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None, done: int, wanted: int) -> None:
        super().__init__()
        self.folder, self.done, self.wanted = folder, done, wanted
