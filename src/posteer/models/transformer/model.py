"""A trained transformer as a sequence model: caches, trees, gradients, fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.markov.family import MarkovFamily
from posteer.families.protocol import Prior
from posteer.models.protocol import Can, Model
from posteer.models.transformer.network import Block, Transformer
from posteer.models.transformer.packed import packed_log_probs
from posteer.models.trees import continuation_tree
from posteer.tokens.contexts import ContextSpace


@dataclass
class TransformerState:
    """Key-value caches of a batch of histories; `length` counts BOS.

    Advancing writes into the caches, so a state can be advanced once; fork it with `select`.
    """

    keys: list[Tensor]
    values: list[Tensor]
    length: int
    log_probs: Float[Tensor, "B V"]
    spent: bool = field(default=False, repr=False)

    def select(self, rows: Int[Tensor, "K"]) -> TransformerState:
        rows = rows.to(self.log_probs.device)
        return TransformerState(
            [cache[rows] for cache in self.keys],
            [cache[rows] for cache in self.values],
            self.length,
            self.log_probs[rows],
        )

    def with_room(self, capacity: int) -> TransformerState:
        """The same state with caches of at least `capacity` tokens."""
        if self.keys[0].shape[2] >= capacity:
            return self
        grown = [_grown(cache, capacity, self.length) for cache in self.keys + self.values]
        half = len(self.keys)
        return replace(self, keys=grown[:half], values=grown[half:])


def _grown(cache: Tensor, capacity: int, used: int) -> Tensor:
    shape = (*cache.shape[:2], capacity, cache.shape[3])
    larger = torch.zeros(shape, dtype=cache.dtype, device=cache.device)
    larger[:, :, :used] = cache[:, :, :used]
    return larger


class TransformerModel(Model):
    """A trained transformer as a model, on any device.

    Weights and activations keep their type. With `narrow_cache` (rollouts set it) the key-value
    cache on a GPU is held in bfloat16, as reading it bounds the speed.
    """

    can = Can.READ_TREES | Can.ONE_HOTS | Can.EMBED | Can.NARROW
    probed = False

    def __init__(self, network: Transformer, name: str, prior: Prior | None = None) -> None:
        self.network, self.name, self.prior = network.eval(), name, prior
        self.vocab_size = network.shape.vocab_size
        own = MarkovFamily(ContextSpace(self.vocab_size, network.shape.order))
        self.family = own if prior is None else prior.family
        self.max_length = None if network.positions is None else network.shape.max_tokens - 1
        self._fingerprint: str | None = None

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._like.device

    def embeddings(self) -> Float[Tensor, "V W"]:
        return self.network.tokens.weight.detach()[: self.vocab_size]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of architecture and weights: what a bank names as its model."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.network)
        return self._fingerprint

    def to(self, device: str) -> TransformerModel:
        """Move the network; a state made before stays where it was."""
        if torch.device(device) != self.device:
            self.network.to(device)
        return self

    @property
    def _like(self) -> Tensor:
        return self.network.head.weight

    @property
    def _cache_type(self) -> torch.dtype:
        narrow = self.narrow_cache and self.device.type == "cuda"
        return torch.bfloat16 if narrow else self._like.dtype

    def batch_limit(self, n_tokens: int) -> int:
        """As many as their key-value caches fit into a gibibyte, or a GPU's free memory."""
        shape = self.network.shape
        per_token = 2 * shape.layers * shape.width * self._cache_type.itemsize
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
            return max(1, int(0.85 * free) // (per_token * (n_tokens + 2)))
        capacity = 2 ** math.ceil(math.log2(n_tokens + 2))
        return max(1, 2**30 // (per_token * capacity))

    @torch.no_grad()
    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        logits = self.network(tokens.to(self._like.device))
        return logits.float().log_softmax(-1)

    def log_predictive_of_rows(self, rows: Float[Tensor, "B T V"]) -> Float[Tensor, "B T1 V"]:
        """Differentiable in `rows`, which are one-hot for hard prompts."""
        logits = self.network.logits_of_rows(rows.to(self._like))
        return logits.float().log_softmax(-1)

    @torch.no_grad()
    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Every continuation of every prompt; what prompts begin with in common is read once."""
        return packed_log_probs(self.network, prompts, horizon)

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        """The same: nothing is read twice either way."""
        return self.continuation_log_probs(prompts, horizon)

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in `rows`: one-hot for hard prompts, distributions or any numbers."""
        return self.continuation_log_probs_of_embeddings(
            self.network.embed(rows.to(self._like)), horizon
        )

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in the embeddings of the prompt's tokens."""
        tree = continuation_tree(self.vocab_size, horizon)
        return self.network.tree_log_probs(embedded.to(self._like), tree)

    @torch.no_grad()
    def start(self, batch: int, capacity: int = 16) -> Any:
        """Empty histories; `capacity` tokens are preallocated, more are added by doubling."""
        bos = torch.full((batch,), self.network.shape.vocab_size, device=self._like.device)
        return self._read(self._unread(batch, capacity), bos)

    def _unread(self, batch: int, capacity: int) -> TransformerState:
        """Caches before any token, BOS neither; what comes first is not said yet."""
        shape = self.network.shape
        size = (batch, shape.heads, max(capacity + 1, 2), shape.width // shape.heads)
        caches = [
            torch.zeros(size, dtype=self._cache_type, device=self.device)
            for _ in range(2 * shape.layers)
        ]
        law = torch.empty(batch, shape.vocab_size, device=self._like.device)
        return TransformerState(caches[: shape.layers], caches[shape.layers :], 0, law)

    @torch.no_grad()
    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        after = self._read(state, tokens.to(self._like.device))
        return after.log_probs, after

    def _read(self, state: TransformerState, tokens: Int[Tensor, "B"]) -> TransformerState:
        require(not state.spent, "this state was advanced already: fork it with select first")
        network, length = self.network, state.length
        network.require_positions(length + 1)
        if state.keys[0].shape[2] <= length:
            state = state.with_room(2 * length)
        x = network.tokens(tokens)[:, None]
        if network.positions is not None:
            x = x + network.positions.weight[length]
        for block, keys, values in zip(network.blocks, state.keys, state.values, strict=True):
            assert isinstance(block, Block)
            x = block.extend(x, keys, values, length)
        log_probs = network.head(network.norm(x))[:, 0].float().log_softmax(-1)
        state.spent = True
        return TransformerState(state.keys, state.values, length + 1, log_probs)


def fingerprint(network: Transformer) -> str:
    """SHA-256 of the architecture and of every weight by name, in float32."""
    digest = hashlib.sha256(json.dumps(asdict(network.shape), sort_keys=True).encode())
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()
