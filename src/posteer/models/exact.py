"""The idealised Bayes-filtered transformer: the exact posterior predictive of a prior."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from posteer.core import Bool, Float, InputError, Int, require
from posteer.core.limits import NUMBERS_IN_PASSING
from posteer.core.spec import shown
from posteer.families.protocol import Prior, SizedPrior
from posteer.families.registry import fingerprint, open_process
from posteer.models.protocol import Can, Model


class ExactModel(Model):
    """A model whose predictions are exact Bayes under `prior`, after `context` if there is one.

    Exact Bayes after a context is exact Bayes under the posterior, started where the context ends:
    it reads nothing. `base` is the model before that.
    """

    can = Can.EXACT
    probed = False
    prior: Prior

    def __init__(self, prior: Prior, name: str = "exact", base: ExactModel | None = None) -> None:
        self.prior, self.name, self.context = prior, name, prior.context
        self.family, self.vocab_size = prior.family, prior.family.vocab_size
        self._base = base

    @property
    def base(self) -> Model:
        return self._base or self

    @property
    def fingerprint(self) -> str:
        own = fingerprint(self.prior) if self._base is None else self._base.fingerprint
        return conditioned_fingerprint(own, self.context) if self.context else own

    def batch_invariant(self, n_tokens: int) -> bool:
        return True

    def batch_limit(self, n_tokens: int) -> int:
        prior: object = self.prior
        table = self.vocab_size ** (self.order + 1)
        width = prior.width(n_tokens) if isinstance(prior, SizedPrior) else table
        return max(1, NUMBERS_IN_PASSING // width)

    def start(self, batch: int, capacity: int = 16) -> Any:
        return self.prior.start(batch)

    def advance(self, state: Any, tokens: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B V"], Any]:
        after = self.prior.observe(state, tokens)
        return after.log_probs, after

    def impossible(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        return torch.isneginf(self.prior.evidence(prompts))

    def conditioned(self, context: tuple[int, ...]) -> ExactModel:
        try:
            posterior = self.prior.after(context)
        except InputError as error:
            tokens = list(context)
            raise InputError(f"the context {tokens} is impossible under {self.name}") from error
        return ExactModel(posterior, self.name, self)


def conditioned_fingerprint(base: str, context: tuple[int, ...]) -> str:
    """Names what a model computes after a context."""
    return hashlib.sha256(f"{base} after {context}".encode()).hexdigest()


def from_text(text: str, device: str = "cpu") -> ExactModel:
    """`exact:urn`, `exact:markov(vocab=3,order=2)`, `exact:` and any other prior."""
    _, colon, prior = text.partition(":")
    require(
        bool(colon) and bool(prior.strip()),
        f"'{shown(text)}': expected exact: and a prior, as in exact:urn",
    )
    return ExactModel(open_process(prior), name=text)
