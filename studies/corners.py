"""What piles an implied prior up at the corners: the urn during training, and in low precision.

    python studies/corners.py --out RUN [--device cuda] [--steps 250,500,1000,2000,4000]

The paper's final ESS/L of its rollout banks differs from that of exact latents (prompts near all
zeros: 0.49 against 0.34). ESS/L of a fixed prompt is a moment of the implied prior, so it can be
read off a bank with no ascent. This prints it for an urn transformer at moments of its training,
for the shipped one in float32 and in bfloat16, and for exact Bayes, beside the published figures.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from running import Options, positive, run
from tables import heading

from posteer.banks import DrawPlan, LatentBank, draw_bank
from posteer.core.device import pick_device
from posteer.core.weights import ess_fraction
from posteer.models import Metered, Model, load, open_model
from posteer.models.transformer.model import TransformerModel
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS

PROMPTS = {"zeros": [0] * 6, "ones": [1] * 6, "0101..": [0, 1] * 3}
PUBLISHED = {"zeros": "0.49", "ones": "0.38", "0101..": "0.20"}
"""The largest, the largest and the only ESS/L of ppt-rb for q-0.0, q-1.0 and Dyck at length 6."""


def moments(bank: LatentBank) -> dict[str, float]:
    """ESS/L of each fixed prompt, and how much of each row lies within 0.001 of a corner."""
    prompts = torch.tensor(list(PROMPTS.values()))
    ess = ess_fraction(bank.latents.log_likelihood(prompts)).tolist()
    found = dict(zip(PROMPTS, ess, strict=True))
    for context in range(bank.space.n_contexts):
        at_corner = (bank.kernels[:, context].amax(-1) > 0.999).double().mean()
        found[f"corner of row {context}"] = float(at_corner)
    return found


def report(name: str, model: Model, rollouts: int) -> None:
    bank = draw_bank(Metered(model), DrawPlan(n_samples=rollouts))
    print(
        f"| {name} | " + " | ".join(f"{value:.3f}" for value in moments(bank).values()) + " |",
        flush=True,
    )


def _stops(text: str) -> list[int]:
    return [positive(step) for step in text.split(",")]


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the training run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=_stops, default="250,500,1000,2000,4000")
    parser.add_argument("--rollouts", type=positive, default=2000)
    given = parser.parse_args(arguments)
    stops, device = given.steps, pick_device(given.device)
    columns = "| model | zeros | ones | 0101.. | corner of row 0 | corner of row 1 |"
    print("\n".join(heading(columns)))
    print("| published | " + " | ".join(PUBLISHED.values()) + " | | |")
    report("exact Bayes", open_model("exact:urn"), given.rollouts)
    report("shipped, float32", load("urn", device), given.rollouts)
    coarse = load("urn", device)
    coarse.network.bfloat16()
    report("shipped, bfloat16", coarse, given.rollouts)
    plan = replace(PRESETS["urn"], steps=stops[-1], warmup=min(1000, stops[0]))
    trainer = Trainer(plan, given.out, device=device, compiled=device != "cpu")
    trainer.log_every = trainer.evaluate_every = stops[0]
    for stop in stops:
        trainer.run(should_stop=lambda stop=stop: trainer.step >= stop)  # type: ignore[misc]
        model = TransformerModel(trainer.network, f"step-{stop}", trainer.prior)
        excess = "" if trainer.excess is None else f", excess risk {trainer.excess.overall:.1e}"
        report(f"after {trainer.step:,} steps{excess}", model, given.rollouts)
        trainer.network.train()


if __name__ == "__main__":
    run(main)
