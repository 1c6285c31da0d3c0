"""What the page may pick from: models by an id of ours, never by a path; methods by name.

Folders are named when the server is started. A page asks for one of them by its id, and no text of
a page is ever opened.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from posteer.banks.drawn import LatentBank
from posteer.core.errors import InputError, require
from posteer.core.spec import shown
from posteer.families.protocol import FinitePrior
from posteer.methods.registry import METHODS
from posteer.models import Model, open_model, shipped_models
from posteer.models.protocol import Can
from posteer.views.pages.latents import bank_at_hand, picture_of

EXACT = (
    *("exact:urn", "exact:beta-bernoulli", "exact:markov(vocab=3,order=1)"),
    *("exact:markov(vocab=2,order=2)", "exact:mess3", "exact:coins(0.2,0.5,0.8)"),
)
"""Models that are exact Bayes filters of a known prior."""
SHOWN = 500
"""Latents of a picture."""
DRAWN = 2000
"""Latents that are drawn from a prior."""
MOST_ATOMS = 32
"""Latents that are shown by name, where all of them are known."""


@dataclass(frozen=True)
class Pick:
    """A model that can be picked: `name` is what it is opened by."""

    id: str
    name: str
    kind: str
    alphabet: str | None = None
    text: str = ""


class Opened:
    """A model that was picked, opened once for all who ask."""

    def __init__(self, pick: Pick, model: Model) -> None:
        self.pick, self.model = pick, model

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the page needs to know of it."""
        model = self.model
        return {
            "id": self.pick.id,
            "name": self.pick.name,
            "vocab": model.vocab_size,
            "names": list(model.names),
            "order": max(model.order, 0),
            "text": model.text,
            "longest": model.max_length,
            "exact": Can.EXACT in model.can,
            "gradients": Can.ONE_HOTS in model.can,
            "latents": self.latents,
            "atoms": self.atoms,
        }

    @cached_property
    def bank(self) -> LatentBank:
        """Its latents, where they are kernels and at hand; refused elsewhere."""
        return bank_at_hand(self.model, DRAWN)

    @property
    def latents(self) -> dict[str, Any]:
        try:
            return picture_of(self.bank, SHOWN)
        except InputError as error:
            return {"why": str(error)}

    @property
    def atoms(self) -> list[str] | None:
        """Names of all latents, where they are few and known."""
        prior: object = self.model.prior
        if not isinstance(prior, FinitePrior):
            return None
        atoms = prior.as_atoms()
        n = len(atoms.log_weights)
        return [*(atoms.names or map(str, range(1, n + 1)))] if n <= MOST_ATOMS else None


class Menu:
    """All that can be picked. Models are opened when they are first asked for."""

    def __init__(
        self,
        named: Sequence[str] = (),
        *,
        alphabet: str | None = None,
        text: str = "",
        device: str = "cpu",
    ) -> None:
        self.device = device
        picks = [Pick(name, name, "trained") for name in shipped_models()]
        picks += [Pick(name, name, "exact") for name in EXACT]
        for at, name in enumerate(named, 1):
            python = ".py:" in name or name.endswith(".py")
            require(not python, f"model '{shown(name)}': the explorer runs no Python file")
            speaks = (
                re.match(r"(hf|smollm2)\b", name) is not None
            )  # of others alphabets name tokens
            own = (alphabet, text if speaks else "")
            picks.append(Pick(f"named-{at}", name, "named", *own))
        self.picks = {pick.id: pick for pick in picks}
        self._opened: dict[str, Opened] = {}
        self._lock = threading.Lock()

    def open(self, id: str) -> Opened:
        """The model of an id."""
        require(id in self.picks, f"model '{shown(id)}': not on the menu")
        with self._lock:
            if id not in self._opened:
                pick = self.picks[id]
                model = open_model(
                    pick.name, self.device, alphabet=pick.alphabet, text=pick.text or ""
                )
                self._opened[id] = Opened(pick, model)
            return self._opened[id]

    def open_named(self) -> None:
        """Open what was named on starting, so that what cannot be is refused there and then."""
        for pick in self.picks.values():
            if pick.kind == "named":
                self.open(pick.id)

    def to_json(self) -> dict[str, Any]:
        models = [{"id": p.id, "name": p.name, "kind": p.kind} for p in self.picks.values()]
        return {"models": models, "methods": METHODS.names()}
