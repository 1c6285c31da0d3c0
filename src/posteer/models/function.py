"""Any function that gives next-token probabilities, as a model.

What an API offers: no gradients, no internals, no cache. It is asked with whole histories.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.spec import whole_number
from posteer.core.userfiles import Home, object_from_file, users_own
from posteer.families.markov.family import MarkovFamily
from posteer.families.protocol import Prior
from posteer.models.calling import Calling, is_compiled
from posteer.models.laws import lawful
from posteer.models.protocol import Can, Model
from posteer.models.trees import along_paths
from posteer.tokens.contexts import ContextSpace, all_sequences


@dataclass(frozen=True, eq=False)
class HistoryState:
    """The histories themselves."""

    tokens: Int[Tensor, "B T"]
    log_probs: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, "K"]) -> HistoryState:
        return HistoryState(self.tokens[rows], self.log_probs[rows])


TOKENS_IN_A_CALL = 2**15
"""Of paths that are read side by side: more of them no longer fit a processor's caches."""

LONGEST_CONTEXT = 4096
"""Tokens of a context that a function is sent whole histories of, one token more each time."""


class FunctionModel(Model):
    """`predict(tokens[B, T]) -> probabilities[B, V]` of the next token, T from 0 on.

    With `all_positions` it is `[B, T + 1, V]`, the laws after every beginning of a history, or
    `[B, T, V]` without that of the first token, which is then any with equal chance. It `gives`
    probabilities or logits, and is sent `arrays` of torch or numpy; with `pad` in few shapes.

    `order` is that of the latent kernels one believes it filters. Banks are told apart by the name,
    the weights that `predict` holds, and what it predicts; or by a `fingerprint` that is given, and
    what it predicts. The meter counts the histories of one token or more that it is sent, each
    once: one new position, however long the history. Each history is taken to be predicted alike in
    any batch. `max_length` is the most tokens a history may have.
    """

    def __init__(
        self,
        predict: Callable[[Tensor], Any],
        *,
        vocab_size: Any,
        order: Any,
        name: str = "function",
        prior: Prior | None = None,
        fingerprint: str | None = None,
        max_length: int | None = None,
        home: Home | None = None,
        **how: Any,
    ) -> None:
        self.predict, self.name, self.prior = predict, name, prior
        space = _space(vocab_size, order, name)
        self.max_length = None if max_length is None else whole_number(max_length, "max_length")
        self.family, self.vocab_size = MarkovFamily(space), space.vocab_size
        require(
            prior is None or prior.family.vocab_size == self.vocab_size,
            f"{name}: its prior is of another vocabulary than {self.vocab_size} tokens",
        )
        self.given_fingerprint = fingerprint
        self.calling = Calling(predict, self.vocab_size, name, home=home, **how)
        everywhere = self.calling.all_positions
        self.longest_context = None if everywhere else LONGEST_CONTEXT
        self.can = Can.READ_TREES if everywhere else Can.NOTHING

    @property
    def holder(self) -> Any:
        return self.predict

    def called(self, name: str, made_of: str) -> str:
        facts = f"{name} {self.vocab_size} {self.order}{made_of}"
        return hashlib.sha256(facts.encode()).hexdigest()

    def batch_invariant(self, n_tokens: int) -> bool:
        return True

    def batch_limit(self, n_tokens: int) -> int:
        return max(1, NUMBERS_AT_ONCE // (n_tokens + 1))

    def start(self, batch: int, capacity: int = 16) -> HistoryState:
        return self._ask(torch.zeros(batch, 0, dtype=torch.long))

    def advance(
        self, state: HistoryState, tokens: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B V"], HistoryState]:
        after = self._ask(torch.cat([state.tokens, tokens[:, None].cpu()], 1))
        return after.log_probs, after

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        if self.calling.all_positions:
            return self.calling.laws(tokens.cpu())
        lengths = range(tokens.shape[1] + 1)
        return torch.stack([self._ask(tokens[:, :n]).log_probs for n in lengths], 1)

    def continuation_log_probs(
        self, prompts: Int[Tensor, "B m"], horizon: int
    ) -> Float[Tensor, "B Y"]:
        """All paths of continuations side by side, in few calls."""
        if Can.READ_TREES not in self.can:
            raise NotImplementedError
        paths = all_sequences(self.vocab_size, horizon - 1)
        rows = prompts.cpu().repeat_interleave(len(paths), 0)
        whole = torch.cat([rows, paths.repeat(len(prompts), 1)], 1)
        parts = whole.split(max(1, TOKENS_IN_A_CALL // max(1, whole.shape[1])))
        laws = torch.cat([self.calling.laws(part) for part in parts])
        laws = laws[:, prompts.shape[1] :].unflatten(0, (len(prompts), -1))
        return along_paths(laws[:, 0, 0], laws[:, :, 1:], paths)

    def shared_log_probs(self, prompts: Int[Tensor, "B m"], horizon: int) -> Float[Tensor, "B Y"]:
        return self.continuation_log_probs(prompts, horizon)

    def _ask(self, tokens: Int[Tensor, "B T"]) -> HistoryState:
        return HistoryState(tokens, self.calling.laws(tokens.cpu())[:, -1])


DECLARED = ("max_length", "fingerprint", "prior", "gives", "all_positions", "arrays", "pad")
"""What a function may have set on it besides its vocabulary and order (`FunctionModel`)."""

ABILITIES = (
    "log_predictive",
    "batch_invariant",
    "batch_limit",
    "continuation_log_probs",
    "shared_log_probs",
    "continuation_log_probs_of_rows",
    "continuation_log_probs_of_embeddings",
    "embeddings",
)
"""What an object may bring of its own. All but the first three are asked for only where `can`, its
own or by what it brings, says so."""


def _abilities_of(model: Any) -> Can:
    """What an object that declares nothing can do, by the methods it brings."""
    brings = {ability for ability in ABILITIES if hasattr(model, ability)}
    can = Can.NOTHING
    for ability, methods in (
        (Can.READ_TREES, {"continuation_log_probs", "shared_log_probs"}),
        (Can.ONE_HOTS, {"continuation_log_probs_of_rows"}),
        (Can.EMBED, {"continuation_log_probs_of_embeddings", "embeddings"}),
    ):
        if methods <= brings:
            can |= ability
    return can


@dataclass(frozen=True, eq=False)
class _Lawful:
    """A state of a user's model, and its laws as they were checked."""

    own: Any
    log_probs: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, "K"]) -> _Lawful:
        return _Lawful(self.own.select(rows), self.log_probs[rows.to(self.log_probs.device)])


class Adapted(Model):
    """Any object with `vocab_size` (or a `space`), `start` and `advance`, the rest filled in.

    What else a model may declare is taken where the object has it, under the same name.
    """

    def __init__(self, model: Any, name: str, home: Home | None = None) -> None:
        made = not isinstance(model, type)
        require(made, f"{name} is a class: expected a model made of it, as in {name}()")
        for needed in ("start", "advance"):
            require(hasattr(model, needed), f"{name} has no '{needed}': not a sequence model")
        said = getattr(model, "space", model)
        require(hasattr(said, "vocab_size"), f"{name} has no 'vocab_size': not a sequence model")
        order = getattr(said, "order", None)
        space = _space(said.vocab_size, 0 if order is None else order, name)
        self.model, self.vocab_size, self._home = model, space.vocab_size, home
        own = None if order is None else MarkovFamily(space)
        self.family = getattr(model, "family", own)
        for attribute in ("prior", "max_length", "device", *ABILITIES):
            if hasattr(model, attribute):
                setattr(self, attribute, _guarded(getattr(model, attribute), name, home))
        self.prior = getattr(model, "prior", getattr(model, "process", None))
        self.can = getattr(model, "can", _abilities_of(model))
        self.name, self.made_of = getattr(model, "name", name), type(model).__qualname__
        self.given_fingerprint = getattr(model, "fingerprint", None)
        self._takes_capacity = "capacity" in inspect.signature(model.start).parameters

    @property
    def holder(self) -> Any:
        return self.model

    def start(self, batch: int, capacity: int = 16) -> Any:
        room = {"capacity": capacity} if self._takes_capacity else {}
        with users_own(self.name, self._home):
            state = self.model.start(batch, **room)
        require(
            hasattr(state, "log_probs"),
            f"{self.name}: the state that start returns has no log_probs",
        )
        return _Lawful(state, self._law(state.log_probs, "start", batch))

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        with users_own(self.name, self._home):  # of a copy: it may write into what it is given
            answer: Any = self.model.advance(state.own, tokens.clone())
        paired = isinstance(answer, tuple | list) and len(answer) == 2
        require(paired, f"{self.name}: advance returned no pair of a law and a state")
        law = self._law(answer[0], "advance", len(tokens))
        return law, _Lawful(answer[1], law)

    def _law(self, given: Any, said_by: str, batch: int) -> Float[Tensor, "B V"]:
        expected = (batch, self.vocab_size)
        found = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        require(
            found == expected and given.is_floating_point(),
            f"{self.name}: {said_by} returned a law of shape {found}: expected {expected}, the "
            "logarithms of probabilities",
        )
        return lawful(given.detach(), self.name)

    def to(self, device: str) -> Model:
        if isinstance(self.model, torch.nn.Module):
            self.model.to(device)
            self.device = getattr(self.model, "device", self.device)
        return self


def _guarded(given: Any, name: str, home: Home | None) -> Any:
    """A method of a user's whose failures are told in the model's name; else what is given."""
    if not inspect.isroutine(given):
        return given

    @wraps(given)
    def called(*arguments: Any, **named: Any) -> Any:
        with users_own(name, home):
            return given(*arguments, **named)

    return called


def _space(vocab_size: Any, order: Any, name: str) -> ContextSpace:
    """What a user's model says of itself, as whole numbers or refused."""
    vocab = whole_number(vocab_size, f"{name}: vocab_size")
    return ContextSpace(vocab, whole_number(order, f"{name}: order"))


def from_file(text: str, device: str = "cpu") -> Model:
    """`./file.py:name`: a model with `vocab_size`, `start` and `advance`, or a function with
    `vocab_size` and `order` set on it, and `max_length` where it has one. Results call it by this
    text; banks know it by its name in the file, wherever that lies and whatever else it says."""
    given, home = object_from_file(text)
    model = _opened(given, text, home)
    path, _, attribute = text.rpartition(":")
    model.known_as, model.own_name, model.name = attribute, model.name, text
    model.content = hashlib.sha256(Path(path).read_bytes() + attribute.encode()).hexdigest()
    return model


def _opened(given: Any, text: str, home: Home) -> Model:
    if isinstance(given, Model):
        model = copy.copy(given)  # the file keeps its own, for whoever opens it next
        for method in ("start", "advance", *ABILITIES):
            setattr(model, method, _guarded(getattr(model, method), text, home))
        if isinstance(model, FunctionModel):
            model.calling = replace(model.calling, name=text, home=home)
        return model
    if hasattr(given, "advance"):
        return Adapted(given, text, home)
    said = f"'{text}' is neither a model nor a function with vocab_size and order set on it"
    if callable(given) or isinstance(given, torch.nn.Module):
        said += (
            f": in the file, model = posteer.wrap({text.rpartition(':')[2]}) makes one of a network"
        )
    require(is_function_model(given), said)
    return function_model(given, text, home=home)


def is_function_model(given: Any) -> bool:
    """Whether it is called with histories, and says over which vocabulary and of which order."""
    speaks = callable(given) and not hasattr(given, "advance") and not isinstance(given, type)
    return speaks and hasattr(given, "vocab_size") and hasattr(given, "order")


def function_model(
    given: Any,
    name: str,
    vocab_size: Any = None,
    order: Any = None,
    *,
    home: Home | None = None,
    **how: Any,
) -> FunctionModel:
    """A function whose vocabulary and order are given or set on it, and what of `DECLARED` is."""
    declared = {what: getattr(given, what) for what in DECLARED if hasattr(given, what)}
    compiled = {"pad": True, "arrays": "numpy"} if is_compiled(given) else {}
    return FunctionModel(
        given,
        vocab_size=given.vocab_size if vocab_size is None else vocab_size,
        order=given.order if order is None else order,
        name=name,
        home=home,
        **{"steady": False, **compiled, **declared, **how},
    )
