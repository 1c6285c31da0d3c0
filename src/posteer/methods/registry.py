"""Methods by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from posteer.core.errors import InputError, require
from posteer.core.progress import Progress
from posteer.core.spec import Spec, integer, parse_spec
from posteer.methods.answers import Answer
from posteer.methods.auto import Auto
from posteer.methods.classes import method as classes
from posteer.methods.direct import exhaustive, gcg, prefixes, simple
from posteer.methods.ppt import method as ppt
from posteer.methods.protocol import Problem


@runtime_checkable
class Method(Protocol):
    """A way to find prompts. It sees the model only through its meter."""

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]: ...


def _auto(spec: Spec) -> Auto:
    """`auto`, or `auto(verify=8)`."""
    verify = integer(spec.take(verify=0)["verify"], "verify")
    require(verify >= 0, f"verify {verify}: expected at least 0")
    return Auto(open_method=open_method, verify=verify)


METHODS: dict[str, Callable[[Spec], Method]] = {
    "auto": _auto,
    "ppt": ppt.from_spec,
    "ppt-rb": ppt.from_spec,
    "ppt-analytic": ppt.from_spec,
    "ppt-rb-analytic": ppt.from_spec,
    "classes": classes.from_spec,
    "classes-analytic": classes.from_spec,
    "gcg": gcg.from_spec,
    "coordinate": simple.coordinate_from_spec,
    "random": simple.random_from_spec,
    "beam": simple.beam_from_spec,
    "simplex-pt": prefixes.from_spec,
    "real-pt": prefixes.from_spec,
    "soft-pt": prefixes.from_spec,
    "exhaustive": exhaustive.from_spec,
}


BANKED = ppt.PosteriorPrefixTuning | classes.ClassSearch | Auto
"""Methods that work on latents: a bank can be given to them, unless they are analytic."""


def open_method(text: str) -> Method:
    """A method by name, with settings if any: `ppt-rb`, `ppt(samples=2000,steps=500)`."""
    spec = parse_spec(text)
    if spec.name not in METHODS:
        raise InputError(f"unknown method '{spec.name}': expected one of {', '.join(METHODS)}")
    return METHODS[spec.name](spec)
