"""Methods by name. One file each; one line here, or an entry point, registers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.errors import require
from posteer.core.registry import Registry
from posteer.core.spec import Spec, parse_spec, shown
from posteer.methods.protocol import Method

METHODS: Registry[Callable[[Spec], Method]] = Registry(
    "method",
    "methods",
    {
        "auto": "posteer.methods.auto:from_spec",
        "classes": "posteer.methods.classes:from_spec",
        "classes-analytic": "posteer.methods.classes:from_spec",
        "bounds": "posteer.methods.bounds.method:from_spec",
        "climb": "posteer.methods.climbing.method:from_spec",
        "climb-analytic": "posteer.methods.climbing.method:from_spec",
        "ppt": "posteer.methods.ppt.method:from_spec",
        "ppt-rb": "posteer.methods.ppt.method:from_spec",
        "ppt-analytic": "posteer.methods.ppt.method:from_spec",
        "ppt-rb-analytic": "posteer.methods.ppt.method:from_spec",
        "gcg": "posteer.methods.direct.gcg:from_spec",
        "coordinate": "posteer.methods.direct.coordinate:from_spec",
        "random": "posteer.methods.direct.random_search:from_spec",
        "beam": "posteer.methods.direct.beam:from_spec",
        "exhaustive": "posteer.methods.direct.exhaustive:from_spec",
        "simplex-pt": "posteer.methods.direct.prefixes:from_spec",
        "real-pt": "posteer.methods.direct.prefixes:from_spec",
        "soft-pt": "posteer.methods.direct.prefixes:from_spec",
    },
)
"""Each makes a method of its specification, as in `ppt(samples=2000,steps=500)`."""


def open_method(given: str | Method | Any) -> Method:
    """A method by name, with settings if any, or one that is given.

    >>> open_method("coordinate(restarts=3)").restarts
    3
    """
    if not isinstance(given, str):
        require(isinstance(given, Method), f"method {shown(given)}: expected a name such as ppt-rb")
        return given
    spec = parse_spec(given)
    return METHODS[spec.name](spec)
