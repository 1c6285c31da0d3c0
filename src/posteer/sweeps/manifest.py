"""The sweep.json of a store: its sweep, the size of its batches, its format and versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posteer import __version__
from posteer.core.errors import InputError, require
from posteer.core.sealing import read_sealed
from posteer.sweeps.configuration import MOST_RUNS, SweepConfig, config_from

FORMAT = "posteer-runs-1"


class DamagedSweepError(InputError):
    """A sweep.json that is not what was written."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a store says of itself; one of another format is refused."""
    path = folder / "sweep.json"
    require(path.exists(), f"{folder}: no sweep was run here (there is no sweep.json)")
    try:
        facts = read_sealed(path)
    except InputError as error:
        raise DamagedSweepError(f"{error}") from error
    require(
        facts.get("format") == FORMAT,
        f"{folder}: a store of format {facts.get('format')!r}, and this posteer "
        f"({__version__}) reads {FORMAT!r}: use the version that wrote it",
    )
    batch, versions = facts.get("batch"), facts.get("versions", [])
    texts = [facts.get("version"), *(versions if isinstance(versions, list) else [None])]
    good = type(batch) is int and 1 <= batch <= MOST_RUNS
    good = good and all(isinstance(text, str) for text in texts)
    if not good or not isinstance(facts.get("configuration"), dict):
        raise DamagedSweepError(f"{path} is damaged: it describes no sweep")
    try:
        config_from(facts["configuration"], str(path))
    except InputError as error:
        raise DamagedSweepError(f"{path} is damaged: {error}") from error
    return facts


def description(
    config: SweepConfig, batch: int, version: str, versions: list[str] | None
) -> dict[str, Any]:
    """What sweep.json says; a store that an earlier version began does not say which `versions`."""
    facts = {"format": FORMAT, "version": version, "batch": batch}
    known = {} if versions is None else {"versions": versions}
    return {**facts, **known, "configuration": config.to_json()}
