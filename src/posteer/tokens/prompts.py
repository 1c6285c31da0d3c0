"""Prompts as text and as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.shapes import Int
from posteer.core.spec import shown, whole_number
from posteer.tokens.vocabularies import Vocabulary


def parse_prompt(
    given: str | Sequence[int] | Any, vocabulary: Vocabulary | int
) -> Int[Tensor, "m"]:
    """`010101`, or comma-separated for vocabularies of more than ten symbols; or as tokens.

    >>> parse_prompt("0110", 2).tolist(), parse_prompt([1, 0], 2).tolist()
    ([0, 1, 1, 0], [1, 0])
    """
    known = _known(vocabulary)
    tokens = known.parse(given) if isinstance(given, str) else _tokens(given, "prompt", known.size)
    require(len(tokens) > 0, "the prompt is empty")
    return torch.tensor(tokens)


def _known(vocabulary: Vocabulary | int) -> Vocabulary:
    return Vocabulary(vocabulary) if isinstance(vocabulary, int) else vocabulary


def _tokens(given: Any, what: str, vocab_size: int) -> tuple[int, ...]:
    """Tokens in a list, an array or a tensor."""
    plain = given.tolist() if hasattr(given, "tolist") else given
    row = isinstance(plain, Sequence | range) and not isinstance(plain, bytes)
    require(row, f"{what} {shown(given)}: expected a text such as 0110, or a list of tokens")
    tokens = tuple(whole_number(token, f"{what}: token") for token in plain)
    wrong = [token for token in tokens if not 0 <= token < vocab_size]
    require(
        not wrong,
        f"{what} has the symbol {wrong[0] if wrong else 0}: expected symbols 0 to {vocab_size - 1}",
    )
    return tokens


def parse_context(
    given: str | Sequence[int] | Any, vocabulary: Vocabulary | int
) -> tuple[int, ...]:
    """Observed tokens from text, or as they are; none, or None, is a context too.

    >>> parse_context("", 2), parse_context("01", 2), parse_context([1, 0], 2)
    ((), (0, 1), (1, 0))
    """
    known = _known(vocabulary)
    if isinstance(given, str):
        return known.parse(given, "context") if given.strip() else ()
    return () if given is None else _tokens(given, "context", known.size)


def show_prompt(tokens: Sequence[int], vocabulary: Vocabulary | int) -> str:
    """The inverse of `parse_prompt`.

    >>> show_prompt([0, 1, 1], 2)
    '011'
    """
    return _known(vocabulary).show(tokens)
