"""`name(argument, key=value)`: the little language in which models and utilities are named.

Values are numbers, JSON lists (kernels, concentration tables) or bare words such as `sym-0.1`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from posteer.core.errors import InputError, require

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*$")


@dataclass(frozen=True)
class Spec:
    """A parsed name with its positional and keyword arguments."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)

    def take(self, positional: tuple[str, ...] = (), **defaults: Any) -> dict[str, Any]:
        """Bind arguments to names; `...` as a default marks a value that must be given."""
        require(
            len(self.arguments) <= len(positional),
            f"{self.name}: {len(self.arguments)} arguments given, expected at most "
            f"{len(positional)}",
        )
        given = dict(zip(positional, self.arguments, strict=False))
        for key, value in self.keywords.items():
            require(
                key in defaults,
                f"{self.name}: unknown setting '{key}', expected one of {', '.join(defaults)}",
            )
            require(key not in given, f"{self.name}: '{key}' is given twice")
            given[key] = value
        bound = {**defaults, **given}
        for key, value in bound.items():
            require(value is not ..., f"{self.name}: '{key}' is missing")
        return bound


def parse_spec(text: str) -> Spec:
    """Parse `name` or `name(...)`.

    >>> parse_spec("markov(vocab=3, order=2, concentration=0.5)").keywords
    {'vocab': 3, 'order': 2, 'concentration': 0.5}
    """
    text = text.strip()
    name, bracket, rest = text.partition("(")
    require(bool(_NAME.match(name)), f"'{text}': expected a name such as dyck or frequency(0.3)")
    if not bracket:
        return Spec(name)
    require(rest.endswith(")"), f"'{text}': the bracket after '{name}' is not closed")
    arguments: list[Any] = []
    keywords: dict[str, Any] = {}
    for part in _split_at_commas(rest[:-1], text):
        key, equals, value = part.partition("=")
        if equals and _NAME.match(key.strip()):
            require(key.strip() not in keywords, f"{name}: '{key.strip()}' is given twice")
            keywords[key.strip()] = _value(value, text)
        else:
            require(not keywords, f"'{text}': plain arguments come before key=value ones")
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
            raise InputError(f"'{part}': expected a condition such as first=0 or count(1)<=10")
        found.append(Condition(parse_spec(match[1]), match[2], match[3], part))
    return found


def split_names(text: str) -> list[str]:
    """Names separated by commas, those inside brackets left alone.

    >>> split_names("ppt-rb(samples=9,steps=5), gcg")
    ['ppt-rb(samples=9,steps=5)', 'gcg']
    """
    return [part.strip() for part in _split_at_commas(text, text) if part.strip()]


def _split_at_commas(body: str, text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in body:
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(character, 0)
        require(depth >= 0, f"'{text}': brackets do not match")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    require(depth == 0, f"'{text}': brackets do not match")
    if current.strip() or parts:
        parts.append(current)
    return parts


def _value(text: str, whole: str) -> Any:
    text = text.strip()
    require(bool(text), f"'{whole}': an argument is empty")
    if text[0] == "[" or re.match(r"^[-+.]?\d", text):
        try:
            return json.loads(re.sub(r"(?<![\d.])\.(?=\d)", "0.", text.removeprefix("+")))
        except json.JSONDecodeError as error:
            raise InputError(f"'{whole}': cannot read '{text}' as a number or a list") from error
    return text


def number(value: Any, what: str) -> float:
    """A finite float, or a refusal that names `what`."""
    ok = isinstance(value, int | float) and not isinstance(value, bool)
    require(ok and abs(value) < float("inf"), f"{what}: '{value}' is not a number")
    return float(value)


def whole_number(value: Any, what: str) -> int:
    """An int of Python's or numpy's, or a refusal that names `what`."""
    ok = hasattr(value, "__index__") and not isinstance(value, bool)
    require(ok, f"{what} {value}: expected a whole number")
    return int(value)


def integer(value: Any, what: str) -> int:
    """An int, or a refusal that names `what`."""
    ok = isinstance(value, int) and not isinstance(value, bool)
    require(ok, f"{what}: '{value}' is not a whole number")
    return int(value)


def table(value: Any, what: str) -> list[list[float]]:
    """A list of equally long rows of numbers; a flat list counts as one row."""
    require(isinstance(value, list) and len(value) > 0, f"{what}: '{value}' is not a list")
    rows = value if isinstance(value[0], list) else [value]
    require(all(isinstance(row, list) for row in rows), f"{what}: rows must all be lists")
    require(len({len(row) for row in rows}) == 1, f"{what}: rows differ in length")
    return [[number(entry, what) for entry in row] for row in rows]
