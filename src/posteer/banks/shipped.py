"""Banks inside the package: for each trained model one to tune on and one held out.

`python studies/shipped_banks.py` draws them again. A bank belongs to a model by its
fingerprint, not by its name.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from safetensors import SafetensorError, safe_open

from posteer.banks.drawn import LatentBank, load_bank

FOLDER = Path(__file__).parent / "shipped_files"
SEEDS = {"tuning": 0, "held-out": 1}


def shipped_bank(fingerprint: str, kind: str = "tuning") -> LatentBank | None:
    """The shipped bank of the model with this fingerprint; `kind` is tuning or held-out."""
    path = shipped_path(fingerprint, kind)
    return None if path is None else _load(path)


def shipped_path(fingerprint: str, kind: str = "tuning") -> Path | None:
    """The file of that bank."""
    for path in sorted(FOLDER.glob(f"*.{kind}.safetensors")):
        if _fingerprint(path) == fingerprint:
            return path
    return None


@cache
def _fingerprint(path: Path) -> str:
    """What a file says it is of, by its head alone: banks of other models are not read."""
    try:
        with safe_open(path, "pt") as held:
            facts = json.loads(held.metadata()["facts"])
        return str(facts["origin"]["fingerprint"])
    except (SafetensorError, KeyError, TypeError, ValueError):
        return _load(path).origin.fingerprint  # which says what is wrong with it


@cache
def _load(path: Path) -> LatentBank:
    return load_bank(path)
