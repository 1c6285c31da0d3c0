"""A sweep as a typed configuration: grids of runs, from a TOML file or a preset.

    name = "mine"
    models = ["urn"]
    utilities = ["dyck", "frequency(0.3)"]
    lengths = [6, 50]
    methods = ["ppt-rb", "gcg"]
    seeds = 10

Several `[[grid]]` tables make a union of grids; keys above them are their defaults.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from posteer.core import InputError, parse_spec, require
from posteer.core.files import read_plain
from posteer.core.limits import MOST_HORIZON, MOST_SEED, MOST_TOKENS
from posteer.core.reading import read_toml
from posteer.core.spec import meant, shown, within

MOST_RUNS = 1_000_000
"""Of a whole sweep, all grids together."""

LARGEST_FILE = 2**22

RANGES = {
    "lengths": (1, MOST_TOKENS),
    "horizons": (1, MOST_HORIZON),
    "seeds": (-MOST_SEED, MOST_SEED),
}
"""What a request takes, and so a grid of them."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every combination of these. `banks` are bank files by model; others are shipped or drawn."""

    models: tuple[str, ...]
    utilities: tuple[str, ...]
    methods: tuple[str, ...]
    lengths: tuple[int, ...] = (6,)
    horizons: tuple[int, ...] = (4,)
    seeds: tuple[int, ...] = tuple(range(10))
    max_model_tokens: int | None = None
    banks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, (least, most) in RANGES.items():
            numbers = getattr(self, key)
            odd = next((n for n in numbers if type(n) is not int), None)
            for number in (odd,) if odd is not None else (min(numbers), max(numbers)):
                within(number, key, least, most)
        if self.max_model_tokens is not None:
            within(self.max_model_tokens, "max_model_tokens", 1, MOST_SEED)

    @property
    def size(self) -> int:
        many = (self.models, self.utilities, self.methods, self.lengths, self.horizons, self.seeds)
        product = 1
        for values in many:
            product *= len(values)
        return product


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """A named union of grids."""

    name: str
    grids: tuple[Grid, ...]

    def __post_init__(self) -> None:
        runs = sum(grid.size for grid in self.grids)
        require(runs <= MOST_RUNS, f"{runs:,} runs: expected at most {MOST_RUNS:,}")

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "grids": [_plain(asdict(grid)) for grid in self.grids]}


def _plain(value: Any) -> Any:
    """As JSON would give it back."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


Place = tuple[str, str, str, int, int, int, int | None]
"""Where a run is in a grid; models and functions that change have several runs at one place."""


def place_of(configuration: Mapping[str, Any]) -> Place:
    """The place of a run's configuration."""
    names = ("model", "utility", "method", "length", "horizon", "seed", "max_model_tokens")
    place: Place = tuple(configuration[name] for name in names)
    return place


def planned(config: SweepConfig) -> Counter[Place]:
    """How many runs a sweep has at each place, more than one where grids differ in their banks.
    Nothing is opened: names are enough."""
    found: set[tuple[Place, str | None]] = set()
    for grid in config.grids:
        axes = (grid.models, grid.utilities, grid.methods, grid.lengths, grid.horizons, grid.seeds)
        for place in product(*axes):
            found.add(((*place, grid.max_model_tokens), grid.banks.get(place[0])))
    return Counter(place for place, _ in found)


def grids_of(configurations: Iterable[Mapping[str, Any]]) -> list[Grid]:
    """Grids that hold these runs, one for all seeds of a place."""
    seeds: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for one in configurations:
        *place, seed, budget = place_of(one)
        seeds[*place, budget].add(seed)
    return [
        Grid(
            models=(model,),
            utilities=(utility,),
            methods=(method,),
            lengths=(length,),
            horizons=(horizon,),
            seeds=tuple(sorted(found)),
            max_model_tokens=budget,
        )
        for (model, utility, method, length, horizon, budget), found in seeds.items()
    ]


def files_named(config: SweepConfig) -> list[str]:
    """Python files that a sweep would run."""
    names = [name for grid in config.grids for name in (*grid.models, *grid.utilities)]
    return sorted({name for name in names if ".py:" in name})


def read_config(path: Path) -> SweepConfig:
    """A configuration from a TOML file; an unknown or mistyped key is refused."""
    require(path.is_file(), f"'{path}': there is no such configuration file")
    large = path.stat().st_size > LARGEST_FILE
    require(not large, f"{path}: expected a configuration of at most {LARGEST_FILE:,} bytes")
    return config_from(read_toml(read_plain(path), str(path)), str(path), path.stem)


def config_from(given: Mapping[str, Any], where: str, name: str = "sweep") -> SweepConfig:
    """A configuration from nested plain values, as TOML or JSON hold them."""
    rest = dict(given)
    name = rest.pop("name", name)
    require(
        isinstance(name, str) and bool(name), f"{where}: name {shown(repr(name))}: expected a text"
    )
    if "grid" not in rest and "grids" not in rest:
        return _named(where, lambda: SweepConfig(name=name, grids=(_grid(rest, where),)))
    grids = rest.pop("grid") if "grid" in rest else rest.pop("grids")
    require(
        isinstance(grids, list)
        and len(grids) > 0
        and all(isinstance(grid, dict) for grid in grids),
        f"{where}: grid: expected tables, as in [[grid]]",
    )
    found = tuple(_grid({**rest, **grid}, where) for grid in grids)
    return _named(where, lambda: SweepConfig(name=name, grids=found))


Made = TypeVar("Made")


def _named(where: str, make: Callable[[], Made]) -> Made:
    """What a grid or a sweep refuses, with the file that says so."""
    try:
        return make()
    except InputError as error:
        told = str(error)
        raise InputError(told if told.startswith(where) else f"{where}: {told}") from error


def _grid(given: dict[str, Any], where: str) -> Grid:
    known = [entry.name for entry in fields(Grid)]
    for key in given:
        require(
            key in known,
            f"{where}: unknown key '{shown(key)}': {meant(key, known)}expected one of name, "
            f"{', '.join(known)}",
        )
    for key in ("models", "utilities", "methods"):
        require(key in given, f"{where}: '{key}' is missing")
    read: dict[str, Any] = {}
    for key, value in given.items():
        if key in ("models", "utilities", "methods"):
            texts = _several(value, str, "texts", key, where)
            read[key] = _several([canonical(t) for t in texts], str, "texts", key, where)
        elif key in ("lengths", "horizons", "seeds"):
            if key == "seeds" and _is(value, int):
                most = f"expected 1 to {MOST_RUNS:,}"
                require(1 <= value <= MOST_RUNS, f"{where}: seeds {value}: {most}")
                value = list(range(value))
            numbers = _several(value, int, "whole numbers", key, where)
            read[key] = tuple(sorted(numbers)) if key == "seeds" else numbers
        elif key == "max_model_tokens":
            good = value is None or _is(value, int)
            require(good, f"{where}: {key} {shown(repr(value))}: expected a whole number above 0")
            read[key] = value
        else:
            good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
            require(good, f"{where}: {key}: expected bank files by model")
            read[key] = dict(value)
    grid = _named(where, lambda: Grid(**read))
    for model in grid.banks:
        require(model in grid.models, f"{where}: a bank for '{model}', which is no model of it")
    return grid


def _several(value: Any, kind: type, what: str, key: str, where: str) -> tuple[Any, ...]:
    values = [value] if _is(value, kind) else value
    good = isinstance(values, list) and len(values) > 0 and all(_is(v, kind) for v in values)
    require(
        good, f"{where}: {key} {shown(repr(value))}: expected {what} in a list that is not empty"
    )
    require(len(set(values)) == len(values), f"{where}: {key}: something is given twice")
    return tuple(values)


def _is(value: Any, kind: type) -> bool:
    """A truth value is no number."""
    return isinstance(value, kind) and not isinstance(value, bool)


def canonical(text: str) -> str:
    """The same name, however it was spaced and its settings ordered.

    >>> canonical("ppt( steps=5, samples=9 )"), canonical("frequency( .30 )"), canonical("./a.py:f")
    ('ppt(samples=9,steps=5)', 'frequency(0.3)', 'a.py:f')
    """
    text = text.strip()
    if ".py:" in text:
        path, _, name = text.rpartition(":")
        return f"{os.path.normpath(path)}:{name}"
    kind, colon, rest = text.partition(":")
    prefix = f"{kind}:" if kind == "exact" and colon else ""
    body = rest.strip() if prefix else text
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*(\(.*\))?", body, re.DOTALL):
        return text  # a folder
    spec = parse_spec(body)
    settings = [f"{key}={_shown_value(spec.keywords[key])}" for key in sorted(spec.keywords)]
    parts = [_shown_value(argument) for argument in spec.arguments] + settings
    return prefix + (f"{spec.name}({','.join(parts)})" if parts else spec.name)


def _shown_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def differences(ours: SweepConfig, other: SweepConfig) -> list[str]:
    """What one sweep has that another has not, axis by axis; empty if they are the same runs."""
    lines = []
    for entry in fields(Grid):
        here, there = _values(ours.grids, entry.name), _values(other.grids, entry.name)
        gone = [value for value in there if value not in here]
        added = [value for value in here if value not in there]
        if gone:
            lines.append(f"{entry.name}: without {_shown(gone)}")
        if added:
            lines.append(f"{entry.name}: with {_shown(added)}")
    if not lines and any(grid not in other.grids for grid in ours.grids):
        lines.append("grids: the same values in other combinations")
    return lines


def _values(grids: Sequence[Grid], name: str) -> list[Any]:
    values: list[Any] = []
    for grid in grids:
        value = getattr(grid, name)
        if isinstance(value, Mapping):
            values += sorted(value.items())
        else:
            values += value if isinstance(value, tuple) else [value]
    return list(dict.fromkeys(values))


def _shown(values: list[Any], most: int = 6) -> str:
    shown = ", ".join("none" if value is None else str(value) for value in values[:most])
    return shown + (f" and {len(values) - most} more" if len(values) > most else "")
