"""A network over many tokens as a model over a few: an alphabet, and a text read before."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.shapes import Float, Int
from posteer.families.markov.family import MarkovFamily
from posteer.models.held_weights import weights_digest
from posteer.models.protocol import Model
from posteer.models.wrapped.alphabets import Alphabet, Tokenizer, open_alphabet, opening_of
from posteer.tokens.contexts import ContextSpace

ALIKE, ALIKE_IN_DOUBLE = 1e-3, 1e-8
"""Log-probabilities of a trial that differ by less are the same."""


def require_evaluating(network: torch.nn.Module, name: str) -> None:
    """Refuse a network that was not told that its training is over."""
    require(
        not network.training,
        f"{name} is in training mode, in which it may drop units: call its eval() first",
    )


class Worded(Model):
    """Laws are the network's, restricted to the alphabet and renormalised.

    The text belongs to the model: it is read once, and counted nowhere. Each history is taken to be
    predicted alike in any batch.
    """

    probed = False

    def __init__(
        self,
        network: torch.nn.Module,
        size: int,
        *,
        tokenizer: Tokenizer | None,
        alphabet: Any,
        text: str | Any,
        first: int | None,
        order: int,
        name: str,
        reads: int | None,
    ) -> None:
        self.network, self.size, self.tokenizer, self.name = network, size, tokenizer, name
        self.first, self.reads = first, reads
        self.alphabet: Alphabet = open_alphabet(alphabet, tokenizer, size, name)
        self.names, self.given_text = self.alphabet.names, text
        self.opening = opening_of(text, tokenizer, first, name)
        self.text = text if isinstance(text, str) else " ".join(map(str, text))
        self.vocab_size = len(self.alphabet)
        self.family = MarkovFamily(ContextSpace(self.vocab_size, order))
        self.max_length = None if reads is None else reads - len(self.opening)
        require(
            self.max_length is None or self.max_length > order,
            f"the text has {len(self.opening)} tokens: {name} reads {reads}, which leaves none for "
            "a prompt",
        )
        self._digest: tuple[object, str] = ((), "")

    def over(self, alphabet: Any, text: str | Any) -> Model:
        if alphabet is None and text == "":
            return self
        return self._anew(
            tokenizer=self.tokenizer,
            alphabet=list(self.alphabet.ids) if alphabet is None else alphabet,
            text=text or self.given_text,
            name=self.name,
        )

    @abstractmethod
    def _anew(self, **words: Any) -> Model:
        """The same network over another alphabet or after another text."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        held = next(self.network.parameters(), None)
        return torch.device("cpu") if held is None else held.device

    def alike(self, logits: Float[Tensor, "*B"]) -> float:
        """Log-probabilities nearer than this are the same, of logits such as these: two steps of
        what the coarsest weights can tell of the largest, for every processor sums as it likes."""
        kinds = {tensor.dtype for tensor in self.network.parameters() if tensor.is_floating_point()}
        if kinds == {torch.float64}:
            return ALIKE_IN_DOUBLE
        step = max((torch.finfo(kind).eps for kind in kinds), default=0.0)
        return max(ALIKE, 2 * step * float(logits.abs().max()))

    def to(self, device: str) -> Model:
        if torch.device(device) != self.device:
            self.network.to(device)
        return self

    @property
    def ids(self) -> Int[Tensor, "V"]:
        """The alphabet, where the network is."""
        return torch.tensor(self.alphabet.ids, device=self.device)

    def ids_of(self, tokens: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """Tokens of the alphabet as the network knows them."""
        return self.ids[tokens.to(self.device)]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the weights, the alphabet and the text's tokens."""
        versions = tuple(tensor._version for tensor in self.network.parameters())
        if self._digest[0] != versions:
            self._digest = (versions, weights_digest(self.network))
        facts = f"{self._digest[1]} {self.alphabet.ids} {self.opening} {self.order}"
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def formerly(self) -> tuple[str, ...]:
        return ()

    def batch_invariant(self, n_tokens: int) -> bool:
        return True

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in `rows`: one-hot for hard prompts; only the alphabet's tokens count."""
        own = self.embeddings()
        return self.continuation_log_probs_of_embeddings(rows.to(own) @ own, horizon)

    def law(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """Renormalised over the alphabet, in single precision or better."""
        wide = logits if logits.dtype.itemsize >= 4 else logits.float()
        return wide.log_softmax(-1)

    def share_of(self, logits: Float[Tensor, "*B U"]) -> Float[Tensor, "*B"]:
        """What the alphabet holds of a law over all tokens."""
        wide = logits if logits.dtype.itemsize >= 4 else logits.float()
        return wide.softmax(-1)[..., self.ids].sum(-1)
