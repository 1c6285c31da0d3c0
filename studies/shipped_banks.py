"""Draws the banks that ship with the trained models.

python studies/shipped_banks.py FOLDER [--device cuda] [--models urn]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from posteer.banks import DrawPlan, draw_bank
from posteer.banks.shipped import SEEDS
from posteer.models import Metered, load, shipped_models


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
