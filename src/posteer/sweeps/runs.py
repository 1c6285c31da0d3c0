"""One run's configuration, its name, and a sweep expanded to runs and batches."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from posteer.banks import DrawPlan, LatentBank, load_bank
from posteer.banks.probes import behaviour, require_laws
from posteer.banks.shipped import shipped_bank, shipped_path
from posteer.core.errors import InputError, require
from posteer.core.files import sha256
from posteer.families.protocol import Fittable
from posteer.goals.utilities import open_goal
from posteer.methods.latent_source import serves
from posteer.methods.protocol import LatentsFrom, Needs, Request
from posteer.methods.registry import open_method
from posteer.models import Model, open_model
from posteer.sweeps.configuration import SweepConfig


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All that decides a run's outcome. Its hash is its name.

    Fingerprints stand for what names cannot tell: weights, what a user's model predicts, a user's
    function, a bank.
    """

    model: str
    model_fingerprint: str
    utility: str
    utility_fingerprint: str | None
    length: int
    horizon: int
    method: str
    seed: int
    bank: str | None
    max_model_tokens: int | None

    @cached_property
    def name(self) -> str:
        return name_of({entry: getattr(self, entry) for entry in _ENTRIES})

    def request(
        self, model: Model, bank: LatentBank | None, device: str, rank: bool | None = True
    ) -> Request:
        """What is asked, of a model that is open."""
        return Request(
            model=model,
            utility=self.utility,
            length=self.length,
            horizon=self.horizon,
            method=self.method,
            seed=self.seed,
            bank=bank,
            max_model_tokens=self.max_model_tokens,
            rank=rank,
            device=device,
        )

    @property
    def group(self) -> tuple[object, ...]:
        """Runs that agree in this can be one batch."""
        shared = (self.model, self.model_fingerprint, self.method, self.length, self.horizon)
        return (*shared, self.bank, self.max_model_tokens)


_ENTRIES = tuple(entry.name for entry in fields(RunConfig))
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def name_of(configuration: dict[str, Any]) -> str:
    """The SHA-256 of a configuration in canonical form."""
    return hashlib.sha256(_CANONICAL.encode(configuration).encode()).hexdigest()


@dataclass(frozen=True)
class Batch:
    """Runs to be solved as one tensor programme. The same sweep always makes the same batches."""

    runs: tuple[RunConfig, ...]

    @cached_property
    def key(self) -> str:
        return hashlib.sha256("".join(run.name for run in self.runs).encode()).hexdigest()


@dataclass(frozen=True)
class Expansion:
    """A sweep's runs in order, and the bank files that some of them name by hash."""

    runs: list[RunConfig]
    bank_files: dict[str, Path]


def expand(config: SweepConfig) -> Expansion:
    """Every run of a sweep. Unknown names and files that are not there are refused here."""
    runs: dict[RunConfig, None] = {}  # each once, in order; a name is dear
    files: dict[str, Path] = {}
    for grid in config.grids:
        methods = {text: open_method(text) for text in grid.methods}
        for name in grid.models:
            model = open_model(name, "cpu")
            known_by = _known_by(model)
            utilities = {text: _source(text, model) for text in grid.utilities}
            own = Path(grid.banks[name]) if name in grid.banks else None
            require(own is None or own.is_file(), f"'{own}': there is no such bank")
            for method, solver in methods.items():
                path = _bank_of(model, solver.needs, own)
                bank = None if path is None else sha256(path)
                if path is not None and bank is not None:
                    files[bank] = path
                for length in grid.lengths:
                    for horizon in grid.horizons:
                        for utility, source in utilities.items():
                            for seed in grid.seeds:
                                run = RunConfig(
                                    model=name,
                                    model_fingerprint=known_by,
                                    utility=utility,
                                    utility_fingerprint=source,
                                    length=length,
                                    horizon=horizon,
                                    method=method,
                                    seed=seed,
                                    bank=bank,
                                    max_model_tokens=grid.max_model_tokens,
                                )
                                runs[run] = None
    return Expansion(list(runs), files)


def one_run(
    name: str, model: Model, *, utility: str, length: int, horizon: int, method: str, seed: int
) -> tuple[RunConfig, dict[str, Path]]:
    """A run by itself, of a model that is open, and the bank file that it names by hash, if any."""
    needs, source = open_method(method).needs, _source(utility, model)
    path = _bank_of(model, needs, None)
    bank = None if path is None else sha256(path)
    run = RunConfig(
        model=name,
        model_fingerprint=_known_by(model),
        utility=utility,
        utility_fingerprint=source,
        length=length,
        horizon=horizon,
        method=method,
        seed=seed,
        bank=bank,
        max_model_tokens=None,
    )
    return run, {} if path is None or bank is None else {bank: path}


def _known_by(model: Model) -> str:
    """What it does; of one that fails when it is asked, what it is: its own runs will say so."""
    try:
        return behaviour(model)
    except InputError:
        return model.fingerprint


def _source(utility: str, model: Model) -> str | None:
    """What a user's function is made of: an edited file makes other runs."""
    open_goal(utility, model)
    return source_of(utility)


def source_of(utility: str) -> str | None:
    """The hash of the file a utility is in, if it is in one."""
    path = utility.rpartition(":")[0]
    return sha256(Path(path)) if path.endswith(".py") else None


def latents_to_draw(model: Model, needs: Needs) -> DrawPlan | None:
    """How a method would roll the model out, or None where it needs no rollouts.

    One that takes a bank and says not where its latents come from chooses: rollouts where the model
    ships with some, or no prior is known.
    """
    family: object = model.family
    if not needs.bank or not isinstance(family, Fittable):
        return None
    rolls = needs.latents is LatentsFrom.ROLLOUTS or model.prior is None
    return needs.draw if rolls or shipped_path(model.fingerprint) is not None else None


def _bank_of(model: Model, needs: Needs, own: Path | None) -> Path | None:
    """The file of latents a method will use, if it uses one that is there already."""
    plan = latents_to_draw(model, needs)
    if plan is None:
        return None
    if own is not None:
        bank = load_bank(own)
        origin = bank.origin
        require(
            bank.names(model) and not origin.context,
            f"{own}: drawn from {origin.model}"
            + (" after observed tokens" if origin.context else "")
            + f", not from {model.name}: expected a bank of its prior",
        )
        require_laws(bank.probe, model, (), f"draw {own} again")
        return own
    shipped = shipped_bank(model.fingerprint)
    return shipped_path(model.fingerprint) if shipped and serves(shipped, plan) else None


def batches(runs: Iterable[RunConfig], size: int) -> list[Batch]:
    """Groups cut to `size` runs, those of one seed together: searches that differ in their goals
    alone start from the same prompt and try many of the same. Ordered by hash, so that the first
    done are typical of the rest and an estimate of the time left is fair from the start."""
    groups: dict[tuple[object, ...], list[RunConfig]] = defaultdict(list)
    for run in runs:
        groups[run.group].append(run)
    cut = []
    for members in groups.values():
        members.sort(key=lambda run: run.seed)
        cut += [Batch(tuple(members[at : at + size])) for at in range(0, len(members), size)]
    return sorted(cut, key=lambda batch: batch.key)
