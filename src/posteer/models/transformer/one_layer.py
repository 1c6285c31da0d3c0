"""The fast exact form of a transformer with one layer and no positions.

Its only attention reads the embeddings themselves, so what it sees of the past is how many of each
token there were and which came last: the softmax over T positions is a softmax over V + 1 kinds of
token, each weighted by its count. A step costs the same after ten tokens and after ten thousand,
and histories with equal counts and last token need one evaluation between them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from posteer.core.shapes import Float, Int
from posteer.families.protocol import Prior
from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.network import Block, Transformer

STATES_OF_A_STEP = 2**13
"""States (counts and last token) up to which a step is tabulated whole."""

STEPS_AT_ONCE, STEPS_AHEAD = 4, 64
"""Steps tabulated as one batch (fewer calls, yet small enough for the cache), and at one go when
it is not known how many will be needed."""


@dataclass(frozen=True, eq=False)
class CountState:
    """Token counts (BOS last, always 1) and the last token of a batch of histories."""

    counts: Int[Tensor, "B V1"]
    last: Int[Tensor, "B"]
    length: int
    log_probs: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, "K"]) -> CountState:
        rows = rows.to(self.last.device)
        return CountState(self.counts[rows], self.last[rows], self.length, self.log_probs[rows])


class OneLayerModel(TransformerModel):
    """A model that predicts from counts.

    While the states of a step are few, all of them are evaluated at once and kept: a prediction is
    then a look-up, and the same bits whatever batch it is asked in.
    """

    def __init__(self, network: Transformer, name: str, prior: Prior | None = None) -> None:
        assert sees_counts_only(network), "more than one layer, or positions"
        super().__init__(network, name, prior)
        self._layer: _Layer | None = None
        self._laws: dict[int, Tensor] = {}

    def batch_invariant(self, n_tokens: int) -> bool:
        """A prediction that is looked up was computed in a batch of its own making."""
        return self._n_states(n_tokens + STEPS_AT_ONCE) <= STATES_OF_A_STEP

    def _n_states(self, length: int) -> int:
        return (self.vocab_size + 1) * (length + 1) ** (self.vocab_size - 1)

    def batch_limit(self, n_tokens: int) -> int:
        """Nothing is held but counts: as many as their activations fit into a gibibyte."""
        shape = self.network.shape
        return max(1, 2**28 // (2 * shape.feedforward + 4 * shape.width))

    @torch.no_grad()
    def start(self, batch: int, capacity: int = 16) -> Any:
        self._tabulate(range(capacity))
        vocab = self.vocab_size
        counts = torch.zeros(batch, vocab + 1, dtype=torch.long, device=self.device)
        counts[:, vocab] = 1
        last = torch.full((batch,), vocab, device=self.device)
        return CountState(counts, last, 0, self._predict(counts, last, 0))

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        tokens = tokens.to(self.device)
        counts = state.counts.scatter_add(1, tokens[:, None], torch.ones_like(tokens[:, None]))
        length = state.length + 1
        log_probs = self._predict(counts, tokens, length)
        return log_probs, CountState(counts, tokens, length, log_probs)

    @torch.no_grad()
    def _predict(
        self, counts: Int[Tensor, "B V1"], last: Int[Tensor, "B"], length: int
    ) -> Float[Tensor, "B V"]:
        vocab, radix = self.vocab_size, length + 1
        if length not in self._laws:
            self._tabulate(range(length, length + STEPS_AHEAD))
        if length not in self._laws:
            return self._layer_summary().predict(counts, last)
        state = last
        for token in range(1, vocab):
            state = state * radix + counts[:, token]
        return self._laws[length].index_select(0, state)

    def _layer_summary(self) -> _Layer:
        if self._layer is None or self._layer.stream.device != self.device:
            self._layer, self._laws = _summarise(self.network), {}
        return self._layer

    def _tabulate(self, lengths: range) -> None:
        """The laws of these steps, a core to each group of steps.

        That is faster than all cores on each operation, these being small; and the bits then do
        not depend on how many cores there are.
        """
        layer = self._layer_summary()
        start = lengths.start // STEPS_AT_ONCE * STEPS_AT_ONCE
        groups = [
            first
            for first in range(start, lengths.stop, STEPS_AT_ONCE)
            if first not in self._laws and self._n_states(first + STEPS_AT_ONCE) <= STATES_OF_A_STEP
        ]
        if not groups:
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(threads if self.device.type == "cpu" else 1) as pool:
                for laws in pool.map(lambda first: self._laws_of_steps(layer, first), groups):
                    self._laws |= laws
        finally:
            torch.set_num_threads(threads)

    @torch.no_grad()
    def _laws_of_steps(self, layer: _Layer, first: int) -> dict[int, Tensor]:
        """By length, the laws of all states: numbered by last token first, then by counts."""
        vocab = self.vocab_size
        lengths = range(first, first + STEPS_AT_ONCE)
        counts, lasts = [], []
        for length in lengths:
            radix = length + 1
            n_counts = radix ** (vocab - 1)
            n_lasts = vocab if length > 0 else vocab + 1  # BOS comes last at the start alone
            states = torch.arange(n_lasts * n_counts, device=self.device)
            digits = [states // radix**i % radix for i in reversed(range(vocab - 1))]
            rest = length - sum(digits, torch.zeros_like(states))
            counts.append(torch.stack([rest.clamp(min=0), *digits, torch.ones_like(rest)], 1))
            lasts.append(states // n_counts)
        laws = layer.predict(torch.cat(counts), torch.cat(lasts))
        return dict(zip(lengths, laws.split([len(last) for last in lasts]), strict=True))


def sees_counts_only(network: Transformer) -> bool:
    """Whether counts and the last token determine every prediction of the network."""
    return network.shape.layers == 1 and network.positions is None


@dataclass(frozen=True, eq=False)
class _Layer:
    """What the layer does with each kind of token, worked out once.

    `pull[h, j, a]`: exponential of last token a's attention score on kind j in head h. The stream
    after attention is linear in the attention weights and the one-hot last token; `stream` is that
    map. `hidden` is `stream` led through the feed-forward's first matrix, `head` the head with the
    last norm's gains. All are centred, so that of both norms only their scales are left to apply.
    """

    pull: Float[Tensor, "H V1 V1"]
    stream: Float[Tensor, "K W"]
    hidden: Float[Tensor, "K F"]
    hidden_bias: Float[Tensor, "F"]
    down: Float[Tensor, "F W"]
    down_bias: Float[Tensor, "W"]
    head: Float[Tensor, "W V"]
    head_bias: Float[Tensor, "V"]
    epsilons: tuple[float, float]

    def predict(self, counts: Int[Tensor, "B V1"], last: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        kinds = torch.arange(counts.shape[1], device=last.device)
        own = (last == kinds[:, None]).to(self.pull.dtype)  # rows run along the last axis: vectors
        weights = (self.pull @ own) * counts.T
        weights /= weights.sum(1, keepdim=True)
        features = torch.cat([weights.flatten(0, 1), own]).to(self.stream.dtype).T
        x = features @ self.stream
        features = features * _inverse_deviation(x, self.epsilons[0])
        hidden = functional.gelu((features @ self.hidden).add_(self.hidden_bias))
        x += (hidden @ self.down).add_(self.down_bias)
        logits = (x @ self.head) * _inverse_deviation(x, self.epsilons[1]) + self.head_bias
        return logits.log_softmax(-1)


def _inverse_deviation(centred: Float[Tensor, "B W"], epsilon: float) -> Float[Tensor, "B 1"]:
    return (centred.square().mean(-1, keepdim=True) + epsilon).rsqrt()


@torch.no_grad()
def _summarise(network: Transformer) -> _Layer:
    block, embedded = network.blocks[0], network.tokens.weight
    assert isinstance(block, Block)
    attention, norm, up, down = block.attention, block.feedforward_norm, block.up, block.down
    query, key, value = (
        part.unflatten(-1, (attention.heads, -1))
        for part in attention.qkv(block.attention_norm(embedded)).chunk(3, -1)
    )
    scores = torch.einsum("ahd,jhd->hja", query, key).double() / query.shape[-1] ** 0.5
    pull = (scores - scores.amax(1, keepdim=True)).exp()
    into_stream = attention.out.weight.unflatten(-1, (attention.heads, -1))
    by_weight = torch.einsum("whd,jhd->hjw", into_stream, value).flatten(0, 1)
    stream = torch.cat([by_weight, embedded + attention.out.bias])
    stream = stream - stream.mean(-1, keepdim=True)
    underflows = float(pull.min()) < 1e-30  # then a kind alone in the past needs wider floats
    return _Layer(
        pull=pull if underflows else pull.to(stream.dtype),
        stream=stream,
        hidden=(stream * norm.weight) @ up.weight.T,
        hidden_bias=up.bias + up.weight @ norm.bias,
        down=(down.weight - down.weight.mean(0)).T.contiguous(),
        down_bias=down.bias - down.bias.mean(),
        head=network.norm.weight[:, None] * network.head.weight.T,
        head_bias=network.head.bias + network.head.weight @ network.norm.bias,
        epsilons=(norm.eps, network.norm.eps),
    )
