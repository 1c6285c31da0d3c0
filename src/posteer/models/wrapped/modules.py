"""A torch module that maps token ids to logits: whole histories, all positions at once.

Gradients go in through its embedding: a hook puts rows of our own in the place of what the module
looks up. That this, and all else, is the same as a plain call is tried out first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posteer.core.errors import require
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.shapes import Float, Int
from posteer.core.userfiles import users_own
from posteer.models.protocol import Can, Model
from posteer.models.trees import along_paths
from posteer.models.wrapped.alphabets import Tokenizer
from posteer.models.wrapped.worded import Worded, require_evaluating
from posteer.tokens.contexts import all_sequences


@dataclass(frozen=True, eq=False)
class TokensRead:
    """Whole histories, as the module has no other memory."""

    tokens: Int[Tensor, "B T"]
    log_probs: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, "K"]) -> TokensRead:
        return TokensRead(self.tokens[rows], self.log_probs[rows.to(self.log_probs.device)])


class ModuleModel(Worded):
    """`network(ids[B, T]) -> logits[B, T, U]`, or an object that has such `logits`.

    `first` is the id that every history begins with; without one, and without a text, the first
    token is any with equal chance. `embedding` is the part that looks ids up: the only
    `nn.Embedding` of that many rows, unless one is named.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        tokenizer: Tokenizer | None = None,
        alphabet: Any = None,
        text: str | Any = "",
        order: int = 1,
        name: str = "module",
        first: int | None = None,
        max_length: int | None = None,
        embedding: nn.Module | None = None,
    ) -> None:
        require_evaluating(network, name)
        self.network, self.name = network, name
        size = self._ask(torch.tensor([[first or 0]])).shape[-1]
        super().__init__(
            network,
            size,
            tokenizer=tokenizer,
            alphabet=alphabet,
            text=text,
            first=first,
            order=order,
            name=name,
            reads=max_length,
        )
        self._settings: dict[str, Any] = {"order": order, "first": first, "max_length": max_length}
        self.embedding = embedding or _only_embedding(network, size)
        self.can = Can.READ_TREES | Can.SHARES
        self._try_out()

    def _anew(self, **words: Any) -> Model:
        return ModuleModel(self.network, embedding=self.embedding, **self._settings, **words)

    def batch_limit(self, n_tokens: int) -> int:
        return max(1, NUMBERS_AT_ONCE // (self.size * (n_tokens + len(self.opening) + 1)))

    def _ask(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T U"]:
        """Logits of all tokens of its vocabulary, after each id."""
        with users_own(self.name):
            given: Any = self.network(ids.to(self.device))
            if not isinstance(given, Tensor):
                given = given.logits if hasattr(given, "logits") else given[0]
        fits = isinstance(given, Tensor) and given.ndim == 3 and given.shape[:2] == ids.shape
        found = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        expected = f"({len(ids)}, {ids.shape[1]}, tokens)"
        require(fits, f"{self.name} returned logits of shape {found}: expected {expected}")
        return given

    def _whole(self, tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B n"]:
        """Ids of the text and of histories after it."""
        text = torch.tensor(self.opening, dtype=torch.long, device=self.device)
        return torch.cat([text.expand(len(tokens), -1), self.ids_of(tokens)], 1)

    def _logits(self, ids: Int[Tensor, "B n"]) -> Float[Tensor, "B T1 U"]:
        """After the text, and after each token behind it; all alike where there is no text."""
        if self.opening:
            return self._ask(ids)[:, len(self.opening) - 1 :]
        asked = self._ask(ids) if ids.shape[1] else self._ask(ids.new_zeros(len(ids), 1))[:, :0]
        return torch.cat([asked.new_zeros(len(ids), 1, self.size), asked], 1)

    @torch.no_grad()
    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        whole = self._whole(tokens)
        parts = whole.split(self.batch_limit(tokens.shape[1]))
        return torch.cat([self.law(self._logits(rows)[..., self.ids]) for rows in parts])

    def start(self, batch: int, capacity: int = 16) -> Any:
        return self._state(torch.zeros(batch, 0, dtype=torch.long))

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        after = self._state(torch.cat([state.tokens, tokens[:, None].cpu()], 1))
        return after.log_probs, after

    def _state(self, tokens: Int[Tensor, "B T"]) -> TokensRead:
        return TokensRead(tokens, self.log_predictive(tokens)[:, -1])

    @torch.no_grad()
    def alphabet_share(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1"]:
        parts = self._whole(tokens).split(self.batch_limit(tokens.shape[1]))
        return torch.cat([self.share_of(self._logits(rows)).cpu() for rows in parts])

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """All paths of continuations side by side."""
        paths, n = all_sequences(self.vocab_size, horizon - 1), len(prompts)
        rows = prompts.cpu().repeat_interleave(len(paths), 0)
        laws = self.log_predictive(torch.cat([rows, paths.repeat(n, 1)], 1))
        laws = laws[:, prompts.shape[1] :].unflatten(0, (n, -1))
        return along_paths(laws[:, 0, 0], laws[:, :, 1:], paths)

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        return self.continuation_log_probs(prompts, horizon)

    def embeddings(self) -> Float[Tensor, "V W"]:
        return self._looked_up(self.ids[None])[0]

    @torch.no_grad()
    def _looked_up(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        assert self.embedding is not None
        return self.embedding(ids)

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in the embeddings of the prompt's tokens."""
        if self.embedding is None:
            raise NotImplementedError
        paths, n = all_sequences(self.vocab_size, horizon - 1), len(embedded)
        own, rows = self.embeddings(), n * len(paths)
        text = torch.tensor(self.opening, dtype=torch.long, device=self.device)
        parts = [
            self._looked_up(text[None])[:, : len(text)].expand(rows, -1, -1),
            embedded.to(own).repeat_interleave(len(paths), 0),
            own[paths.repeat(n, 1).to(self.device)],
        ]
        whole = torch.cat([part for part in parts if part.shape[1]], 1)
        with self._reading(whole):
            logits = self._logits(torch.zeros(whole.shape[:2], dtype=torch.long))
        laws = self.law(logits[..., self.ids])[:, embedded.shape[1] :].unflatten(0, (n, -1))
        return along_paths(laws[:, 0, 0], laws[:, :, 1:], paths)

    @contextmanager
    def _reading(self, embedded: Float[Tensor, "B n W"]) -> Iterator[None]:
        """While inside, the module reads these instead of what it looks up."""
        assert self.embedding is not None
        handle = self.embedding.register_forward_hook(lambda _module, _given, _found: embedded)
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def _try_out(self) -> None:
        """Whether it says the same twice, and reads rows of ours as its own."""
        prompts = torch.tensor([[0, 1], [1, 1]])
        expected = self.continuation_log_probs(prompts, 2)
        numbers = not bool(expected.isnan().any())
        require(numbers, f"{self.name} returned logits that are no numbers")
        again = self.continuation_log_probs(prompts, 2)
        alike = self.alike(self._logits(self._whole(prompts))[..., self.ids])
        steady = bool(((again - expected).abs() <= alike).all())
        require(steady, f"{self.name} changes its answer: asked again, it predicts otherwise")
        first = self.continuation_log_probs(prompts[:, :1], 2)
        looks_back = self.log_predictive(prompts[:, :1])[:, -1]
        causal = bool(
            ((first.view(2, -1, self.vocab_size).logsumexp(-1) - looks_back).abs() <= alike).all()
        )
        require(causal, f"{self.name} looks ahead: its law after a token depends on the next one")
        if self.embedding is None:
            return
        try:
            rows = self.embeddings()[prompts.to(self.device)]
            found = self.continuation_log_probs_of_embeddings(rows, 2)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            self.embedding = None
            return
        if bool(((found - expected).abs() <= alike).all()):
            self.can |= Can.ONE_HOTS | Can.EMBED
        else:
            self.embedding = None


def _only_embedding(network: nn.Module, size: int) -> nn.Module | None:
    """The one table of that many rows, if there is one."""
    tables = [
        part
        for part in network.modules()
        if isinstance(part, nn.Embedding) and part.num_embeddings >= size
    ]
    return tables[0] if len(tables) == 1 else None
