"""The one error a user can cause, and the helpers that raise it."""

from __future__ import annotations


class InputError(ValueError):
    """Input refused at the boundary: one line that names the value and what was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def require(condition: bool, message: str) -> None:
    """Refuse the input with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)
