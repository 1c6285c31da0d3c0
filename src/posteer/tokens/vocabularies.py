"""Vocabularies: names for tokens, text to tokens and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posteer.core.errors import require
from posteer.core.spec import shown


@dataclass(frozen=True)
class Vocabulary:
    """Tokens 0 .. `size - 1` by their names, which are their numbers unless `names` are given.

    Names of one character each are written in a row, longer ones are separated.

    >>> Vocabulary(2).show([0, 1, 1]), Vocabulary(12).show([11, 0])
    ('011', '11,0')
    >>> Vocabulary(2, ("H", "T")).parse("HTT")
    (0, 1, 1)
    """

    size: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = len(self.names) in (0, self.size) and len(set(self.names)) == len(self.names)
        require(given, f"names {self.names}: expected {self.size} different ones")

    @property
    def in_a_row(self) -> bool:
        """Whether a text needs no separators."""
        return all(len(name) == 1 for name in self.names) if self.names else self.size <= 10

    def show(self, tokens: Sequence[int], separator: str = ",") -> str:
        """The inverse of `parse`."""
        texts = (self.names[token] if self.names else str(token) for token in tokens)
        return ("" if self.in_a_row else separator).join(texts)

    def parse(self, text: str, what: str = "prompt", separator: str = ",") -> tuple[int, ...]:
        """`010101`, or separated names; a text that is no row of tokens is refused. Tokens with
        names are known by number too, unless a name is a digit."""
        row = self._by_number() if self._all_digits(text, separator) else self
        if row is not self:
            return row.parse(text, what, separator)
        apart = not self.in_a_row or (separator in text and separator not in self.names)
        symbols = [part.strip() for part in (text.split(separator) if apart else text.strip())]
        require(len(symbols) > 0, f"the {what} is empty")
        return tuple(self._token(symbol, what) for symbol in symbols)

    def _by_number(self) -> Vocabulary:
        return self if any(name.isdigit() for name in self.names) else Vocabulary(self.size)

    def _all_digits(self, text: str, separator: str) -> bool:
        return bool(self.names) and all(c.isdigit() or c in separator for c in text.strip())

    def _token(self, symbol: str, what: str) -> int:
        if self.names:
            names = ", ".join(self.names)
            require(
                symbol in self.names, f"{what} has the symbol '{shown(symbol)}': expected {names}"
            )
            return self.names.index(symbol)
        whole = symbol.isascii() and symbol.isdigit() and len(symbol) < 19
        require(
            whole and int(symbol) < self.size,
            f"{what} has the symbol '{shown(symbol)}': expected symbols 0 to {self.size - 1}",
        )
        return int(symbol)


def counted(names: int) -> str:
    """How many names, in words."""
    return f"{names} name" if names == 1 else f"{names} names"


def names_given(given: object, size: int, model: str) -> tuple[str, ...]:
    """Names for all tokens of a model, as a text in which commas separate them, or as a list.

    >>> names_given("H,T", 2, "coin"), names_given(["a", "b"], 2, "coin")
    (('H', 'T'), ('a', 'b'))
    """
    listed = isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)
    require(listed or isinstance(given, str), f"alphabet {shown(given)}: expected such as H,T")
    parts = given.split(",") if isinstance(given, str) else list(given)  # type: ignore[call-overload]
    names = tuple(part.strip() for part in parts)
    require(
        len(names) == size,
        f"an alphabet of {counted(len(names))}: {model} has {size} tokens, expected one for each "
        "(only networks are steered over some of their tokens)",
    )
    require(
        all(names) and len(set(names)) == size,
        f"alphabet '{shown(','.join(names))}': expected {size} different names",
    )
    apart = all(len(name) == 1 for name in names) or not any("," in name for name in names)
    require(apart, f"alphabet {shown(list(names))}: a comma separates names, expected none in them")
    return names
