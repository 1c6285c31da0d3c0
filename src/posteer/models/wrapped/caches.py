"""Key-value caches of Hugging Face models: of a text, shared; of histories, grown in place.

Classes of theirs are made when they are needed, so that nothing is imported before. Models that
hand over plain tuples (some, in version 4) get and give those.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]
"""Keys and values `[B, H, T, D]` of each layer."""


def layers_of(past: Any) -> Layers:
    """What a model gave back, as plain tensors."""
    if isinstance(past, tuple | list):
        return [(layer[0], layer[1]) for layer in past]
    if hasattr(past, "layers"):  # from version 4.56 on
        return [(layer.keys, layer.values) for layer in past.layers]
    return list(zip(past.key_cache, past.value_cache, strict=True))


def read_with_cache(network: Any, ids: Tensor) -> tuple[Tensor, Any]:
    """Logits of a text, and what the model keeps of it: a cache of their class, plain tuples where
    it knows no such class, None where it keeps nothing."""
    from transformers import DynamicCache

    try:
        found = network(input_ids=ids, past_key_values=DynamicCache(), use_cache=True)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        found = network(input_ids=ids, use_cache=True)
    return found.logits, getattr(found, "past_key_values", None)


@cache
def _classes() -> tuple[Any, Any]:
    from transformers import DynamicCache

    class Kept(DynamicCache):  # type: ignore[misc]
        """What is shared by both: how long a history is before a pass."""

        def __init__(self, length: int) -> None:
            super().__init__()
            self.length = length

        def get_seq_length(self, layer_idx: int = 0) -> int:
            return self.length

        def get_mask_sizes(self, query: Any, layer_idx: int = 0) -> tuple[int, int]:
            return self.length + (query if isinstance(query, int) else len(query)), 0

    class Shared(Kept):
        """A text that all histories begin with; what is read after it is not kept."""

        def __init__(self, text: Layers) -> None:
            super().__init__(text[0][0].shape[2])
            self.text = text

        def update(
            self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
        ) -> tuple[Tensor, Tensor]:
            keys, values = self.text[layer_idx]
            return _behind(keys, key_states), _behind(values, value_states)

    class Growing(Kept):
        """Histories that grow in place."""

        def __init__(self, layers: Layers, length: int) -> None:
            super().__init__(length)
            self.grown = layers

        def update(
            self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
        ) -> tuple[Tensor, Tensor]:
            keys, values = self.grown[layer_idx]
            end = self.length + key_states.shape[2]
            keys[:, :, self.length : end] = key_states
            values[:, :, self.length : end] = value_states
            return keys[:, :, :end], values[:, :, :end]

    return Shared, Growing


def _behind(text: Tensor, own: Tensor) -> Tensor:
    return torch.cat([text.expand(len(own), -1, -1, -1), own], 2)


def shared_cache(text: Layers, batch: int, plain: bool) -> Any:
    """A text's cache for so many histories, expanded and not copied."""
    if plain:
        return tuple((k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1)) for k, v in text)
    return _classes()[0](text)


def growing_cache(layers: Layers, length: int, plain: bool) -> Any:
    """A cache that histories of so many tokens are in, with room for more."""
    if plain:
        return tuple((k[:, :, :length], v[:, :, :length]) for k, v in layers)
    return _classes()[1](layers, length)


def with_room(layers: Layers, batch: int, length: int, room: int) -> Layers:
    """Copies of the first tokens of caches for so many histories, with room for more."""
    return [
        (_roomy(keys, batch, length, room), _roomy(values, batch, length, room))
        for keys, values in layers
    ]


def _roomy(tensor: Tensor, batch: int, length: int, room: int) -> Tensor:
    larger = tensor.new_empty(batch, tensor.shape[1], length + room, tensor.shape[3])
    larger[:, :, :length] = tensor[:, :, :length]
    return larger


def rows_of(layers: Layers, rows: Tensor, length: int) -> Layers:
    """The caches of some rows; what is not written yet is not copied."""
    return [(keys[rows, :, :length], values[rows, :, :length]) for keys, values in layers]


def bytes_per_token(layers: Sequence[tuple[Tensor, Tensor]]) -> int:
    """What a token of a history takes."""
    return sum(
        side.shape[1] * side.shape[3] * side.dtype.itemsize for layer in layers for side in layer
    )
