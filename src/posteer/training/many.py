"""Many trainings from one TOML file: tables of settings, and seeds for all of them.

seeds = [0, 1, 2]

[[training]]
name = "urn"            # folders urn-0, urn-1, urn-2
preset = "urn"          # or process = "markov(vocab=3,order=1)"
steps = 16000           # whatever `posteer train` takes
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.files import read_plain
from posteer.core.reading import read_toml
from posteer.core.spec import meant, shown
from posteer.models.transformer.network import Architecture
from posteer.training.plan import TrainingPlan, make_plan

MOST_TRAININGS = 10_000
LARGEST_FILE = 2**20
SHAPE = ("layers", "width", "heads", "feedforward", "positions")
SCHEDULE = ("batch", "length", "steps", "warmup", "peak_rate", "final_rate", "accumulate", "seed")
KINDS = {
    **{entry.name: entry.type for entry in fields(Architecture) if entry.name in SHAPE},
    **{entry.name: entry.type for entry in fields(TrainingPlan) if entry.name in SCHEDULE},
    **dict.fromkeys(("name", "preset", "process"), "str"),
}
NUMBERS: dict[Any, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def read_trainings(path: Path) -> dict[str, TrainingPlan]:
    """The plans of a file by the names of their folders."""
    require(path.is_file(), f"'{path}': there is no such file")
    large = path.stat().st_size > LARGEST_FILE
    require(not large, f"{path}: expected at most {LARGEST_FILE:,} bytes")
    given = read_toml(read_plain(path), str(path))
    seeds, tables = given.pop("seeds", None), given.pop("training", None)
    require(not given, f"{path}: unknown key '{shown(next(iter(given), ''))}'")
    good = isinstance(tables, list) and all(isinstance(one, dict) for one in tables) and tables
    require(bool(good), f"{path}: expected tables, as in [[training]]")
    whole = seeds is None or (isinstance(seeds, list) and all(type(s) is int for s in seeds))
    require(whole and seeds != [], f"{path}: seeds {shown(seeds)}: expected whole numbers")
    found: dict[str, TrainingPlan] = {}
    for table in tables or []:
        for seed in [None] if seeds is None else seeds:
            name, plan = _training(table, seed, str(path))
            require(name not in found, f"{path}: two trainings are called {name}")
            found[name] = plan
    require(len(found) <= MOST_TRAININGS, f"{path}: expected at most {MOST_TRAININGS:,} trainings")
    return found


def _training(table: dict[str, Any], seed: int | None, where: str) -> tuple[str, TrainingPlan]:
    for key, value in table.items():
        require(
            key in KINDS,
            f"{where}: unknown key '{shown(key)}': {meant(key, KINDS)}expected one of "
            f"{', '.join(KINDS)}",
        )
        fits = type(value) in NUMBERS[KINDS[key]]
        require(fits, f"{where}: {key} {shown(repr(value))}: expected {KINDS[key]}")
    name = table.get("name", "")
    require(_NAME.fullmatch(name) is not None, f"{where}: name '{shown(name)}': expected letters")
    require(seed is None or "seed" not in table, f"{where}: {name} has a seed, and there are seeds")
    settings = {key: table.get(key) for key in SCHEDULE}
    if seed is not None:
        name, settings["seed"] = f"{name}-{seed}", seed
    rates = {key: settings[key] for key in ("peak_rate", "final_rate")}
    settings |= {key: float(rate) for key, rate in rates.items() if rate is not None}
    shape = {key: table.get(key) for key in SHAPE}
    try:
        return name, make_plan(table.get("preset"), table.get("process"), shape, settings)
    except InputError as error:
        raise InputError(f"{where}: {name}: {error}") from error
