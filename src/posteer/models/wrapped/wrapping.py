"""Anything that predicts, as a model."""

from __future__ import annotations

import sys
from typing import Any

from posteer.core.device import undisturbed
from posteer.models.function import Adapted, function_model, is_function_model
from posteer.models.protocol import Model
from posteer.models.wrapped.alphabets import Tokenizer
from posteer.models.wrapped.huggingface import HuggingFaceModel


@undisturbed()
def wrap(
    model: Any,
    *,
    tokenizer: Tokenizer | Any = None,
    alphabet: Any = None,
    text: str | Any = "",
    order: int = 1,
    name: str | None = None,
) -> Model:
    """A model of anything that predicts the next token.

    A Hugging Face causal model, with the `tokenizer` that reads its `text`; a function with
    `vocab_size` and `order` set on it; an object with `start` and `advance`. `alphabet` are the
    tokens it is steered over, as pieces of text (`" H, T"`) or as ids; laws are renormalised over
    them. `order` is that of its latents.

    >>> coin = lambda histories: [[0.5, 0.5]] * len(histories)
    >>> coin.vocab_size, coin.order = 2, 0
    >>> wrap(coin, alphabet="H,T").vocabulary.show([0, 1, 1])
    'HTT'
    """
    if isinstance(model, Model):
        return model.over(alphabet, text)
    called = str(name or getattr(model, "__name__", type(model).__name__))
    if is_hugging_face(model):
        return HuggingFaceModel(
            model, tokenizer=tokenizer, alphabet=alphabet, text=text, order=order, name=called
        )
    if is_function_model(model):
        return function_model(model, called).over(alphabet, text)
    made_of = model if isinstance(model, type) else type(model)
    return Adapted(model, name or made_of.__name__).over(alphabet, text)


def is_hugging_face(given: Any) -> bool:
    """Whether it is one of theirs; where transformers was never imported nothing is."""
    theirs = sys.modules.get("transformers")
    return theirs is not None and isinstance(given, theirs.PreTrainedModel)
