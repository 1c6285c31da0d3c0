"""The folder of what is kept between calls, and may be removed at any time."""

from __future__ import annotations

import os
from pathlib import Path

NAME, OFF = "POSTEER_CACHE", "off"
"""The variable that names the folder, or says that nothing is kept."""


def cache_folder() -> Path | None:
    """POSTEER_CACHE, or posteer in the user's cache; None where nothing is to be kept."""
    given = os.environ.get(NAME)
    if given == OFF:
        return None
    return Path(given) if given else _users_cache() / "posteer"


def _users_cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path.home() / ".cache"
