"""What a page asks for, checked: names from the menu, numbers within bounds, nothing else.

A utility comes as numbers and its name is made here, so that no text of a page is ever parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posteer.core.errors import require
from posteer.core.limits import ENUMERABLE_CONTINUATIONS, MOST_SEED, MOST_TOKENS
from posteer.core.spec import number, shown, within
from posteer.explorer.menu import Menu, Opened
from posteer.methods.registry import METHODS
from posteer.sweeps.configuration import canonical

MOST_LENGTH = 200
MOST_HORIZON = 8
DIGITS = 4
"""Of a target's probabilities."""


@dataclass(frozen=True)
class Cell:
    """A model, a utility by its name, and the lengths of prompt and continuation."""

    model: Opened
    utility: str
    length: int
    horizon: int


@dataclass(frozen=True)
class Asked:
    """A run: a cell, a method and a seed; `beside` runs others on it, to compare."""

    cell: Cell
    method: str
    seed: int
    beside: bool


def fields_of(data: Any, *names: str) -> Mapping[str, Any]:
    """A table with these entries and no others."""
    good = isinstance(data, dict) and data.keys() == set(names)
    require(good, f"expected {', '.join(names)}")
    return data


def cell_of(menu: Menu, data: Mapping[str, Any]) -> Cell:
    """The cell of a request; its length is given or that of its prompt."""
    require(isinstance(data["model"], str), "model: expected a text")
    opened = menu.open(data["model"])
    given = data["length"] if "length" in data else len(tokens_of(data["prompt"]))
    length = within(given, "length", 1, MOST_LENGTH)
    horizon = within(data["horizon"], "horizon", 1, MOST_HORIZON)
    model = opened.model
    many = model.vocab_size**horizon
    require(
        many <= ENUMERABLE_CONTINUATIONS,
        f"horizon {horizon}: {many:,} continuations, expected at most {ENUMERABLE_CONTINUATIONS:,}",
    )
    longest = model.max_length
    require(
        longest is None or length + horizon - 1 <= longest,
        f"length {length} and horizon {horizon}: this model reads {longest} tokens",
    )
    return Cell(opened, utility_of(data["utility"], model.vocab_size), length, horizon)


def asked_of(menu: Menu, data: Any) -> Asked:
    """A run that is asked for."""
    given = fields_of(data, "model", "utility", "length", "horizon", "method", "seed", "beside")
    method = given["method"]
    known = isinstance(method, str) and method in METHODS.names()
    require(known, f"method '{shown(method)}': expected one of {', '.join(METHODS.names())}")
    require(isinstance(given["beside"], bool), "beside: expected true or false")
    seed = within(given["seed"], "seed", -MOST_SEED, MOST_SEED)
    return Asked(cell_of(menu, given), method, seed, given["beside"])


def tokens_of(given: Any) -> list[int]:
    """Tokens of a prompt."""
    good = isinstance(given, list) and 0 < len(given) <= MOST_LENGTH
    good = good and all(type(token) is int and 0 <= token < MOST_TOKENS for token in given)
    require(good, f"prompt: expected 1 to {MOST_LENGTH} tokens")
    return list(given)


def utility_of(given: Any, vocab: int) -> str:
    """The name of a utility: `{"kind": "target", "rows": [[0.1, 0.9], [0.9, 0.1]]}`.

    >>> utility_of({"kind": "target", "rows": [[0.1, 0.9], [0.9, 0.1]]}, 2)
    'reverse-xent(sym-0.1)'
    """
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind == "dyck":
        fields_of(given, "kind")
        return "dyck"
    if kind == "frequency":
        fields_of(given, "kind", "target", "token")
        share = round(_probability(given["target"]), DIGITS)
        token = within(given["token"], "token", 0, vocab - 1)
        return canonical(f"frequency({share}{'' if token == 1 else f',token={token}'})")
    require(kind == "target", "utility: expected dyck, frequency or target")
    fields_of(given, "kind", "rows")
    return canonical(f"reverse-xent({_target(given['rows'], vocab)})")


def _target(rows: Any, vocab: int) -> str:
    """A table of laws, by the name that it has where it has one."""
    laws = rows if isinstance(rows, list) else []
    good = len(laws) in (1, vocab) and all(isinstance(law, list) for law in laws)
    require(
        good and all(len(law) == vocab for law in laws),
        f"rows: expected 1 or {vocab} of {vocab} probabilities",
    )
    table = [_law(law) for law in laws]
    if vocab == 2 and len(table) == 1:
        return f"tau-{table[0][1]}"
    if vocab == 2 and table[0] == table[1][::-1]:
        return f"sym-{table[0][0]}"
    return str(table).replace(" ", "")


def _law(values: list[Any]) -> list[float]:
    """Probabilities to few digits that sum to one: the largest takes what rounding left."""
    given = [_probability(value) for value in values]
    require(sum(given) > 0, "rows: expected some probability in each")
    law = [round(p / sum(given), DIGITS) for p in given]
    most = law.index(max(law))
    law[most] = round(1 - sum(p for at, p in enumerate(law) if at != most), DIGITS)
    return law


def _probability(value: Any) -> float:
    found = number(value, "probability")
    require(0 <= found <= 1, f"probability {found:g}: expected 0 to 1")
    return found
