"""Banks inside the package: for each trained model one to tune on and one held out.

    python -m posteer.latents.shipped FOLDER [--device cuda] [--models urn]

draws them again. A bank belongs to a model by its fingerprint, not by its name.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

from posteer.latents.bank import LatentBank, load_bank
from posteer.latents.rollouts import DrawPlan, draw_bank
from posteer.models import Metered, load, shipped_models

FOLDER = Path(__file__).parent / "banks"
SEEDS = {"tuning": 0, "held-out": 1}


def shipped_bank(fingerprint: str, kind: str = "tuning") -> LatentBank | None:
    """The shipped bank of the model with this fingerprint; `kind` is tuning or held-out."""
    path = shipped_path(fingerprint, kind)
    return None if path is None else _load(path)


def shipped_path(fingerprint: str, kind: str = "tuning") -> Path | None:
    """The file of that bank."""
    for path in sorted(FOLDER.glob(f"*.{kind}.safetensors")):
        if _load(path).origin.fingerprint == fingerprint:
            return path
    return None


@cache
def _load(path: Path) -> LatentBank:
    return load_bank(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=list(shipped_models()))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.models:
        model = Metered(load(name, given.device))
        for kind, seed in SEEDS.items():
            path = given.folder / f"{name}.{kind}.safetensors"
            bank = draw_bank(model, DrawPlan(seed=seed), path)
            print(f"{path}: {len(bank):,} latents in {bank.origin.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
