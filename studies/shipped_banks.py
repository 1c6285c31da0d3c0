"""Draws the banks that ship with the trained models.

python studies/shipped_banks.py FOLDER [--device cuda] [--models urn]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from running import Options, run

from posteer.banks import DrawPlan, draw_bank
from posteer.banks.sampling import asked_family
from posteer.banks.shipped import SEEDS
from posteer.core.device import pick_device
from posteer.models import Metered, load, shipped_models
from posteer.models.transformer.model import TransformerModel

FEWER = 2000
"""Rollouts of a model that cannot write as many tokens as the paper's have."""
FAMILIES = {"mess3-mixture": "atoms", "chains-16": "atoms", "ginc": "atoms"}
"""What latents are read off rollouts as, where a model's own kind is not what explains them best
(`posteer sample --check`)."""


def plan_for(name: str, model: TransformerModel, seed: int) -> DrawPlan:
    """The paper's sizes; where a model cannot write so many tokens, as many as it reads."""
    plan = DrawPlan(seed=seed, family=asked_family(model, FAMILIES.get(name)))
    if model.max_length is None or model.max_length + 1 >= plan.rollout_length:
        return plan  # the last token of a text is written and not read
    return replace(plan, n_samples=FEWER, rollout_length=model.max_length)


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
            bank = draw_bank(Metered(model), plan_for(name, model, seed), path)
            print(f"{path}: {len(bank):,} latents in {bank.origin.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    run(main)
