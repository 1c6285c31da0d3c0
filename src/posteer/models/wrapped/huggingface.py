"""A causal language model of Hugging Face's: caches, trees of continuations, gradients.

The text's keys and values are computed once. A tree of continuations is read behind a mask in one
pass, as our own transformer does it, where a trial shows that the model heeds such a mask; else its
paths are read side by side.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from posteer.core.errors import require
from posteer.core.limits import NUMBERS_IN_PASSING
from posteer.core.shapes import Bool, Float, Int
from posteer.core.userfiles import users_own
from posteer.models.protocol import Can, Model
from posteer.models.trees import TokenTree, along_paths, continuation_tree, prompt_tree
from posteer.models.wrapped.alphabets import Tokenizer
from posteer.models.wrapped.caches import (
    Layers,
    bytes_per_token,
    growing_cache,
    layers_of,
    read_with_cache,
    rows_of,
    shared_cache,
    with_room,
)
from posteer.models.wrapped.worded import Worded, require_evaluating
from posteer.tokens.contexts import all_sequences

BYTES_AT_ONCE = 2**30
"""Of caches on a CPU; on a GPU what is free."""


@dataclass
class ReadState:
    """Caches of a batch of histories, the text included, and their next laws.

    Advancing writes into the caches, so a state is advanced once; `select` forks it.
    """

    layers: Layers
    length: int
    log_probs: Float[Tensor, "B V"]
    spent: bool = field(default=False, repr=False)

    def select(self, rows: Int[Tensor, "K"]) -> ReadState:
        rows = rows.to(self.log_probs.device)
        return ReadState(rows_of(self.layers, rows, self.length), self.length, self.log_probs[rows])


class _Rows(nn.Module):
    """Some rows of a model's last layer: logits of an alphabet alone."""

    def __init__(self, head: nn.Linear, ids: tuple[int, ...]) -> None:
        super().__init__()
        self.head = [head]  # not a part of this: it is the model's
        self.ids = ids

    def forward(self, hidden: Tensor) -> Tensor:
        head, rows = self.head[0], list(self.ids)
        bias = None if head.bias is None else head.bias[rows]
        return nn.functional.linear(hidden, head.weight[rows], bias)


def narrowed(network: Any, ids: tuple[int, ...]) -> Any | None:
    """The same network with a last layer of an alphabet alone; None where it has no such layer."""
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return None
    other, rows = copy.copy(network), _Rows(head, ids)
    other._modules = dict(network._modules)
    other.set_output_embeddings(rows)
    apart = network.get_output_embeddings() is head and other.get_output_embeddings() is rows
    return other if apart else None


class HuggingFaceModel(Worded):
    """`network` is a causal language model that keeps a cache of keys and values."""

    def __init__(
        self,
        network: Any,
        *,
        tokenizer: Tokenizer | None = None,
        alphabet: Any = None,
        text: str | Any = "",
        order: int = 1,
        name: str = "model",
    ) -> None:
        config = network.config
        require_evaluating(network, name)
        super().__init__(
            network,
            int(config.vocab_size),
            tokenizer=tokenizer,
            alphabet=alphabet,
            text=text,
            first=getattr(config, "bos_token_id", None),
            order=order,
            name=name,
            reads=getattr(config, "max_position_embeddings", None),
        )
        require(
            len(self.opening) > 0, f"{name} has no token to begin with: expected a `text` before it"
        )
        self.causal, self._order = network, order
        self._narrow = narrowed(network, self.alphabet.ids)
        self._text: tuple[torch.device, Layers, Tensor] | None = None
        self.plain, self.masked = False, False
        self._try_out()

    def _anew(self, **words: Any) -> Model:
        return HuggingFaceModel(self.network, order=self._order, **words)

    def batch_limit(self, n_tokens: int) -> int:
        """As many as their caches fit into a gibibyte, or into half of a GPU's free memory."""
        per_token = bytes_per_token(self.text_layers) or 1
        room = BYTES_AT_ONCE
        if self.device.type == "cuda":
            room = torch.cuda.mem_get_info(self.device)[0] // 2
        return max(1, room // (per_token * (n_tokens + len(self.opening))))

    @property
    def text_layers(self) -> Layers:
        return self._read_text()[0]

    @property
    def text_law(self) -> Float[Tensor, "V"]:
        return self._read_text()[1]

    @torch.no_grad()
    def _read_text(self) -> tuple[Layers, Tensor]:
        """Keys, values and the next law after the text; read once a device."""
        if self._text is None or self._text[0] != self.device:
            ids = torch.tensor([self.opening], device=self.device)
            logits, past = read_with_cache(self.network, ids)
            require(past is not None, f"{self.name} keeps no cache of keys and values")
            self.plain = isinstance(past, tuple)
            law = self.law(logits[0, -1, self.ids])
            self._text = (self.device, layers_of(past), law)
        return self._text[1], self._text[2]

    def _logits(self, cache: Any, n_before: int, **given: Any) -> Any:
        """One pass; `given` are ids or embeddings, and positions or a mask where they differ."""
        tokens: Tensor = given["input_ids" if "input_ids" in given else "inputs_embeds"]
        batch, width = tokens.shape[:2]
        places = n_before + torch.arange(width, device=tokens.device)
        given.setdefault("position_ids", places.expand(batch, -1))
        narrow = self._narrow
        found = (self.network if narrow is None else narrow)(
            past_key_values=cache, use_cache=True, **given
        )
        logits = found.logits if narrow is not None else found.logits[..., self.ids]
        return self.law(logits), found.past_key_values

    @torch.no_grad()
    def start(self, batch: int, capacity: int = 16) -> Any:
        length = len(self.opening)
        layers = with_room(self.text_layers, batch, length, max(capacity, 1))
        return ReadState(layers, length, self.text_law.expand(batch, -1))

    @torch.no_grad()
    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        laws, after = self._read(state, tokens[:, None])
        return laws[:, -1], after

    def _read(self, state: ReadState, tokens: Int[Tensor, "B T"]) -> tuple[Tensor, ReadState]:
        """Read several tokens per history."""
        require(not state.spent, "this state was advanced already: fork it with select first")
        width, length, layers = tokens.shape[1], state.length, state.layers
        self._require_room(length + width)
        if not self.plain and layers[0][0].shape[2] < length + width:
            layers = with_room(layers, len(tokens), length, max(length, width))
        cache = growing_cache(layers, length, self.plain)
        laws, past = self._logits(cache, length, input_ids=self.ids_of(tokens))
        state.spent = not self.plain
        grown = layers_of(past) if self.plain else layers
        return laws, ReadState(grown, length + width, laws[:, -1])

    def _require_room(self, n_tokens: int) -> None:
        require(
            self.reads is None or n_tokens <= self.reads,
            f"{self.name} reads {self.reads} tokens, its text included: expected fewer than "
            f"{n_tokens}",
        )

    @torch.no_grad()
    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        first = self.text_law.expand(len(tokens), 1, -1)
        if tokens.shape[1] == 0:
            return first
        return torch.cat([first, self._behind_text(input_ids=self.ids_of(tokens))], 1)

    def _behind_text(self, **given: Any) -> Float[Tensor, "B T V"]:
        """Laws after each token of histories that follow the text."""
        tokens: Tensor = given["input_ids" if "input_ids" in given else "inputs_embeds"]
        length = len(self.opening)
        if "position_ids" not in given:
            self._require_room(length + tokens.shape[1])
        cache = shared_cache(self.text_layers, len(tokens), self.plain)
        return self._logits(cache, length, **given)[0]

    @torch.no_grad()
    def alphabet_share(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1"]:
        text = torch.tensor(self.opening, device=self.device).expand(len(tokens), -1)
        whole = torch.cat([text, self.ids_of(tokens)], 1)
        part = max(1, NUMBERS_IN_PASSING // (self.size * whole.shape[1]))
        found = []
        for rows in whole.split(part):
            logits = self.network(input_ids=rows, use_cache=False).logits
            found.append(self.share_of(logits[:, len(self.opening) - 1 :]).cpu())
        return torch.cat(found)

    @torch.no_grad()
    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Every continuation of every prompt, each prompt read once."""
        if self.masked:
            return self.continuation_log_probs_of_embeddings(self._embedded(prompts), horizon)
        state = self.start(len(prompts), prompts.shape[1] + horizon)
        laws, state = self._read(state, prompts)
        if horizon == 1:
            return laws[:, -1]
        paths = all_sequences(self.vocab_size, horizon - 1)
        rows = torch.arange(len(prompts)).repeat_interleave(len(paths))
        after, _ = self._read(state.select(rows), paths.repeat(len(prompts), 1))
        return along_paths(laws[:, -1], after.unflatten(0, (len(prompts), -1)), paths)

    @torch.no_grad()
    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        """The same; what prompts begin with in common is read once."""
        if not self.masked:
            return self.continuation_log_probs(prompts, horizon)
        tree = prompt_tree(prompts, self.vocab_size, horizon)
        nothing = self.embeddings()[None, :0]
        return tree.join(self._tree_laws(nothing, tree))

    @torch.no_grad()
    def product_log_probs(
        self, firsts: Int[Tensor, "P k"], lasts: Int[Tensor, "S n"], horizon: int
    ) -> Float[Tensor, "K Y"]:
        """One tree of all ends behind each beginning."""
        if not self.masked:
            raise NotImplementedError
        tree = prompt_tree(lasts, self.vocab_size, horizon)
        return tree.join(self._tree_laws(self._embedded(firsts), tree))

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in the embeddings of the prompt's tokens."""
        embedded = embedded.to(self.embeddings())
        if self.masked:
            tree = continuation_tree(self.vocab_size, horizon)
            return tree.join(self._tree_laws(embedded, tree))
        paths, batch = all_sequences(self.vocab_size, max(horizon - 1, 0)), len(embedded)
        rows = embedded.repeat_interleave(len(paths), 0)
        read = self.embeddings()[paths.repeat(batch, 1).to(self.device)]
        laws = self._behind_text(inputs_embeds=torch.cat([rows, read], 1))
        laws = laws[:, embedded.shape[1] - 1 :].unflatten(0, (batch, -1))
        return along_paths(laws[:, 0, 0], laws[:, :, 1:], paths)

    def _tree_laws(self, prefix: Float[Tensor, "B m W"], tree: TokenTree) -> Float[Tensor, "B n V"]:
        """Laws after a prefix and after each node of a tree behind it."""
        m, length = prefix.shape[1], len(self.opening)
        self._require_room(length + m + tree.deepest)
        nodes = self.embeddings()[tree.tokens.to(self.device)].expand(len(prefix), -1, -1)
        places = torch.cat([torch.arange(m), m + tree.depths - 1]) + length
        laws = self._behind_text(
            inputs_embeds=torch.cat([prefix, nodes], 1),
            position_ids=places.to(self.device).expand(len(prefix), -1),
            attention_mask=self._additive(tree.mask(m, self.device)),
        )
        first = laws[:, m - 1 : m] if m else self.text_law.expand(len(prefix), 1, -1)
        return torch.cat([first, laws[:, m:]], 1)

    def _additive(self, sees: Bool[Tensor, "Q Q"]) -> Float[Tensor, "1 1 Q K"]:
        """Of who attends to whom, the text to all."""
        kind = self.embeddings().dtype
        text = torch.zeros(len(sees), len(self.opening), dtype=kind, device=sees.device)
        own = torch.zeros(sees.shape, dtype=kind, device=sees.device)
        own = own.masked_fill(~sees, torch.finfo(kind).min)
        return torch.cat([text, own], 1)[None, None]

    def embeddings(self) -> Float[Tensor, "V W"]:
        table: Tensor = self.causal.get_input_embeddings().weight
        return table.detach()[self.ids]

    def _embedded(self, tokens: Int[Tensor, "B m"]) -> Float[Tensor, "B m W"]:
        return self.embeddings()[tokens.to(self.device)]

    @torch.no_grad()
    def _try_out(self) -> None:
        """Find out on a few tokens what the network can do, and that it does the same twice."""
        prompts = torch.tensor([[0, 1], [1, 1]])
        expected, logits = self._one_by_one(prompts)
        require(bool(expected.isfinite().all()), f"{self.name} returned logits that are no numbers")
        alike = self.alike(logits)
        self.can = Can.READ_TREES | Can.SHARES
        narrow = self._narrow
        for self._narrow, self.masked in product((narrow, None), (True, False)):
            if self._agrees(lambda: self.continuation_log_probs(prompts, 2), expected, alike):
                break
        else:
            with users_own(self.name):
                self.continuation_log_probs(prompts, 2)
            require(False, f"{self.name} predicts otherwise when it reads from its cache")
        if self.masked:
            self.can |= Can.READ_PRODUCTS
        embedded = self._embedded(prompts)
        if self._agrees(
            lambda: self.continuation_log_probs_of_embeddings(embedded, 2), expected, alike
        ):
            self.can |= Can.ONE_HOTS | Can.EMBED

    @staticmethod
    def _agrees(ask: Any, expected: Tensor, alike: float) -> bool:
        try:
            found = ask()
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            return False
        same = found.shape == expected.shape  # a copy whose last layer is another may not heed it
        return same and bool(((found - expected).abs() <= alike).all())

    def _one_by_one(
        self, prompts: Int[Tensor, "B m"]
    ) -> tuple[Float[Tensor, "B Y"], Float[Tensor, "B V 2 V"]]:
        """The laws of two tokens by plain passes over whole sequences, and the logits there."""
        paths = torch.arange(self.vocab_size)[:, None]
        text = torch.tensor(self.opening, device=self.device)
        found, asked = [], []
        for prompt in prompts:
            rows = torch.cat([prompt.expand(len(paths), -1), paths], 1)
            whole = torch.cat([text.expand(len(paths), -1), self.ids_of(rows)], 1)
            asked.append(self.network(input_ids=whole, use_cache=False).logits[:, -2:, self.ids])
            laws = self.law(asked[-1])
            found.append((laws[0, 0][:, None] + laws[:, 1]).flatten())
        return torch.stack(found), torch.stack(asked)
