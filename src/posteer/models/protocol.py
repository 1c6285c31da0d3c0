"""The model boundary: what a sequence model offers, and what it declares it can do.

Nothing but `vocab_size`, `start` and `advance` is needed of a model; `Model` has the rest as
defaults. What goes beyond, it declares in `can`, and only then is it asked for it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Flag, auto
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from posteer.core.errors import require
from posteer.core.shapes import Bool, Float, Int
from posteer.families.protocol import Family, Prior
from posteer.models.held_weights import weights_digest
from posteer.tokens.contexts import ContextSpace
from posteer.tokens.vocabularies import Vocabulary, names_given


class Can(Flag):
    """What a model can do beyond advancing.

    READ_TREES: the law of all continuations of prompts in one pass, prompts sharing beginnings.
    READ_PRODUCTS: the same of all ends behind all beginnings of prompts.
    ONE_HOTS: that law as a differentiable function of one-hot rows. EMBED: of embeddings.
    NARROW: keep a cache in half the bytes while it is rolled out.
    EXACT: its predictions are exact Bayes under its `prior`.
    SHARES: its laws are those of more tokens, restricted to an alphabet; it says what that holds.
    """

    NOTHING = 0
    READ_TREES = auto()
    ONE_HOTS = auto()
    EMBED = auto()
    NARROW = auto()
    EXACT = auto()
    SHARES = auto()
    READ_PRODUCTS = auto()


@runtime_checkable
class ModelState(Protocol):
    """What a batch of histories has been read into."""

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        """The next-token law of each history."""

    def select(self, rows: Int[Tensor, "K"]) -> ModelState:
        """The states of some rows, repeats allowed: how a tree of continuations forks."""


Meter = Callable[[Any], Any]
"""Puts a model behind what counts for it."""


class Model:
    """A sequence model, with defaults for all but `vocab_size`, `start` and `advance`.

    `family` is what its latents are believed to be, `prior` their law, `context` what it has read
    before any prompt; None and empty where nothing is known. `max_length` is the most tokens a
    history may have, None if any number. Banks know a model by its `fingerprint`; `made_of` tells
    apart what else is called the same, `known_as` stands for the name where that may change, and
    `own_name` is what it called itself before a user named it. A model is `probed` unless its
    fingerprint says all that it computes: its banks keep some of its laws, and it is asked for them
    again before they are used. A context has at most
    `longest_context` tokens, where reading one takes the square of its length. `tokens_per_token`
    is what reading one token costs: more than one where a model is made of several. Tokens have
    `names` where they have any; `text` is what a language model reads before everything.
    """

    name: str = "model"
    vocab_size: int
    family: Family | None = None
    prior: Prior | None = None
    max_length: int | None = None
    can: Can = Can.NOTHING
    context: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    text: str = ""
    device: torch.device = torch.device("cpu")
    narrow_cache: bool = False
    made_of: str = ""
    known_as: str = ""
    own_name: str = ""
    content: str = ""
    given_fingerprint: str | None = None
    probed: bool = True
    metered: bool = False
    tokens_per_token: int = 1
    longest_context: int | None = None

    @property
    def fingerprint(self) -> str:
        """One that was given; else its name and the weights it holds, where it holds any."""
        if self.given_fingerprint is not None:
            return self.given_fingerprint
        weights = weights_digest(self.holder)
        made_of = f"{self.made_of} {weights}" if weights else self.made_of
        return self.called(self.known_as or self.name, made_of)

    @property
    def formerly(self) -> tuple[str, ...]:
        """What a bank of an earlier version, which keeps no laws, may call it as well: weights were
        not looked for, and a model in a file was known by the file's `content`."""
        if self.given_fingerprint is not None:
            return ()
        name = self.own_name or self.name
        plain = self.called(name, self.made_of)
        return (self.content, self.called(name, self.content)) if self.content else (plain,)

    @property
    def holder(self) -> Any:
        """What its weights are looked for in."""
        return self

    def called(self, name: str, made_of: str) -> str:
        """A hash of a name and of what the model is made of."""
        kind, known = type(self).__qualname__, f"{self.vocab_size} {self.order} {made_of}"
        return hashlib.sha256(f"{kind} {name} {known}".encode()).hexdigest()

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens by name, or by number."""
        return Vocabulary(self.vocab_size, self.names)

    def over(self, alphabet: Any, text: str | Any) -> Model:
        """This model with names for its tokens; a language model over some of its tokens, after a
        text."""
        if alphabet is None and text == "":
            return self
        require(text == "", f"{self.name} reads no text: `text` is for language models")
        named = copy.copy(self)
        named.names = names_given(alphabet, self.vocab_size, self.name)
        return named

    @property
    def order(self) -> int:
        """How many tokens must be read before a latent says anything; prompts are longer."""
        return 0 if self.family is None else self.family.order

    @property
    def base(self) -> Model:
        """The model that has read nothing yet."""
        return self

    @property
    def context_tokens(self) -> int:
        """Tokens that every history is charged for before its own."""
        return 0

    def batch_invariant(self, n_tokens: int) -> bool:
        """Whether a history of so many tokens gives the same bits in any batch it is read in."""
        return False

    def batch_limit(self, n_tokens: int) -> int:
        """How many histories of so many tokens should be held at once."""
        return 1024

    def start(self, batch: int, capacity: int = 16) -> Any:
        """The state of `batch` empty histories; `capacity` tokens are expected to follow."""
        raise NotImplementedError

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        """Read one token per history."""
        raise NotImplementedError

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        """Row t is the log law of the next token after t tokens; row 0 is unconditional."""
        state = self.start(len(tokens), tokens.shape[1])
        laws = [state.log_probs]
        for token in tokens.unbind(-1):
            law, state = self.advance(state, token)
            laws.append(law)
        return torch.stack(laws, 1)

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Every continuation of every prompt, each prompt read once (`READ_TREES`)."""
        raise NotImplementedError

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        """The same; what prompts begin with in common is read once (`READ_TREES`)."""
        raise NotImplementedError

    def product_log_probs(
        self, firsts: Int[Tensor, "P k"], lasts: Int[Tensor, "S n"], horizon: int
    ) -> Float[Tensor, "K Y"]:
        """Every continuation of every beginning with every end, ends varying fastest; of each
        beginning, what ends begin with in common is read once (`READ_PRODUCTS`)."""
        raise NotImplementedError

    def continuation_log_probs_of_rows(
        self, rows: Float[Tensor, "B m V"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in `rows`, which are one-hot for hard prompts (`ONE_HOTS`)."""
        raise NotImplementedError

    def continuation_log_probs_of_embeddings(
        self, embedded: Float[Tensor, "B m W"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """Differentiable in the embeddings of the prompt's tokens (`EMBED`)."""
        raise NotImplementedError

    def embeddings(self) -> Float[Tensor, "V W"]:
        """What each token is read as (`EMBED`)."""
        raise NotImplementedError

    def alphabet_share(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1"]:
        """What the alphabet holds of the law after each beginning of a history (`SHARES`)."""
        raise NotImplementedError

    def impossible(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        """Prompts after which there is no prediction; a network predicts after anything."""
        return torch.zeros(len(prompts), dtype=torch.bool)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What is asked inside and fails for want of memory is asked again: it is not counted."""
        yield

    def check_laws(self) -> None:
        """Refuse the model if a law that was asked for is none; a meter looks, and on a device
        that computes by itself it waits for this to be called."""

    def conditioned(self, context: tuple[int, ...]) -> Model | None:
        """This model after a context, where it has a way of its own to read one."""
        return None

    def prior_behind(self, meter: Meter) -> Prior | None:
        """The prior; if its latents are models themselves, each behind a meter."""
        return self.prior

    def to(self, device: str) -> Model:
        """Move the model, if it can be moved."""
        return self

    def after_context(self, prompts: Int[Tensor, "B m"]) -> Int[Tensor, "B n"]:
        """Whole histories: what the model has read, then each prompt."""
        if not self.context:
            return prompts
        read = torch.tensor(self.context, dtype=prompts.dtype, device=prompts.device)
        return torch.cat([read.expand(len(prompts), -1), prompts], 1)

    def last_contexts(self, order: int, prompts: Int[Tensor, "B m"]) -> Int[Tensor, "B"]:
        """The last tokens that a goal reads, of what the model had read before if need be."""
        return ContextSpace(self.vocab_size, order).suffix(self.after_context(prompts))
