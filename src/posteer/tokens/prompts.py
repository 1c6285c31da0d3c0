"""Prompts as text and as tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posteer.core.shapes import Int
from posteer.tokens.vocabularies import Vocabulary


def parse_prompt(text: str, vocab_size: int) -> Int[Tensor, "m"]:
    """`010101`, or comma-separated for vocabularies of more than ten symbols.

    >>> parse_prompt("0110", 2).tolist()
    [0, 1, 1, 0]
    """
    return torch.tensor(Vocabulary(vocab_size).parse(text))


def parse_context(given: str | Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """Observed tokens from text, or as they are; none is a context too.

    >>> parse_context("", 2), parse_context("01", 2), parse_context([1, 0], 2)
    ((), (0, 1), (1, 0))
    """
    if isinstance(given, str):
        return Vocabulary(vocab_size).parse(given, "context") if given.strip() else ()
    return tuple(int(token) for token in given)


def show_prompt(tokens: Sequence[int], vocab_size: int) -> str:
    """The inverse of `parse_prompt`.

    >>> show_prompt([0, 1, 1], 2)
    '011'
    """
    return Vocabulary(vocab_size).show(tokens)
