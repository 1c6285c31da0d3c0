"""Where the linear and the geometric tilt pull the posterior: a figure for docs/TILTS.md.

    python studies/tilts.py --out docs/figures/tilts.svg

Order 0: the law of the latent under a coin as prompt kernel, and its mean against the coin's bias.
Urn: the mean flip probability of the latent under a kernel that flips with probability a, and what
both tilts make of Dyck along those kernels, beside hard prompts with as many flips.
"""

from __future__ import annotations

from pathlib import Path

import torch
from running import Options, run
from tilts_figure import Curves, draw_tilts
from torch import Tensor

from posteer.banks import LatentBank, draw_analytic
from posteer.core.shapes import Float
from posteer.families.markov.geometric import LogLatents
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.prompt_classes import prompt_classes
from posteer.families.markov.tilt import PromptKernel, Tilt, latents_last, log_tilt
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.estimator import ExactMeans, TiltedRuns, surrogate_of
from posteer.methods.scorers.protocol import score_classes
from posteer.tokens.contexts import ContextSpace
from posteer.views.figures.canvas import check_path

LENGTHS = (6, 50, 500)
COIN, LENGTH, HORIZON, SAMPLES = 0.7, 50, 4, 20_000
TILTS: tuple[Tilt, ...] = ("linear", "geometric")


def coins(biases: Float[Tensor, "B"]) -> PromptKernel:
    """Order-0 kernels that emit 1 with these probabilities."""
    table = torch.stack([1 - biases, biases], -1)[:, None]
    return PromptKernel(table, torch.ones(len(biases), 1, dtype=torch.float64))


def flippers(rates: Float[Tensor, "B"]) -> PromptKernel:
    """Urn kernels that start at 0 and leave either symbol with these probabilities."""
    stay, leave = 1 - rates, rates
    table = torch.stack([torch.stack([stay, leave], -1), torch.stack([leave, stay], -1)], 1)
    return PromptKernel(
        table, torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(len(rates), 1)
    )


def tilted_weights(
    space: ContextSpace,
    prompts: PromptKernel,
    kernels: Float[Tensor, "L C V"],
    steps: int,
    tilt: Tilt,
) -> Float[Tensor, "B L"]:
    """The tilted posterior over latents, for each kernel."""
    latents = latents_last(kernels).expand(len(prompts.initial), -1, -1, -1)
    if tilt == "linear":
        return log_tilt(space, prompts, latents, steps).softmax(-1)
    return LogLatents.of(latents, None).log_tilt(space, prompts, steps).softmax(-1)


def coin_densities() -> Curves:
    """Density of the latent's bias under one coin, prior Beta(1/2, 1/2); exact on a grid."""
    edges = torch.linspace(0, 1, 1001, dtype=torch.float64)
    grid = (edges[1:] + edges[:-1]) / 2
    # the prior's mass of each cell, from its arcsine distribution function
    prior = (2 / torch.pi * edges.sqrt().asin()).diff()
    kernels = torch.stack([1 - grid, grid], -1)[:, None]
    curves: Curves = {}
    for tilt in TILTS:
        weights = tilted_weights(
            ContextSpace(2, 0),
            coins(torch.tensor([COIN], dtype=torch.float64)),
            kernels,
            LENGTH,
            tilt,
        )
        law = weights[0] * prior
        curves[tilt] = (grid.tolist(), (law / law.sum() * len(grid)).tolist())
    ones = round(COIN * LENGTH)
    law = grid**ones * (1 - grid) ** (LENGTH - ones) * prior
    curves[f"hard prompt, {ones} ones"] = (grid.tolist(), (law / law.sum() * len(grid)).tolist())
    return curves


def coin_means() -> Curves:
    """Mean bias of the latent against the coin's."""
    kernels = draw_analytic(open_process("beta-bernoulli"), SAMPLES, 0).kernels
    rates = torch.linspace(0.005, 0.995, 100, dtype=torch.float64)
    return {
        f"{tilt}, m={length}": (
            rates.tolist(),
            (
                tilted_weights(ContextSpace(2, 0), coins(rates), kernels, length, tilt)
                @ kernels[:, 0, 1]
            ).tolist(),
        )
        for tilt in TILTS
        for length in LENGTHS
    }


def urn_curves() -> tuple[Curves, Curves]:
    """Mean flip probability of the latent, and the surrogate of Dyck, against the kernel's."""
    bank = draw_analytic(open_process("urn"), SAMPLES, 0)
    space, kernels = bank.space, bank.kernels
    flips = (kernels[:, 0, 1] + kernels[:, 1, 0]) / 2
    rates = torch.linspace(0.005, 0.995, 100, dtype=torch.float64)
    means = {
        f"{tilt}, m={length}": (
            rates.tolist(),
            (tilted_weights(space, flippers(rates), kernels, length - 1, tilt) @ flips).tolist(),
        )
        for tilt in TILTS
        for length in LENGTHS
    }
    utility = utility_of_kernels(open_utility("dyck", space), space, kernels, HORIZON)
    source = ExactMeans(utility.T[None])
    fine = torch.cat([rates, torch.linspace(0.996, 1.0, 5, dtype=torch.float64)])
    values: Curves = {}
    for tilt in TILTS:
        runs = TiltedRuns(space, latents_last(kernels)[None], LENGTH - 1, source, tilt)
        surrogates = [float(surrogate_of(runs, flippers(rate[None])).value[0]) for rate in fine]
        values[tilt] = (fine.tolist(), surrogates)
    values["best hard prompt with as many flips"] = _hard_prompts(bank, utility)
    return means, values


def _hard_prompts(
    bank: LatentBank, utility: Float[Tensor, "L C"]
) -> tuple[list[float], list[float]]:
    classes = prompt_classes(bank.space, LENGTH, bank.space.order)
    assert classes is not None
    scores = score_classes(
        bank.lifted(bank.space.order), utility, classes.counts, classes.last
    ).value
    flips = classes.counts[:, 0, 1] + classes.counts[:, 1, 0]
    best = [float(scores[flips == n].max()) for n in range(LENGTH)]
    return [n / (LENGTH - 1) for n in range(LENGTH)], best


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args(arguments).out
    check_path(out)
    urn_means, urn_values = urn_curves()
    draw_tilts(coin_densities(), coin_means(), urn_means, urn_values, COIN, LENGTH, out)
    for name, curves in (("coin", coin_means()), ("urn", urn_means)):
        for label, (x, y) in curves.items():
            at = min(range(len(x)), key=lambda i: abs(x[i] - COIN))
            print(f"{name}, {label}: kernel {x[at]:.2f}, posterior mean {y[at]:.3f}")


if __name__ == "__main__":
    run(main)
