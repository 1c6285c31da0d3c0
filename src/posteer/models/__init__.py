"""Sequence models and how they are named on the command line."""

from __future__ import annotations

from posteer.errors import InputError
from posteer.models.base import Metered, ModelState, QueryCount, SequenceModel
from posteer.models.exact import ExactModel
from posteer.processes import open_process

__all__ = ["ExactModel", "Metered", "ModelState", "QueryCount", "SequenceModel", "open_model"]


def open_model(text: str) -> SequenceModel:
    """`exact:` and a process, as in `exact:urn` or `exact:markov(vocab=3,order=2)`."""
    kind, colon, process = text.partition(":")
    if kind == "exact" and colon:
        return ExactModel(open_process(process), name=text)
    raise InputError(
        f"unknown model '{text}': expected exact:urn, exact:beta-bernoulli or "
        "exact:markov(vocab=3,order=2,concentration=0.5)"
    )
