"""Models by what they are called: a shipped name or a folder, `kind:..`, `kind(..)`, or
`./file.py:name`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.device import pick_device, undisturbed
from posteer.core.registry import Registry
from posteer.models.meter import metered
from posteer.models.protocol import Model

KINDS: Registry[Callable[[str, str], Model]] = Registry(
    "kind of model",
    "models",
    {
        "exact": "posteer.models.exact:from_text",
        "file": "posteer.models.function:from_file",
        "folder": "posteer.models.shipped:load",
        "hf": "posteer.models.wrapped.folders:from_text",
        "personas": "posteer.models.personas:from_text",
        "smollm2": "posteer.models.wrapped.smollm2:from_text",
    },
)
"""Each opens a text on a device. `exact:urn` is opened by the kind before its colon,
`personas(urn,exact:urn)` by the one before its bracket, `smollm2` by its name alone."""

ALONE = ("smollm2",)


@undisturbed()
def open_model(
    given: str | Model | Any, device: Any = "auto", *, alphabet: Any = None, text: str | Any = ""
) -> Model:
    """A model by name, or one that was given, with defaults for what it lacks.

    Names are those of shipped models, folders, `exact:` and a prior, `./file.py:name`, `hf:` and a
    folder, `smollm2`, or `personas(..)` of any of these. A language model reads `text` first and is
    steered over the tokens of `alphabet`; tokens of any other get names by it. A network is on
    `device` then: `auto` is the GPU where there is one; with None, what is given as an object stays
    where it is.

    >>> open_model("exact:urn").order
    1
    """
    place = pick_device("auto" if device is None else device)
    if isinstance(given, str):
        return KINDS[_kind_of(given)](given, place).over(alphabet, text)
    from posteer.models.wrapped.wrapping import wrap  # other people's networks: not for a name

    opened = wrap(given, alphabet=alphabet, text=text)
    return opened if device is None and isinstance(given, Model) else opened.to(place)


def _kind_of(text: str) -> str:
    """The bracket first: what is inside may be called anything."""
    if text in ALONE:
        return text
    before, bracket, _ = text.partition("(")
    if bracket and before in KINDS:
        return before
    before, colon, _ = text.partition(":")
    if ".py:" in text:
        return "file"
    return before if colon and before in KINDS else "folder"


def open_metered(given: str | Model | Any, device: Any = "auto") -> Model:
    """The same behind a meter; what has one already stays where it is."""
    if isinstance(given, Model) and given.metered:
        return given
    return metered(open_model(given, device))
