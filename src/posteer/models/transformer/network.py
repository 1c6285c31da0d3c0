"""The Bayes-filtered transformer: a pre-norm decoder that predicts the next token.

Learned token embeddings with a BOS token, positions `none` or `learned`, causal attention, GELU
feed-forward, final norm. Layer by layer it is `torch.nn.TransformerEncoderLayer(norm_first=True)`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from posteer.core import Bool, Float, Int, require
from posteer.core.limits import MOST_TOKENS, ROLLOUT_LENGTH
from posteer.core.spec import whole_number, within
from posteer.models.trees import TokenTree
from posteer.tokens.contexts import ContextSpace

Positions = Literal["none", "learned"]

MOST_PARAMETERS = 2**29
"""Of a network: two gibibytes of float32."""

FLOAT = torch.float32
"""Of its weights, whatever torch's default is."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Shape of a transformer. `order` is that of the latent kernels it is trained to filter;
    learned positions cover sequences of `max_tokens` (BOS included)."""

    vocab_size: int
    order: int
    layers: int
    width: int
    heads: int
    feedforward: int
    positions: Positions = "none"
    max_tokens: int = ROLLOUT_LENGTH

    def __post_init__(self) -> None:
        whole = (whole_number(getattr(self, name), name) for name in ("vocab_size", "order"))
        ContextSpace(*whole)
        for name in ("layers", "width", "heads", "feedforward", "max_tokens"):
            within(getattr(self, name), name, 1, MOST_TOKENS)
        per_layer = self.width * (4 * self.width + 2 * self.feedforward)
        tables = self.width * (2 * self.vocab_size + self.max_tokens)
        require(
            self.layers * per_layer + tables <= MOST_PARAMETERS,
            f"{self.layers} layers of width {self.width} and {self.feedforward}: expected at most "
            f"{MOST_PARAMETERS} parameters",
        )
        require(
            self.width % self.heads == 0,
            f"width {self.width} cannot be shared by {self.heads} heads",
        )
        require(
            self.positions in ("none", "learned"),
            f"positions '{self.positions}': expected none or learned",
        )

    @property
    def n_weights(self) -> int:
        """How many tensors a network has."""
        outside, inside = (1 for _ in self._outside()), (1 for _ in self._inside())
        return sum(outside) + self.layers * sum(inside)

    def weights(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The name and shape of each tensor of a network, without building one."""
        yield from self._outside()
        for layer in range(self.layers):
            for name, size in self._inside():
                yield f"blocks.{layer}.{name}", size

    def _outside(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "tokens.weight", (self.vocab_size + 1, self.width)
        if self.positions == "learned":
            yield "positions.weight", (self.max_tokens, self.width)
        yield from _affine("norm", self.width)
        yield from _affine("head", self.vocab_size, self.width)

    def _inside(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from _affine("attention_norm", self.width)
        yield from _affine("attention.qkv", 3 * self.width, self.width)
        yield from _affine("attention.out", self.width, self.width)
        yield from _affine("feedforward_norm", self.width)
        yield from _affine("up", self.feedforward, self.width)
        yield from _affine("down", self.width, self.feedforward)


def _affine(name: str, *size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of a linear map, or of a norm's gains."""
    yield f"{name}.weight", size
    yield f"{name}.bias", size[:1]


class Attention(nn.Module):
    """Causal self-attention, over a whole sequence or over a cache plus one token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.narrow = width // heads in (16, 32) and _has_triton()
        self.qkv = nn.Linear(width, 3 * width, dtype=FLOAT)
        self.out = nn.Linear(width, width, dtype=FLOAT)

    def ask(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """Queries alone."""
        width = x.shape[-1]
        return functional.linear(x, self.qkv.weight[:width], self.qkv.bias[:width])

    def show(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W2"]:
        """Keys and values alone."""
        width = x.shape[-1]
        return functional.linear(x, self.qkv.weight[width:], self.qkv.bias[width:])

    def look_back(
        self, x: Float[Tensor, "B T W"], first: int, mask: Bool[Tensor, "T1 T"]
    ) -> Float[Tensor, "B T1 W"]:
        """As `forward`, from token `first` on."""
        query = self.ask(x[:, first:]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = self.show(x).unflatten(-1, (2, self.heads, -1)).transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(
        self, x: Float[Tensor, "B T W"], mask: Bool[Tensor, "T T"] | None = None
    ) -> Float[Tensor, "B T W"]:
        """Causal, or as the mask says."""
        if mask is None and self._has_kernel(x):
            from posteer.models.transformer.narrow import attend

            return self.out(attend(self.qkv(x).unflatten(-1, (3, self.heads, -1))).flatten(2))
        query, key, value = self._project(x)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def extend(
        self, x: Float[Tensor, "B 1 W"], keys: Tensor, values: Tensor, length: int
    ) -> Float[Tensor, "B 1 W"]:
        """Attend from one new token, writing its key and value into the cache at `length`."""
        query, key, value = self._project(x)
        keys[:, :, length : length + 1] = key
        values[:, :, length : length + 1] = value
        mixed = attend_to_cache(query, keys, values, length + 1)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _has_kernel(self, x: Tensor) -> bool:
        """In bfloat16 on a GPU, as in training, heads too narrow for torch's kernels have one."""
        halved = torch.is_autocast_enabled("cuda")
        halved = halved and torch.get_autocast_dtype("cuda") == torch.bfloat16
        return self.narrow and x.is_cuda and halved

    def _project(self, x: Float[Tensor, "B T W"]) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def attend_to_cache(
    query: Float[Tensor, "B H 1 D"],
    keys: Float[Tensor, "B H T D"],
    values: Float[Tensor, "B H T D"],
    length: int,
) -> Float[Tensor, "B H 1 D"]:
    """Attention of one token to the first `length` of a cache, in the query's precision."""
    width = query.shape[-1]
    if keys.is_cuda and _has_triton() and width & (width - 1) == 0 and width >= 16:
        from posteer.models.transformer.decode import decode

        return decode(query, keys, values, length)
    seen = slice(0, length)
    key, value = keys[:, :, seen].to(query.dtype), values[:, :, seen].to(query.dtype)
    return functional.scaled_dot_product_attention(query, key, value)


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


class Block(nn.Module):
    """Norm, attention, norm, feed-forward, each added to the stream."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width, dtype=FLOAT)
        self.attention = Attention(shape.width, shape.heads)
        self.feedforward_norm = nn.LayerNorm(shape.width, dtype=FLOAT)
        self.up = nn.Linear(shape.width, shape.feedforward, dtype=FLOAT)
        self.down = nn.Linear(shape.feedforward, shape.width, dtype=FLOAT)

    def forward(
        self, x: Float[Tensor, "B T W"], mask: Bool[Tensor, "T T"] | None = None
    ) -> Float[Tensor, "B T W"]:
        return self.feed(x + self.attention(self.attention_norm(x), mask))

    def look_back(
        self, x: Float[Tensor, "B T W"], first: int, mask: Bool[Tensor, "T1 T"]
    ) -> Float[Tensor, "B T1 W"]:
        """As `forward`, from token `first` on: what the last layer is asked for."""
        mixed = self.attention.look_back(self.attention_norm(x), first, mask)
        return self.feed(x[:, first:] + mixed)

    def extend(
        self, x: Float[Tensor, "B 1 W"], keys: Tensor, values: Tensor, length: int
    ) -> Float[Tensor, "B 1 W"]:
        mixed = self.attention.extend(self.attention_norm(x), keys, values, length)
        return self.feed(x + mixed)

    def feed(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        return x + self.down(functional.gelu(self.up(self.feedforward_norm(x))))


class Transformer(nn.Module):
    """The network. Token `vocab_size` is BOS."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab_size + 1, shape.width, dtype=FLOAT)
        self.positions = (
            nn.Embedding(shape.max_tokens, shape.width, dtype=FLOAT)
            if shape.positions == "learned"
            else None
        )
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, dtype=FLOAT)
        self.head = nn.Linear(shape.width, shape.vocab_size, dtype=FLOAT)
        self.apply(self._initialise)
        small = 0.02 / (2 * shape.layers) ** 0.5  # residual branches start small, by depth
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):
                nn.init.normal_(parameter, std=small)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        """Logits of the next token before the first and after each token."""
        bos = tokens.new_full((len(tokens), 1), self.shape.vocab_size)
        return self.logits(self.tokens(torch.cat([bos, tokens], 1)))

    def logits_of_rows(self, rows: Float[Tensor, "B T V"]) -> Float[Tensor, "B T1 V"]:
        """As `forward`, from distributions over tokens: what gradients in one-hot inputs need."""
        return self.logits(self._after_bos(self.embed(rows)))

    def embed(self, rows: Float[Tensor, "B T V"]) -> Float[Tensor, "B T W"]:
        """Mixtures of token embeddings; one-hot rows are tokens."""
        return rows @ self.tokens.weight[: self.shape.vocab_size]

    def _after_bos(self, embedded: Float[Tensor, "B T W"]) -> Float[Tensor, "B T1 W"]:
        bos = self.tokens.weight[self.shape.vocab_size].expand(len(embedded), 1, -1)
        return torch.cat([bos, embedded], 1)

    def tree_log_probs(
        self, embedded: Float[Tensor, "B m W"], tree: TokenTree
    ) -> Float[Tensor, "K Y"]:
        """Log-probabilities of all continuations of embedded prompts, in one pass."""
        return self.log_probs_along(self._after_bos(embedded), tree)

    def log_probs_along(
        self, read: Float[Tensor, "B p W"], tree: TokenTree
    ) -> Float[Tensor, "K Y"]:
        """The same after all that is read, a start token included if there is one."""
        prefix = read.shape[1]
        nodes = self.tokens(tree.tokens.to(read.device)).expand(len(read), -1, -1)
        x = torch.cat([read, nodes], 1)
        if self.positions is not None:
            self.require_positions(prefix + tree.deepest)
            places = torch.cat([torch.arange(prefix), prefix - 1 + tree.depths])
            x = x + self.positions.weight[places.to(x.device)]
        mask, last = tree.mask(prefix, x.device), prefix - 1
        *below, top = self.blocks
        for block in below:
            x = block(x, mask)
        assert isinstance(top, Block)
        logits = self.head(self.norm(top.look_back(x, last, mask[last:])))
        return tree.join(logits.float().log_softmax(-1))

    def logits(self, x: Float[Tensor, "B T1 W"]) -> Float[Tensor, "B T1 V"]:
        if self.positions is not None:
            self.require_positions(x.shape[1])
            x = x + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def require_positions(self, n: int) -> None:
        require(
            self.positions is None or n <= self.shape.max_tokens,
            f"a sequence of {n - 1} tokens: this model was trained on positions for "
            f"{self.shape.max_tokens - 1} and has nothing to say past them",
        )
