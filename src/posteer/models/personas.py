"""A mixture of models: each is a latent, a persona, and what was read tells which one speaks.

    p(y) = sum_j w_j p_j(y),    p_j(y) = prod_t p_j(y_t | y_<t)

Predictions are exact Bayes over the personas. A persona can only be asked: reading one token of the
mixture reads one of every persona, and the meter counts them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core import Bool, Float, Int, parse_spec, require
from posteer.core.limits import ENUMERABLE_MEANS, NUMBERS_AT_ONCE
from posteer.core.spec import shown
from posteer.families.atoms.files import array_of
from posteer.families.atoms.prior import AtomBelief, AtomPrior
from posteer.families.atoms.side_by_side import AtomFamily
from posteer.families.protocol import Family, Latents
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.goals.objectives import ExpectedUtility
from posteer.goals.protocol import Utility
from posteer.models.continuations import laws_by_levels, read_prompts, roll_out_from
from posteer.models.protocol import Can, Meter, Model
from posteer.models.registry import open_model

MOST_PERSONAS = 64
"""Every token is read by each."""

TOKENS_FORESEEN = 256
"""Of a history, when histories are put into batches before their length is known."""


@dataclass(frozen=True, eq=False)
class SharpState:
    """The state of a model, and its law in double precision."""

    own: Any
    log_probs: Float[Tensor, "B V"]

    def select(self, rows: Int[Tensor, "K"]) -> SharpState:
        return SharpState(self.own.select(rows), self.log_probs[rows])


class Sharp(Model):
    """A model whose laws are summed up to one in double precision, so that likelihoods of long
    histories are those of a law."""

    def __init__(self, model: Model) -> None:
        self.inner, self.vocab_size = model, model.vocab_size

    def batch_limit(self, n_tokens: int) -> int:
        return self.inner.batch_limit(n_tokens)

    def check_laws(self) -> None:
        self.inner.check_laws()

    def start(self, batch: int, capacity: int = 16) -> SharpState:
        state = self.inner.start(batch, capacity)
        return SharpState(state, _sharp(state.log_probs))

    def advance(
        self, state: SharpState, tokens: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B V"], SharpState]:
        law, own = self.inner.advance(state.own, tokens)
        after = SharpState(own, _sharp(law))
        return after.log_probs, after


def _sharp(law: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    return law.detach().double().cpu().log_softmax(-1)


@dataclass(frozen=True, eq=False)
class PersonaReading:
    """What each model has read; `rows` says which model each latent is."""

    states: tuple[SharpState, ...]
    by_model: Float[Tensor, "B P"]
    rows: Int[Tensor, "L"]

    @property
    def log_likelihood(self) -> Float[Tensor, "B L"]:
        return self.by_model[:, self.rows]

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        return torch.stack([state.log_probs for state in self.states], 1)[:, self.rows]

    def select(self, rows: Int[Tensor, "K"]) -> PersonaReading:
        states = tuple(state.select(rows) for state in self.states)
        return PersonaReading(states, self.by_model[rows], self.rows)


@dataclass(frozen=True, eq=False)
class PersonaLatents(ReadingLatents):
    """Models as latents. `models` are behind a meter where reading them is to be counted."""

    models: tuple[Model, ...]
    rows: Int[Tensor, "L"]

    @property
    def family(self) -> AtomFamily:
        return AtomFamily(self.models[0].vocab_size, only_asked=True)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        together = min(model.batch_limit(TOKENS_FORESEEN) for model in self.models)
        return max(len(self) * (1 + self.family.vocab_size), NUMBERS_AT_ONCE // together)

    def start(self, batch: int, capacity: int = 16) -> PersonaReading:
        states = tuple(Sharp(model).start(batch, capacity) for model in self.models)
        silent = torch.zeros(batch, len(states), dtype=torch.float64)
        return PersonaReading(states, silent, self.rows)

    def observe(self, reading: PersonaReading, tokens: Int[Tensor, "B"]) -> PersonaReading:
        news = [state.log_probs.gather(1, tokens[:, None])[:, 0] for state in reading.states]
        pairs = zip(self.models, reading.states, strict=True)
        states = tuple(Sharp(model).advance(state, tokens)[1] for model, state in pairs)
        return PersonaReading(states, reading.by_model + torch.stack(news, 1), reading.rows)

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        """By the tree of continuations, where that is small enough."""
        vocab = self.family.vocab_size
        require(
            vocab**horizon <= ENUMERABLE_MEANS,
            f"personas: {vocab}**{horizon} continuations are too many to enumerate",
        )
        means = [_by_tree(Sharp(model), utility, horizon) for model in self.models]

        def mean(reading: PersonaReading, contexts: Int[Tensor, "B"]) -> Float[Tensor, "B L"]:
            pairs = zip(means, reading.states, strict=True)
            return torch.stack([of(state, contexts) for of, state in pairs], 1)[:, self.rows]

        return mean

    def pick(self, rows: Int[Tensor, "K"]) -> PersonaLatents:
        return replace(self, rows=self.rows[rows])

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        tokens = torch.zeros(len(self), length, dtype=torch.long)
        for at, model in enumerate(map(Sharp, self.models)):
            own = (self.rows == at).nonzero()[:, 0]
            for some in own.split(model.batch_limit(len(head) + length)):
                heads = torch.tensor([head], dtype=torch.long).expand(len(some), -1)
                state = read_prompts(model, heads)
                tokens[some] = roll_out_from(model, state, length, generator)
        return tokens

    def tensors(self) -> dict[str, Tensor]:
        return {"rows": self.rows}


def _by_tree(model: Sharp, utility: Utility, horizon: int) -> Any:
    objective = ExpectedUtility(utility, model.vocab_size, horizon)
    leaves = model.vocab_size ** (horizon - 1)

    def mean(state: SharpState, contexts: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        part = max(1, model.batch_limit(horizon) // leaves)
        found = []
        for rows in torch.arange(len(contexts)).split(part):
            laws = laws_by_levels(model, state.select(rows), len(rows), horizon)
            found.append(objective.of_laws(laws, contexts[rows]))
        return torch.cat(found)

    return mean


@dataclass(frozen=True)
class PersonaPrior:
    """The prior of personas, or its posterior after a context, which is read only once something is
    asked of it: merely to look for a prior costs nothing."""

    base: AtomPrior
    context: tuple[int, ...] = ()

    @cached_property
    def atoms(self) -> AtomPrior:
        return self.base.after(self.context) if self.context else self.base

    def as_atoms(self) -> AtomPrior:
        return self.atoms

    @property
    def family(self) -> Family:
        return self.base.family

    @property
    def spec(self) -> str:
        return self.base.spec

    def sample(self, n: int, stream: np.random.Generator) -> Latents:
        return self.atoms.sample(n, stream)

    def start(self, batch: int) -> AtomBelief:
        return self.atoms.start(batch)

    def observe(self, belief: AtomBelief, tokens: Int[Tensor, "B"]) -> AtomBelief:
        return self.atoms.observe(belief, tokens)

    def evidence(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        return self.atoms.evidence(prompts)

    def after(self, tokens: tuple[int, ...]) -> PersonaPrior:
        return PersonaPrior(self.base, (*self.context, *tokens))


class PersonaModel(Model):
    """Exact Bayes over models that are asked for their laws.

    Its latents are as dear as its models: where it is metered, so is what its prior reads. It is
    `EXACT`, which lets it be asked freely, only where all its personas are.
    """

    def __init__(
        self, models: tuple[Model, ...], weights: Float[Tensor, "P"] | None, names: tuple[str, ...]
    ) -> None:
        said = "" if weights is None else f",weights={weights.tolist()}"
        self.personas, called = models, f"personas({','.join(names)}{said})".replace(" ", "")
        self.atoms = AtomPrior.of(_latents(models), weights, called, names)
        self.name, self.vocab_size = called, models[0].vocab_size
        self.names = models[0].names if len({model.names for model in models}) == 1 else ()
        self.family, self.prior = self.atoms.family, PersonaPrior(self.atoms)
        self.tokens_per_token = sum(model.tokens_per_token for model in models)
        self.probed = any(model.probed for model in models)
        self.can = Can.EXACT if all(Can.EXACT in model.can for model in models) else Can.NOTHING
        lengths = [model.max_length for model in models if model.max_length is not None]
        self.max_length = min(lengths, default=None)

    @property
    def fingerprint(self) -> str:
        weights = self.atoms.log_weights.tolist()
        made_of = " ".join(model.fingerprint for model in self.personas)
        return hashlib.sha256(f"personas {weights} {made_of}".encode()).hexdigest()

    @property
    def formerly(self) -> tuple[str, ...]:
        return ()

    @property
    def context_tokens(self) -> int:
        return sum(model.context_tokens for model in self.personas)

    def batch_invariant(self, n_tokens: int) -> bool:
        return all(model.batch_invariant(n_tokens) for model in self.personas)

    def batch_limit(self, n_tokens: int) -> int:
        return min(model.batch_limit(n_tokens) for model in self.personas)

    def start(self, batch: int, capacity: int = 16) -> AtomBelief:
        return AtomBelief(self.atoms, _latents(self.personas).start(batch, capacity))

    def advance(
        self, state: AtomBelief, tokens: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B V"], AtomBelief]:
        after = self.atoms.observe(state, tokens.cpu())
        return after.log_probs, after

    def impossible(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        """What no persona could have read; only exact ones know without being asked."""
        return torch.stack([model.impossible(prompts) for model in self.personas]).all(0)

    def prior_behind(self, meter: Meter) -> PersonaPrior:
        behind = _latents(tuple(meter(model) for model in self.personas))
        return PersonaPrior(replace(self.atoms, atoms=behind))

    def check_laws(self) -> None:
        for model in self.personas:
            model.check_laws()

    def to(self, device: str) -> Model:
        self.personas = tuple(model.to(device) for model in self.personas)
        self.atoms = replace(self.atoms, atoms=_latents(self.personas))
        self.prior = PersonaPrior(self.atoms)
        return self


def _latents(models: tuple[Model, ...]) -> PersonaLatents:
    return PersonaLatents(models, torch.arange(len(models)))


def personas(
    models: Sequence[Any],
    *,
    weights: Sequence[float] | Any = None,
    names: Sequence[str] | None = None,
    device: Any = None,
) -> PersonaModel:
    """A model that is one of several, nobody has said which: exact Bayes over them.

    `models` are names or objects over one vocabulary, equally likely unless `weights` are given. A
    model after a context (`posteer.models.condition`) is a persona too. A token is counted once for
    every persona that reads it.

    >>> both = personas(["exact:coins(0.2)", "exact:urn"], weights=[0.25, 0.75])
    >>> both.tokens_per_token
    2
    """
    n = len(models)
    require(1 <= n <= MOST_PERSONAS, f"{n} personas: expected 1 to {MOST_PERSONAS}")
    opened = tuple(open_model(model, device) for model in models)
    vocabs = sorted({model.vocab_size for model in opened})
    require(len(vocabs) == 1, f"personas over {vocabs} tokens: expected one vocabulary")
    called = tuple(model.name for model in opened) if names is None else tuple(map(str, names))
    require(len(called) == n, f"names: {len(called)} given for {n} personas")
    given = None if weights is None else array_of(list(weights), 1, "weights")
    return PersonaModel(opened, given, called)


def from_text(text: str, device: str = "cpu") -> PersonaModel:
    """`personas(urn,exact:urn,./file.py:predict,weights=[0.5,0.3,0.2])`."""
    spec = parse_spec(text)
    given = replace(spec, arguments=()).take(weights=None)
    for one in spec.arguments:
        require(isinstance(one, str), f"personas: {shown(one)}: expected a model such as urn")
    require(len(spec.arguments) > 0, "personas: expected models, as in personas(urn,exact:urn)")
    model = personas(spec.arguments, weights=given["weights"], device=device)
    model.name = text
    return model
