"""The few tokens of a large vocabulary that a model is steered over, and the text before them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from posteer.core.errors import InputError, require
from posteer.core.spec import shown, whole_number
from posteer.tokens.vocabularies import counted, names_given

EXAMPLE = "' H, T'"
MOST_TOKENS_STEERED = 256
"""Tokens of an alphabet; a network of more is steered over some of them."""

_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", ",": ","}


@runtime_checkable
class Tokenizer(Protocol):
    """What turns text into tokens, as Hugging Face's do."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class Alphabet:
    """Tokens by their ids in a network's vocabulary, and what they are called here."""

    ids: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


def pieces_of(given: Any) -> list[str | int]:
    """`' H, T'` as pieces of text, `#407,#312` as ids; a list holds texts or ids.

    A comma, a new line and a tab are written `\\,`, `\\n` and `\\t`.

    >>> pieces_of(" H, T"), pieces_of("#407,#312"), pieces_of([" H", 312])
    ([' H', ' T'], [407, 312], [' H', 312])
    """
    if isinstance(given, str):
        parts = [_unescaped(part) for part in re.split(r"(?<!\\),", given)]
        return [int(part[1:]) if re.fullmatch(r"#\d{1,9}", part) else part for part in parts]
    row = isinstance(given, Sequence | range) and not isinstance(given, bytes)
    require(row, f"alphabet {shown(given)}: expected a text such as {EXAMPLE}, or a list of tokens")
    return [one if isinstance(one, str) else whole_number(one, "alphabet: token") for one in given]


def _unescaped(part: str) -> str:
    return re.sub(r"\\([nt\\,])", lambda found: _ESCAPES[found[1]], part)


def open_alphabet(given: Any, tokenizer: Tokenizer | None, size: int, name: str) -> Alphabet:
    """The alphabet a user means, of a network with so many tokens; None is all of them."""
    if given is None:
        require(
            size <= MOST_TOKENS_STEERED,
            f"{name} has {size:,} tokens: expected an `alphabet` of at most {MOST_TOKENS_STEERED} "
            f"of them, such as {EXAMPLE}",
        )
        return Alphabet(tuple(range(size)))
    pieces = pieces_of(given)
    words = [piece for piece in pieces if isinstance(piece, str) and not piece.strip().isdigit()]
    if tokenizer is None and words:
        named = len(pieces) == size and all(isinstance(piece, str) for piece in pieces)
        require(named, _unreadable(pieces, words, size, name))
        return Alphabet(tuple(range(size)), names_given(pieces, size, name))
    ids = tuple(_id_of(piece, tokenizer, size, name) for piece in pieces)
    require(2 <= len(ids) <= MOST_TOKENS_STEERED, _wrong_number(len(ids)))
    for at, one in enumerate(ids):
        require(one not in ids[:at], f"alphabet: {_said(pieces[at])} is given twice")
    texts = [piece if isinstance(piece, str) else _text_of(piece, tokenizer) for piece in pieces]
    return Alphabet(ids, names_of(texts))


def _unreadable(pieces: list[str | int], words: list[str], size: int, name: str) -> str:
    """Why names alone do not say which tokens of a network are meant."""
    mixed = f"'{shown(words[0])}' and ids"
    given = counted(len(words)) if len(words) == len(pieces) else mixed
    return (
        f"an alphabet of {given}: {name} has {size:,} tokens and came without a tokenizer, "
        "expected one for each, or ids of those to steer over, as in '#0,#1'"
    )


def _wrong_number(n: int) -> str:
    return f"an alphabet of {n} tokens: expected 2 to {MOST_TOKENS_STEERED}"


def _said(piece: str | int) -> str:
    return f"token {piece}" if isinstance(piece, int) else f"'{shown(piece)}'"


def _id_of(piece: str | int, tokenizer: Tokenizer | None, size: int, name: str) -> int:
    if isinstance(piece, int):
        require(0 <= piece < size, f"alphabet: token {piece}: {name} has 0 to {size - 1}")
        return piece
    require(piece != "", f"alphabet: a piece of text is empty: expected such as {EXAMPLE}")
    if tokenizer is None:
        whole = piece.strip().isascii() and len(piece) < 10
        require(whole, f"alphabet: '{shown(piece)}': no token of {name}, which has {size:,}")
        return _id_of(int(piece), None, size, name)
    ids = tokenizer.encode(piece, add_special_tokens=False)
    if len(ids) != 1:
        parts = ", ".join(repr(tokenizer.decode([one])) for one in ids[:8])
        raise InputError(
            f"alphabet: {piece!r} is {len(ids)} tokens of {name} ({parts}): expected one"
        )
    return int(ids[0])


def _text_of(token: int, tokenizer: Tokenizer | None) -> str:
    return "" if tokenizer is None else tokenizer.decode([token])


def names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """What tokens are called: their texts without spaces where that tells them apart.

    >>> names_of([" H", " T"]), names_of([" H", "H"]), names_of(["", ""])
    (('H', 'T'), ('_H', 'H'), ())
    """
    bare = tuple(text.strip() for text in texts)
    if _tell_apart(bare):
        return bare
    full = tuple(repr(text)[1:-1].replace(" ", "_") for text in texts)
    return full if _tell_apart(full) else ()


def _tell_apart(names: tuple[str, ...]) -> bool:
    plain = all(name and name.isprintable() and " " not in name for name in names)
    several = any(len(name) > 1 for name in names)
    return (
        plain and len(set(names)) == len(names) and not (several and any("," in n for n in names))
    )


def opening_of(
    text: str | Any, tokenizer: Tokenizer | None, first: int | None, name: str
) -> tuple[int, ...]:
    """The tokens read before any history: what the tokenizer begins with, then the text.

    `first` begins a text where nothing else does. A list of ids is read as it is.
    """
    if isinstance(text, list | tuple):
        ids = tuple(whole_number(one, "text: token") for one in text)
        require(all(one >= 0 for one in ids), f"text {shown(text)}: expected words, or ids")
        return ids
    require(isinstance(text, str), f"text {shown(text)}: expected words")
    if tokenizer is None:
        require(text == "", f"{name} came without a tokenizer: a text cannot be read")
        return () if first is None else (first,)
    tried = text or "a"
    plain, whole = tokenizer.encode(tried, add_special_tokens=False), tokenizer.encode(tried)
    before = len(whole) - len(plain)
    if whole[before:] != plain:
        last = tokenizer.decode(whole[-1:])
        raise InputError(
            f"the tokenizer of {name} adds {last!r} after a text: expected one that adds nothing "
            "there (tokenizer.add_eos_token = False)"
        )
    whole = whole if text else whole[:before]
    if whole:
        return tuple(int(one) for one in whole)
    return () if first is None else (first,)
