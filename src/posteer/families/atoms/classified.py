"""Rollouts classified by the atoms of a known prior: which latent emitted each, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, InputError, Int, Spec, require
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.families.atoms.prior import AtomPrior
from posteer.families.protocol import FinitePrior, Prior
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.families.registry import open_process
from posteer.families.tallies import TokenTally, WholeRollouts, sound_tokens
from posteer.goals.protocol import Utility


@dataclass(frozen=True, eq=False)
class ClassifiedFamily(WholeRollouts):
    """Latents that are atoms of a prior. Two are the same where their prior and context are."""

    prior: AtomPrior
    order: int = 0

    @property
    def name(self) -> str:
        return "atoms"

    @property
    def text(self) -> str:
        """From which `open_family` makes it again, with the prior."""
        return "atoms"

    @property
    def vocab_size(self) -> int:
        return self.prior.family.vocab_size

    @property
    def numbers(self) -> int:
        """Of one latent: which it is."""
        return 1

    @property
    def treatments(self) -> tuple[str, ...]:
        """An atom is known whole: nothing is filled in."""
        return ("donor",)

    @property
    def _known(self) -> tuple[str, str, tuple[int, ...]]:
        return self.prior.spec, self.prior.content, self.prior.context

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassifiedFamily) and self._known == other._known

    def __hash__(self) -> int:
        return hash(self._known)

    def facts(self) -> dict[str, Any]:
        """The prior as text, with the hash of a file that it names."""
        text, content, context = self._known
        return {"prior": text, "prior_content": content, "prior_context": list(context)}

    def tally(self, n: int, context: tuple[int, ...], device: torch.device) -> TokenTally:
        return TokenTally(self.vocab_size)

    def fit_after(
        self,
        context: tuple[int, ...],
        counts: Int[Tensor, "L T"],
        treatment: str,
        stream: np.random.Generator,
    ) -> ClassifiedLatents:
        """An atom for each rollout, drawn as likely as the rollout makes it: their frequencies are
        then those of the model's own prior, however badly rollouts are told apart."""
        own = self.after(context)
        below = own.posterior(counts).cumsum(1)[:, :-1]
        classes = (below <= torch.from_numpy(stream.random(len(counts)))[:, None]).sum(1)
        return ClassifiedLatents(own, classes)

    def after(self, context: tuple[int, ...]) -> ClassifiedFamily:
        """The atoms where a context leaves them."""
        return ClassifiedFamily(self.prior.after(context)) if context else self

    def posterior(self, rollouts: Int[Tensor, "L T"]) -> Float[Tensor, "L J"]:
        """The weight of each atom once it has read a whole rollout."""
        size = max(1, NUMBERS_AT_ONCE // self.prior.atoms.width)
        parts = [self.prior.read(some.long()).log_joint for some in rollouts.split(size)]
        joint = torch.cat(parts)
        impossible = joint.isneginf().all(1, keepdim=True)
        return torch.where(impossible, self.prior.log_weights, joint).softmax(1)

    def latents_of(self, tensors: dict[str, Tensor]) -> ClassifiedLatents:
        """Latents from the tensors of a bank, refused where they are none."""
        classes, most = tensors["classes"], len(self.prior.atoms)
        good = classes.ndim == 1 and classes.dtype == torch.int64
        require(
            good, f"classes of {classes.dtype} and shape {tuple(classes.shape)}: expected whole"
        )
        inside = bool(((classes >= 0) & (classes < most)).all())
        require(inside, f"it holds atoms that are none of {most}")
        sound_tokens(tensors, len(classes), self.vocab_size)
        return ClassifiedLatents(self, classes)


@dataclass(frozen=True, eq=False)
class ClassifiedLatents(ReadingLatents):
    """L atoms, most of them many times: each prompt is read once by each atom."""

    kind: ClassifiedFamily
    classes: Int[Tensor, "L"]

    @property
    def family(self) -> ClassifiedFamily:
        return self.kind

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def atoms(self) -> ReadingLatents:
        return self.kind.prior.latents

    @property
    def width(self) -> int:
        return self.atoms.width + len(self)

    def start(self, batch: int) -> ClassifiedReading:
        return ClassifiedReading(self.atoms.start(batch), self.classes)

    def observe(self, reading: ClassifiedReading, tokens: Int[Tensor, "B"]) -> ClassifiedReading:
        return ClassifiedReading(self.atoms.observe(reading.whole, tokens), self.classes)

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        mean = self.atoms.mean_after(utility, horizon)
        return lambda reading, contexts: mean(reading.whole, contexts)[:, self.classes]

    def pick(self, rows: Int[Tensor, "K"]) -> ClassifiedLatents:
        return ClassifiedLatents(self.kind, self.classes[rows])

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        return self.atoms.pick(self.classes).roll_out(length, generator, head)

    def tensors(self) -> dict[str, Tensor]:
        return {"classes": self.classes}


@dataclass(frozen=True, eq=False)
class ClassifiedReading:
    """What the atoms have read, seen by latents that are atoms."""

    whole: Any
    classes: Int[Tensor, "L"]

    @property
    def log_likelihood(self) -> Float[Tensor, "B L"]:
        found: Tensor = self.whole.log_likelihood[:, self.classes]
        return found

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        found: Tensor = self.whole.log_probs[:, self.classes]
        return found

    def select(self, rows: Int[Tensor, "K"]) -> ClassifiedReading:
        return ClassifiedReading(self.whole.select(rows), self.classes)


def classified_by(prior: object, who: str) -> ClassifiedFamily:
    """The family of a finite prior's atoms; any other prior is refused."""
    if not isinstance(prior, FinitePrior):
        said = prior.spec if isinstance(prior, Prior) else "not known"
        raise InputError(f"{who}: expected a prior of finitely many latents, and it is {said}")
    return ClassifiedFamily(prior.as_atoms())


def asked_for(spec: Spec, vocab_size: int, prior: Prior | None) -> ClassifiedFamily:
    """`atoms`: those of the prior that the model is known to have."""
    spec.take()
    return classified_by(prior, "atoms")


def from_facts(facts: Mapping[str, Any]) -> ClassifiedFamily:
    """The family that a bank's file names; refused where its prior's file has changed."""
    known = classified_by(open_process(facts["prior"]), "atoms")
    same = known.prior.content == facts["prior_content"]
    require(same, "the file that holds its atoms has changed since it was drawn")
    return known.after(tuple(facts["prior_context"]))
