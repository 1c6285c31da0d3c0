"""Models by what they are called: a shipped name or a folder, `kind:..`, or `./file.py:name`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.device import pick_device
from posteer.core.registry import Registry
from posteer.models.function import Adapted
from posteer.models.protocol import Model

KINDS: Registry[Callable[[str, str], Model]] = Registry(
    "kind of model",
    "models",
    {
        "exact": "posteer.models.exact:from_text",
        "file": "posteer.models.function:from_file",
        "folder": "posteer.models.shipped:load",
    },
)
"""Each opens a text on a device. `exact:urn` is opened by the kind before its colon."""


def open_model(given: str | Model | Any, device: str = "cpu") -> Model:
    """A model by name, or one that was given, with defaults for what it lacks.

    Names are those of shipped models, folders, `exact:` and a prior, or `./file.py:name`.

    >>> open_model("exact:urn").order
    1
    """
    if isinstance(given, Model):
        return given
    if not isinstance(given, str):
        return Adapted(given, type(given).__name__)
    kind, colon, _ = given.partition(":")
    if ".py:" in given:
        kind = "file"
    elif not colon or kind not in KINDS:
        kind = "folder"
    return KINDS[kind](given, pick_device(device))
