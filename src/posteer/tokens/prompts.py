"""Prompts as text and as tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.shapes import Int


def parse_prompt(text: str, vocab_size: int, what: str = "prompt") -> Int[Tensor, "m"]:
    """`010101`, or comma-separated for vocabularies of more than ten symbols."""
    parts = text.split(",") if "," in text or vocab_size > 10 else list(text.strip())
    tokens = []
    for part in parts:
        symbol = part.strip()
        require(
            symbol.isascii() and symbol.isdigit() and int(symbol) < vocab_size,
            f"{what} has the symbol '{symbol}': expected symbols 0 to {vocab_size - 1}",
        )
        tokens.append(int(symbol))
    require(len(tokens) > 0, f"the {what} is empty")
    return torch.tensor(tokens)


def parse_context(given: str | Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """Observed tokens from text, or as they are; none is a context too."""
    if isinstance(given, str):
        given = parse_prompt(given, vocab_size, "context").tolist() if given.strip() else ()
    return tuple(int(token) for token in given)


def show_prompt(tokens: list[int], vocab_size: int) -> str:
    """The inverse of `parse_prompt`."""
    return ("," if vocab_size > 10 else "").join(str(token) for token in tokens)
