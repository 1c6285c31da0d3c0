"""`name(argument, key=value)`: the little language in which models and utilities are named.

Values are numbers, JSON lists (kernels, concentration tables) or bare words such as `sym-0.1`.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.reading import DEEPEST, LARGEST, read_json

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*$")
_LONGEST = 2**20
"""Characters of a specification; a table of 2**16 numbers fits."""
_SHOWN = 80
"""Characters of a text that a refusal repeats."""


@dataclass(frozen=True)
class Spec:
    """A parsed name with its positional and keyword arguments."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)

    def take(self, positional: tuple[str, ...] = (), **defaults: Any) -> dict[str, Any]:
        """Bind arguments to names; `...` as a default marks a value that must be given."""
        n = len(self.arguments)
        require(n <= len(positional), f"{self.name}: {_too_many(n, positional, defaults)}")
        given = dict(zip(positional, self.arguments, strict=False))
        for key, value in self.keywords.items():
            require(
                key in defaults,
                f"{self.name}: unknown setting '{shown(key)}': {_expected(key, defaults)}",
            )
            require(key not in given, f"{self.name}: '{key}' is given twice")
            given[key] = value
        bound = {**defaults, **given}
        for key, value in bound.items():
            require(value is not ..., f"{self.name}: '{key}' is missing")
        return bound


class _ToldError(Exception):
    """What a maker takes."""


class _Inquiry(Spec):
    """A name that only wants to know its settings."""

    def take(self, positional: tuple[str, ...] = (), **defaults: Any) -> dict[str, Any]:
        raise _ToldError(defaults)


def settings_of(make: Callable[..., Any], name: str, *rest: Any) -> dict[str, Any]:
    """The settings that `make(spec, ..)` takes of a specification, with their defaults: `...` where
    one must be given.

    >>> settings_of(lambda spec: spec.take(steps=5, rate=...), "climb")
    {'steps': 5, 'rate': Ellipsis}
    """
    try:
        make(_Inquiry(name), *rest)
    except _ToldError as told:
        found: dict[str, Any] = told.args[0]
        return found
    return {}


def shown(text: object) -> str:
    """A text as a refusal repeats it: cut where it is long, on one line."""
    try:
        whole = str(text)
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        return f"(a {type(text).__name__} that is too long to show)"
    return whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]}... ({len(whole)} characters)"


def _quoted(value: object) -> str:
    """A text between quotes, anything else as it is."""
    return f"'{shown(value)}'" if isinstance(value, str) else shown(value)


def meant(name: str, known: Iterable[str]) -> str:
    """`did you mean ..? ` for a name that is near a known one, else nothing."""
    names = {one.replace("_", "-").lower(): one for one in known}
    near = difflib.get_close_matches(name[:_SHOWN].replace("_", "-").lower(), names, 1)
    return f"did you mean {names[near[0]]}? " if near else ""


def _expected(key: str, settings: dict[str, Any]) -> str:
    if not settings:
        return "it has none"
    return f"{meant(key, settings)}expected one of {', '.join(settings)}"


def _too_many(n: int, positional: tuple[str, ...], settings: dict[str, Any]) -> str:
    """What to write instead of so many plain arguments."""
    given = f"{n} plain argument{'s' * (n != 1)}"
    by_name = [name for name in settings if name not in positional]
    if by_name:
        example = ", ".join(f"{name}=.." for name in by_name)
        most = f"at most {len(positional)} and settings by name" if positional else "only settings"
        return f"{given}: expected {most}, as in {example}"
    most = f"at most {len(positional)} ({', '.join(positional)})" if positional else "none"
    return f"{given}: expected {most}"


def parse_spec(text: str | Any) -> Spec:
    """Parse `name` or `name(...)`.

    >>> parse_spec("markov(vocab=3, order=2, concentration=0.5)").keywords
    {'vocab': 3, 'order': 2, 'concentration': 0.5}
    """
    require(isinstance(text, str), f"{shown(text)}: expected a name such as dyck or urn")
    require(len(text) <= _LONGEST, f"'{shown(text)}': too long, expected at most 2**20 characters")
    text = text.strip()
    name, bracket, rest = text.partition("(")
    require(
        bool(_NAME.match(name)), f"'{shown(text)}': expected a name such as dyck or frequency(0.3)"
    )
    if not bracket:
        return Spec(name)
    require(rest.endswith(")"), f"'{shown(text)}': the bracket after '{name}' is not closed")
    arguments: list[Any] = []
    keywords: dict[str, Any] = {}
    for part in _split_at_commas(rest[:-1], text):
        key, equals, value = part.partition("=")
        if equals and _NAME.match(key.strip()):
            require(key.strip() not in keywords, f"{name}: '{shown(key.strip())}' is given twice")
            keywords[key.strip()] = _value(value, text)
        else:
            require(not keywords, f"'{shown(text)}': plain arguments come before key=value ones")
            arguments.append(_value(part, text))
    return Spec(name, tuple(arguments), keywords)


@dataclass(frozen=True)
class Condition:
    """`name(arguments) relation value`, the value as it was written."""

    spec: Spec
    relation: str
    value: str
    text: str


def parse_conditions(text: str) -> list[Condition]:
    """Conditions separated by semicolons, the left sides in the language of specifications.

    >>> [(c.spec.name, c.relation, c.value) for c in parse_conditions("first=0; count(1)<=4")]
    [('first', '=', '0'), ('count', '<=', '4')]
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = re.match(r"^([^<>=]+?)\s*(<=|>=|=)\s*(\S.*)$", part)
        if match is None:
            raise InputError(
                f"'{shown(part)}': expected a condition such as first=0 or count(1)<=10"
            )
        found.append(Condition(parse_spec(match[1]), match[2], match[3], part))
    return found


def split_names(text: str) -> list[str]:
    """Names separated by commas, those inside brackets left alone.

    >>> split_names("ppt-rb(samples=9,steps=5), gcg")
    ['ppt-rb(samples=9,steps=5)', 'gcg']
    """
    return [part.strip() for part in _split_at_commas(text, text) if part.strip()]


def _split_at_commas(body: str, text: str) -> list[str]:
    """At the commas outside of brackets; in time proportional to the length."""
    parts, depth, begin = [], 0, 0
    for found in re.finditer(r"[\[\](),]", body):
        mark = found[0]
        depth += (mark in "[(") - (mark in "])")
        require(depth >= 0, f"'{shown(text)}': brackets do not match")
        require(depth <= DEEPEST, f"'{shown(text)}': brackets more than {DEEPEST} deep")
        if mark == "," and depth == 0:
            parts.append(body[begin : found.start()])
            begin = found.end()
    require(depth == 0, f"'{shown(text)}': brackets do not match")
    rest = body[begin:]
    return [*parts, rest] if rest.strip() or parts else []


def _value(text: str, whole: str) -> Any:
    text = text.strip()
    require(bool(text), f"'{shown(whole)}': an argument is empty")
    if re.fullmatch(r"[\w.-]+:\d+", text):  # a machine and a port
        return text
    if text[0] == "[" or re.match(r"^[-+.]?\d", text):
        try:
            return read_json(
                re.sub(r"(?<![\d.])\.(?=\d)", "0.", text.removeprefix("+")), "an argument"
            )
        except InputError as error:
            why = str(error).partition(": ")[2]
            why = "" if why.startswith("not JSON") else f": {why}"
            raise InputError(
                f"'{shown(whole)}': cannot read '{shown(text)}' as a number or a list{why}"
            ) from error
    return text


def number(value: Any, what: str) -> float:
    """A finite float, or a refusal that names `what`."""
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    require(ok and abs(value) < float("inf"), f"{what}: '{shown(value)}' is not a number")
    return float(value)


def whole_number(value: Any, what: str) -> int:
    """An int of Python's or numpy's, or a refusal that names `what`."""
    try:
        ok = hasattr(value, "__index__") and not isinstance(value, bool)
        found = operator.index(value) if ok else 0
    except (TypeError, RuntimeError, ValueError):  # a tensor of several numbers, or of others
        ok = False
    require(ok, f"{what} {_quoted(value)}: expected a whole number")
    require(abs(found) < LARGEST, f"{what}: a whole number of more than 40 digits")
    return found


def within(value: Any, what: str, least: int, most: int | None = None) -> int:
    """A whole number in a range, or a refusal that names `what` and the range.

    >>> within(4, "horizon", 1, 10_000)
    4
    """
    found = whole_number(value, what)
    require(found >= least, f"{what} {found}: expected at least {least}")
    require(most is None or found <= most, f"{what} {found}: expected at most {most}")
    return found


def integer(value: Any, what: str) -> int:
    """An int, or a refusal that names `what`."""
    ok = isinstance(value, int) and not isinstance(value, bool)
    require(ok, f"{what}: '{shown(value)}' is not a whole number")
    return int(value)


def table(value: Any, what: str) -> list[list[float]]:
    """A list of equally long rows of numbers; a flat list counts as one row."""
    require(isinstance(value, list) and len(value) > 0, f"{what}: '{shown(value)}' is not a list")
    rows = value if isinstance(value[0], list) else [value]
    require(all(isinstance(row, list) for row in rows), f"{what}: rows must all be lists")
    require(len({len(row) for row in rows}) == 1, f"{what}: rows differ in length")
    require(len(rows[0]) > 0, f"{what}: rows are empty")
    return [[number(entry, what) for entry in row] for row in rows]
