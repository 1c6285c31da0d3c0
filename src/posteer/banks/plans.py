"""What determines the rollouts of a bank, and what they cost."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from posteer.banks.drawn import LatentBank
from posteer.core import InputError, require
from posteer.core.limits import DRAW_SECONDS, MOST_TOKENS, N_SAMPLES, ROLLOUT_LENGTH
from posteer.core.spec import number, shown, within
from posteer.families.atoms.classified import classified_by
from posteer.families.protocol import Counted, Family, FinitePrior, Fittable
from posteer.families.registry import open_family
from posteer.models.conditioned import require_readable
from posteer.models.protocol import Model

BLOCK = 64
"""Rollouts that share a random stream, and the batch in which a model whose arithmetic depends on
the batch is always run on CPU."""

MOST_NUMBERS = 2**27
"""Probabilities of a whole bank: a gibibyte."""

SHORTEST_SNAPSHOT = 8

READ_ROLLOUTS, READ_RANDOM, READ_TOKENS = 64, 128, 40
"""Of a model that is no declared filter: rollouts and random histories that it is read along, and
how far. Prompts that are longer are judged by what shorter ones told."""

SIZES = ("n_samples", "rollout_length")
"""What of a plan may be free."""


@dataclass(frozen=True, kw_only=True)
class DrawPlan:
    """What determines the rollouts of a bank, together with the model.

    `context` are observed tokens that every rollout continues; only what follows them is counted.
    `family` is what the latents are asked to be (`open_family`), empty for what the model says.
    `tuned` reads them off kept tokens as predicts the rollouts best (`banks.tuning`), and keeps
    what the model says along some histories.
    Sizes that are `free` were named by nobody: they are the most, and of a model whose speed is not
    known as many are drawn as `seconds` allow (`banks.sizing`). Neither is part of what a plan is.
    """

    n_samples: int = N_SAMPLES
    rollout_length: int = ROLLOUT_LENGTH
    seed: int = 0
    context: tuple[int, ...] = ()
    unvisited: str = "donor"
    keep_tokens: bool = False
    family: str = ""
    tuned: bool = False
    free: tuple[str, ...] = field(default=(), compare=False)
    seconds: float = field(default=DRAW_SECONDS, compare=False)

    def check(self, model: Model) -> Fittable:
        """The family of the latents; what this model cannot do is refused before anything is
        allocated."""
        family = fitted_family(model, self.family)
        vocab, order, longest = model.vocab_size, family.order, model.max_length
        require(self.n_samples >= 2, f"{self.n_samples} latent samples: expected at least 2")
        size = getattr(family, "numbers", vocab ** (order + 1))  # a family may say what it takes
        require(
            self.n_samples * size <= MOST_NUMBERS,
            f"{self.n_samples} latents of {size} probabilities each: expected at most "
            f"{MOST_NUMBERS // size}",
        )
        known = getattr(family, "treatments", (self.unvisited,))
        require(
            self.unvisited in known,
            f"unvisited '{shown(self.unvisited)}': expected one of {', '.join(known)}",
        )
        within(self.rollout_length, "rollouts of", 1, MOST_TOKENS)
        require(
            (isinstance(family, Counted) and not self.keep_tokens)
            or self.n_samples * self.rollout_length <= 2 * MOST_NUMBERS,
            f"{self.n_samples} rollouts of {self.rollout_length} tokens are too many to keep: "
            f"expected at most {2 * MOST_NUMBERS} tokens",
        )
        require(
            self.rollout_length > order,
            f"rollouts of {self.rollout_length} tokens: expected more than the order {order}",
        )
        outside = [token for token in self.context if not 0 <= token < vocab]
        require(
            not outside,
            f"context has the symbol {outside[0] if outside else ''}: expected symbols 0 to "
            f"{vocab - 1}",
        )
        require_readable(model.base, len(self.context))
        most = math.inf if longest is None else longest + 1 - len(self.context)
        require(
            most > order,
            f"a context of {len(self.context)} tokens: {model.name} was trained on positions for "
            f"{longest}, which leaves none to roll out",
        )
        require(
            self.rollout_length <= most,
            f"rollouts of {self.rollout_length} tokens after {len(self.context)} observed: "
            f"{model.name} was trained on positions for {longest} tokens, so at most {most}",
        )
        return family

    def price(self, model: Model) -> int:
        """The most model tokens that a draw takes, whole blocks where only those are read."""
        n = rounded(self.n_samples, 1 if runs_any_batch(model, self) else BLOCK)
        drawn = n * (len(self.context) + self.rollout_length - 1)
        if self.tuned:
            width = min(READ_TOKENS, self.rollout_length - 1)
            histories = min(READ_ROLLOUTS, self.n_samples) + READ_RANDOM
            drawn += histories * (len(self.context) + width)
        if self.unvisited != "predictive":
            return drawn
        return drawn + model.vocab_size**model.order * (len(self.context) + model.order)

    def of_sizes(self, sizes: dict[str, Any]) -> DrawPlan:
        """The plan with some of its sizes, by name."""
        return replace(self, **sizes)

    @property
    def snapshot_lengths(self) -> list[int]:
        """Earlier lengths at which counts are kept, to see how frequencies settle."""
        return snapshots_of(self.rollout_length)


def seconds_of(value: Any) -> float:
    """A time for a draw, or a refusal."""
    seconds = number(value, "seconds")
    require(seconds > 0, f"seconds {seconds:g}: expected more than 0")
    return seconds


@runtime_checkable
class FittedFamily(Family, Fittable, Protocol):
    """A family whose latents are read off rollouts."""


def fitted_family(model: Model, asked: str = "") -> FittedFamily:
    """What the latents of a model's rollouts are: what is asked for, else what it says; the atoms
    of a finite prior where it says nothing that can be read off rollouts."""
    family: object = model.family
    prior: object = model.prior
    if asked:
        family = open_family(asked, model.vocab_size, model.prior)
    elif not isinstance(family, Fittable) and isinstance(prior, FinitePrior):
        family = classified_by(prior, model.name)
    if not isinstance(family, FittedFamily):
        raise InputError(f"{model.name} does not say how latents are read off its rollouts")
    return family


def snapshots_of(length: int, halvings: int = 4) -> list[int]:
    """A length halved so many times, while a snapshot there tells something."""
    halves = {length >> times for times in range(1, halvings + 1)}
    return sorted(half for half in halves if half >= SHORTEST_SNAPSHOT)


def longest(plan: DrawPlan) -> int:
    """Tokens that a model has read at the end of a rollout."""
    return len(plan.context) + plan.rollout_length


def rounded(n: int, multiple: int) -> int:
    """The next multiple."""
    return -(-n // multiple) * multiple


def runs_any_batch(model: Model, plan: DrawPlan) -> bool:
    """Whether a rollout is the same in any batch, or on a device where that is not promised."""
    return model.device.type != "cpu" or model.batch_invariant(longest(plan))


def key_of(fingerprint: str, plan: DrawPlan) -> str:
    """Equal for draws of the same rollouts."""
    settings = asdict(plan)
    del settings["free"], settings["seconds"]
    if not plan.family:  # as draws were called before there was a choice
        del settings["family"]
    if not plan.tuned:
        del settings["tuned"]
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(f"{fingerprint} {text}".encode()).hexdigest()


def plan_of(bank: LatentBank) -> DrawPlan:
    """The plan that made a bank."""
    origin = bank.origin
    return DrawPlan(
        n_samples=len(bank),
        rollout_length=origin.rollout_length or 0,
        seed=origin.seed,
        context=origin.context,
        unvisited=bank.unvisited,
        keep_tokens=bank.sequences is not None,
        family="" if bank.smoothing else origin.family,
        tuned=bank.smoothing > 0,
    )
