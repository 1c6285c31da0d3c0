"""Draws the banks that ship with the trained models.

python studies/shipped_banks.py FOLDER [--device cuda] [--models urn]
"""

from __future__ import annotations

from pathlib import Path

from running import Options, run

from posteer.banks import DrawPlan, draw_bank
from posteer.banks.shipped import SEEDS
from posteer.core.device import pick_device
from posteer.models import Metered, load, shipped_models


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=list(shipped_models()))
    given = parser.parse_args(arguments)
    models = {name: load(name, pick_device(given.device)) for name in given.models}
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        for kind, seed in SEEDS.items():
            path = given.folder / f"{name}.{kind}.safetensors"
            bank = draw_bank(Metered(model), DrawPlan(seed=seed), path)
            print(f"{path}: {len(bank):,} latents in {bank.origin.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    run(main)
