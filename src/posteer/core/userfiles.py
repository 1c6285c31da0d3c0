"""Objects from a user's Python file, named as `./file.py:name`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require


def object_from_file(text: str) -> Any:
    """What the file calls by that name; the file is run as it is, nothing is written beside it."""
    path_text, _, attribute = text.rpartition(":")
    path = Path(path_text)
    require(bool(path_text) and bool(attribute), f"'{text}': expected ./file.py:name")
    require(path.is_file(), f"'{path_text}': no such file")
    try:
        names = runpy.run_path(str(path), run_name="posteer_user_file")
    except (Exception, SystemExit) as error:  # the user's file is the user's input
        detail = str(error).splitlines()[0] if str(error) else ""
        raise InputError(f"'{path_text}' raised {type(error).__name__}: {detail}") from error
    require(attribute in names, f"'{path_text}' defines no '{attribute}'")
    return names[attribute]
