"""What a model predicts on a few of its own histories: how a changed model is told from its bank.

A bank of a model whose fingerprint does not say all that it computes keeps the laws that its first
rollouts were drawn from. Before such a bank is used the model is asked for them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, InputError, Int
from posteer.core.randomness import torch_stream
from posteer.models.protocol import Model

HISTORIES, LAWS = 8, 8
"""Rollouts whose laws are kept, and how many of each: after no token, after one, .."""

TOLERANCE = 1e-4
"""Probabilities of one model may differ by so much. Networks in float32 read in another batch, with
other threads or on another device differ by 1e-6 or so; a model that moves none of its laws by more
moves J by less than a bank can tell."""

GRAIN, SHIFT = 0.01, 0.381966
"""In a name probabilities are cut to this grain; shifted, as many are round numbers."""


@dataclass(frozen=True, eq=False)
class Probe:
    """Histories after a bank's context, and the law of the next token after each beginning."""

    tokens: Int[Tensor, "P T"]
    laws: Float[Tensor, "P T1 V"]

    def tensors(self, name: str = "probe") -> dict[str, Tensor]:
        return {f"{name}_tokens": self.tokens, f"{name}_laws": self.laws}

    @staticmethod
    def of(tensors: dict[str, Tensor], name: str = "probe") -> Probe | None:
        """The probe of a name among the tensors of a file, if there is one."""
        if not {f"{name}_tokens", f"{name}_laws"} <= tensors.keys():
            return None
        return Probe(tensors[f"{name}_tokens"], tensors[f"{name}_laws"])

    @staticmethod
    def join(parts: Sequence[Probe | None]) -> Probe | None:
        """The histories of all parts that have any."""
        known = [part for part in parts if part is not None and len(part.tokens) > 0]
        if not known:
            return None
        tokens, laws = zip(*((part.tokens, part.laws) for part in known), strict=True)
        return Probe(torch.cat(tokens), torch.cat(laws))

    def within(self, context_tokens: int, longest: int | None, budget: int | None) -> Probe | None:
        """As much of it as a model may be asked; None if that is nothing."""
        rows, width = self.tokens.shape
        if longest is not None:
            width = min(width, longest - context_tokens)
        if budget is not None and rows * (context_tokens + width) > budget:
            rows = max(1, budget // (context_tokens + width))
            width = min(width, budget // rows - context_tokens)
        if rows == 0 or width < 0:
            return None
        return Probe(self.tokens[:rows, :width], self.laws[:rows, : width + 1])

    def departure(self, model: Model, context: tuple[int, ...]) -> float:
        """The most by which a model's probability of a token differs from what was kept."""
        if self.laws.shape[-1] != model.vocab_size:
            return 1.0
        asked = _laws_after(model, context, self.tokens)
        apart = (asked - self.laws.double()).abs()
        return float(apart.nan_to_num(1.0).max())


class Probing:
    """Keeps the laws of those rollouts that are among the first of all, as they are drawn."""

    def __init__(self, model: Model, first: int, count: int) -> None:
        self.rows = max(0, min(HISTORIES - first, count))
        self.kept = model.probed
        self.laws: list[Tensor] = []
        self.tokens: list[Tensor] = []

    def law(self, law: Float[Tensor, "L V"]) -> None:
        """The laws that the next tokens are drawn from."""
        if self.kept and len(self.laws) < LAWS:
            self.laws.append(law[: self.rows].double().cpu())

    def read(self, tokens: Int[Tensor, "L"]) -> None:
        """The tokens that were drawn."""
        if self.kept and len(self.tokens) < LAWS:
            self.tokens.append(tokens[: self.rows].to(torch.int32).cpu())

    def probe(self) -> Probe | None:
        """What was kept; no row of it if none of these rollouts is among the first."""
        if not self.kept:
            return None
        tokens = torch.stack(self.tokens, 1)[:, : len(self.laws) - 1]
        return Probe(tokens, torch.stack(self.laws, 1))


def _laws_after(
    model: Model, context: tuple[int, ...], tokens: Int[Tensor, "P T"]
) -> Float[Tensor, "P T1 V"]:
    """The model's laws along some histories, token by token as rollouts ask for them."""
    state = model.start(len(tokens), len(context) + tokens.shape[1])
    device = state.log_probs.device
    for symbol in context:
        _, state = model.advance(state, torch.full((len(tokens),), symbol, device=device))
    laws = [state.log_probs]
    for column in tokens.to(device).long().unbind(1):
        law, state = model.advance(state, column)
        laws.append(law)
    return torch.stack([law.exp().double().cpu() for law in laws], 1)


class ChangedModelError(InputError):
    """A model that predicts otherwise than when a bank was drawn from it."""


def require_laws(
    probe: Probe | None,
    model: Model,
    context: tuple[int, ...],
    otherwise: str,
    budget: int | None = None,
) -> None:
    """Refuse what was drawn from a model that predicts otherwise than this one does."""
    if probe is None or not model.probed:
        return
    asked = probe.within(len(context), model.max_length, budget)
    if asked is None:
        return
    apart = asked.departure(model, context)
    if not apart <= TOLERANCE:
        raise ChangedModelError(
            f"{model.name} has changed since the bank was drawn: its probabilities differ by up to "
            f"{apart:.2g}: {otherwise}"
        )


def behaviour(model: Model) -> str:
    """A fingerprint of what a model does: for names of runs.

    A probed model rolls itself out by fixed random numbers, at most 56 tokens of it, and its laws
    are part of the name: of those of another model a name is the same only if no probability
    crosses a cut. One that lies within rounding of a cut, for float32 about one model in a
    thousand, may be called otherwise where sums are taken in another order.
    """
    if not model.probed:
        return model.fingerprint
    laws = LAWS if model.max_length is None else min(LAWS, model.max_length + 1)
    uniforms = torch.rand(laws, HISTORIES, generator=torch_stream(0, "probe"), dtype=torch.float64)
    state = model.start(HISTORIES, laws)
    digest = hashlib.sha256(model.fingerprint.encode())
    for step, uniform in enumerate(uniforms):
        law = state.log_probs.exp().double().cpu()
        digest.update((law / GRAIN + SHIFT).floor().to(torch.int16).numpy().tobytes())
        if step + 1 < laws:
            tokens = (uniform[:, None] >= law.cumsum(-1)[:, :-1]).sum(-1)
            _, state = model.advance(state, tokens.to(state.log_probs.device))
    return digest.hexdigest()
