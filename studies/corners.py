"""What piles an implied prior up at the corners: the urn during training, and in low precision.

    python studies/corners.py --out RUN [--device cuda] [--steps 250,500,1000,2000,4000]

The paper's final ESS/L of its rollout banks differs from that of exact latents (prompts near all
zeros: 0.49 against 0.34). ESS/L of a fixed prompt is a moment of the implied prior, so it can be
read off a bank with no ascent. This prints it for an urn transformer at moments of its training,
for the shipped one in float32 and in bfloat16, and for exact Bayes, beside the published figures.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from posteer.banks import DrawPlan, LatentBank, draw_bank
from posteer.core.weights import ess_fraction
from posteer.families.markov.kernels import log_likelihood
from posteer.models import Metered, SequenceModel, TransformerModel, load, open_model
from posteer.tokens.contexts import count_transitions
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS

PROMPTS = {"zeros": [0] * 6, "ones": [1] * 6, "0101..": [0, 1] * 3}
PUBLISHED = {"zeros": "0.49", "ones": "0.38", "0101..": "0.20"}
"""The largest, the largest and the only ESS/L of ppt-rb for q-0.0, q-1.0 and Dyck at length 6."""


def moments(bank: LatentBank) -> dict[str, float]:
    """ESS/L of each fixed prompt, and how much of each row lies within 0.001 of a corner."""
    space, kernels = bank.space, bank.kernels
    found = {
        name: float(
            ess_fraction(log_likelihood(count_transitions(space, torch.tensor([prompt])), kernels))[
                0
            ]
        )
        for name, prompt in PROMPTS.items()
    }
    for context in range(space.n_contexts):
        at_corner = (kernels[:, context].amax(-1) > 0.999).double().mean()
        found[f"corner of row {context}"] = float(at_corner)
    return found


def report(name: str, model: SequenceModel, rollouts: int) -> None:
    bank = draw_bank(Metered(model), DrawPlan(n_samples=rollouts))
    print(
        f"| {name} | " + " | ".join(f"{value:.3f}" for value in moments(bank).values()) + " |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the training run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", default="250,500,1000,2000,4000")
    parser.add_argument("--rollouts", type=int, default=2000)
    given = parser.parse_args()
    stops = [int(step) for step in given.steps.split(",")]
    print("| model | zeros | ones | 0101.. | corner of row 0 | corner of row 1 |")
    print("|---|---|---|---|---|---|")
    print("| published | " + " | ".join(PUBLISHED.values()) + " | | |")
    report("exact Bayes", open_model("exact:urn"), given.rollouts)
    report("shipped, float32", load("urn", given.device), given.rollouts)
    coarse = load("urn", given.device)
    coarse.network.bfloat16()
    report("shipped, bfloat16", coarse, given.rollouts)
    plan = replace(PRESETS["urn"], steps=stops[-1], warmup=min(1000, stops[0]))
    trainer = Trainer(plan, given.out, device=given.device, compiled=given.device != "cpu")
    trainer.log_every = trainer.evaluate_every = stops[0]
    for stop in stops:
        trainer.run(should_stop=lambda stop=stop: trainer.step >= stop)  # type: ignore[misc]
        model = TransformerModel(trainer.network, f"step-{stop}", trainer.process)
        excess = "" if trainer.excess is None else f", excess risk {trainer.excess.overall:.1e}"
        report(f"after {trainer.step:,} steps{excess}", model, given.rollouts)
        trainer.network.train()


if __name__ == "__main__":
    main()
