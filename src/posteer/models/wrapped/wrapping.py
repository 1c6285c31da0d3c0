"""Anything that predicts, as a model."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from torch import nn

from posteer.core.device import undisturbed
from posteer.core.errors import require
from posteer.core.spec import meant, shown, within
from posteer.models.function import DECLARED, Adapted, function_model, is_function_model
from posteer.models.protocol import Model
from posteer.models.wrapped.alphabets import Tokenizer
from posteer.models.wrapped.huggingface import HuggingFaceModel
from posteer.models.wrapped.modules import ModuleModel


@undisturbed()
def wrap(
    model: Any,
    *,
    tokenizer: Tokenizer | Any = None,
    alphabet: Any = None,
    text: str | Any = "",
    order: int | Any = None,
    name: str | None = None,
    vocab_size: int | None = None,
    max_length: int | Any = None,
    first: int | Any = None,
    embedding: nn.Module | Any = None,
    **how: Any,
) -> Model:
    """A model of anything that predicts the next token.

    A Hugging Face causal model (TransformerLens's and nnsight's too), with the `tokenizer` that
    reads its `text`; a torch module from ids to logits, which begins with the id `first` and looks
    ids up in `embedding`; a function of a batch of histories, with its `vocab_size`; an object with
    `start` and `advance`. It reads `max_length` tokens. `alphabet` are the tokens that it is
    steered over, as pieces of text (`" H, T"`) or as ids, with laws renormalised over them.
    `order` is that of its latents. A function may say more of itself, as `FunctionModel` has it:
    `prior`, `fingerprint`, `gives`, `all_positions`, `arrays`, `pad`.

    >>> coin = wrap(lambda histories: [[0.5, 0.5]] * len(histories), vocab_size=2, alphabet="H,T")
    >>> coin.vocabulary.show([0, 1, 1])
    'HTT'
    """
    if isinstance(model, Model):
        return model.over(alphabet, text)
    require(
        not isinstance(model, str),
        f"'{shown(model)}' is a name: posteer.open_model opens it, and every function takes it",
    )
    called = str(name or getattr(model, "__name__", type(model).__name__))
    for key in how:
        what = f"{meant(key, DECLARED)}expected one of {', '.join(DECLARED)}"
        require(key in DECLARED, f"{called}: unknown '{shown(key)}': {what}")
    _require_kinds(called, tokenizer, embedding, how.get("prior"))
    order = None if order is None else within(order, "order", 0)
    max_length = None if max_length is None else within(max_length, "max_length", 1)
    first = None if first is None else within(first, "first", 0)
    network = _network_of(model)
    says = vocab_size is not None or bool(how) or is_function_model(model)
    if network is not None and not says:
        words: dict[str, Any] = {
            "tokenizer": tokenizer,
            "alphabet": alphabet,
            "text": text,
            "name": called,
        }
        words["order"] = 1 if order is None else order
        if is_hugging_face(network) and keeps_cache(network):
            return HuggingFaceModel(network, **words)
        said: dict[str, Any] = {"first": first, "max_length": max_length, "embedding": embedding}
        return ModuleModel(network, **words, **said)
    if is_function(model):
        size = getattr(model, "vocab_size", vocab_size) if vocab_size is None else vocab_size
        own = getattr(model, "order", 1) if order is None else order
        require(size is not None, f"{called}: expected its vocab_size, how many tokens there are")
        if max_length is not None:
            how["max_length"] = max_length
        return function_model(model, called, size, own, **how).over(alphabet, text)
    made_of = model if isinstance(model, type) else type(model)
    adapted = Adapted(model, called if name else made_of.__name__)
    if name:  # whatever it calls itself: banks know it by that
        adapted.known_as, adapted.own_name, adapted.name = adapted.name, adapted.name, called
    return adapted.over(alphabet, text)


def _require_kinds(name: str, tokenizer: Any, embedding: Any, prior: Any) -> None:
    """Refuse what cannot be the thing it is given as."""
    reads = tokenizer is None or (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode"))
    require(reads, f"{name}: tokenizer {shown(tokenizer)}: expected one with encode and decode")
    looks_up = embedding is None or isinstance(embedding, nn.Module)
    require(looks_up, f"{name}: embedding {shown(embedding)}: expected a part of the network")
    known = prior is None or hasattr(prior, "family")
    require(known, f"{name}: prior {shown(prior)}: expected such as posteer.open_process('urn')")


def is_function(given: Any) -> bool:
    """Whether it is called with histories, and does not read token by token."""
    return callable(given) and not hasattr(given, "advance") and not isinstance(given, type)


def _network_of(given: Any) -> nn.Module | None:
    """The torch module that is given, or that an object of nnsight's is about."""
    if isinstance(given, nn.Module):
        return None if hasattr(given, "advance") else given
    if type(given).__module__.partition(".")[0] == "nnsight":
        held = (getattr(given, name, None) for name in ("_module", "_model"))  # once the latter
        return next((inner for inner in held if isinstance(inner, nn.Module)), None)
    return None


def is_hugging_face(given: Any) -> bool:
    """Whether it is one of theirs; where transformers was never imported nothing is."""
    theirs = sys.modules.get("transformers")
    return theirs is not None and isinstance(given, theirs.PreTrainedModel)


def keeps_cache(network: Any) -> bool:
    """Whether a model of theirs keeps keys and values: others are read whole."""
    return "past_key_values" in inspect.signature(network.forward).parameters
