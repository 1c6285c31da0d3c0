"""The paper's validation of predictive Monte Carlo: three densities for each of its models.

    python studies/validation.py --out docs/figures/pmc.svg
    python studies/validation.py --schematic docs/figures/pmc-schematic.svg

Filled: the prior. Dotted: rollouts of the exact predictive, so the error of counting alone. Dashed:
rollouts of the trained transformer, the shipped banks. Of the exact predictive 5,000 rollouts of
2,000 tokens. Prints each row's Kolmogorov-Smirnov and Wasserstein distance to the prior. The
schematic is how it works, on four real rollouts of the trained urn: tokens, counts of transitions,
a latent each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from running import Options, run
from tables import heading

from posteer.banks import DrawPlan, LatentBank, draw_bank
from posteer.banks.checks.statistics import two_sample_ks, wasserstein
from posteer.banks.shipped import shipped_bank
from posteer.core.randomness import numpy_stream
from posteer.families.markov.family import kernels_of, markov_space
from posteer.families.registry import open_process
from posteer.models import Metered, load, open_model
from posteer.views.figures.canvas import canvas, check_path, save

MODELS = ("beta-bernoulli", "urn")
PRIOR_DRAWS = 1_000_000
EDGES = np.linspace(0, 1, 41)


def banks_of(name: str, plan: DrawPlan) -> dict[str, LatentBank]:
    """Rollouts of the exact predictive and of the trained model."""
    trained = shipped_bank(load(name).fingerprint)
    assert trained is not None, f"no bank is shipped for {name}"
    exact = draw_bank(Metered(open_model(f"exact:{name}")), plan)
    return {"exact predictive": exact, "trained transformer": trained}


def draw(out: Path, plan: DrawPlan | None = None) -> list[str]:
    """Both panels into one figure; the distances as rows of a table."""
    pyplot = canvas()
    figure, panels = pyplot.subplots(1, 3, figsize=(13, 3.8))
    shown = iter(panels)
    lines = heading("| model | row | rollouts of | KS to the prior | W1 |")
    for name in MODELS:
        banks = banks_of(name, plan or DrawPlan())
        law = open_process(name)
        space = markov_space(law.family, name)
        prior = kernels_of(law.sample(PRIOR_DRAWS, numpy_stream(0, "validation")))[..., 1]
        for context in range(space.n_contexts):
            own = {source: bank.kernels[:, context, 1] for source, bank in banks.items()}
            title = f"P(1 | {context})" if space.order else "P(1)"
            _panel(next(shown), f"{name}: {title}", prior[:, context].numpy(), own)
            for source, values in own.items():
                sample = prior[: 100 * len(values), context]
                ks, distance = two_sample_ks(values, sample)[0], wasserstein(values, sample)
                lines.append(f"| {name} | {context} | {source} | {ks:.4f} | {distance:.4f} |")
    save(figure, out)
    return lines


def _panel(panel: Any, title: str, prior: np.ndarray, own: dict[str, Any]) -> None:
    panel.hist(prior, EDGES, density=True, color="tab:green", alpha=0.3, label="prior")
    styles = {"exact predictive": ("tab:red", ":"), "trained transformer": ("tab:blue", "--")}
    middles = (EDGES[1:] + EDGES[:-1]) / 2
    for source, values in own.items():
        colour, line = styles[source]
        heights, _ = np.histogram(values.numpy(), EDGES, density=True)
        panel.plot(middles, heights, color=colour, linestyle=line, label=f"PMC, {source}")
    panel.set(title=title, xlabel="probability", ylim=(0, None))
    panel.legend(fontsize=8)


def schematic(out: Path, rollouts: int = 4, length: int = 60) -> None:
    """Rollouts as strips of tokens, their counts, and where their latents lie under the prior."""
    pyplot = canvas()
    bank = draw_bank(
        Metered(load("urn", "cpu")),
        DrawPlan(n_samples=rollouts, rollout_length=length, keep_tokens=True),
    )
    assert bank.sequences is not None and bank.counts is not None
    figure, (strips, square) = pyplot.subplots(1, 2, figsize=(11, 3.4), width_ratios=(2.6, 1))
    colours = [pyplot.get_cmap("tab10")(number) for number in range(rollouts)]
    strips.imshow(bank.sequences.numpy(), cmap="Greys", vmin=-0.4, vmax=1.6, aspect="auto")
    shown = bank.counts.reshape(rollouts, 2, 2).tolist()
    for row, (zeros, ones) in enumerate(shown):
        said = f"0: {zeros[0]} {zeros[1]}   1: {ones[0]} {ones[1]}"
        strips.text(length + 1, row, said, va="center", color=colours[row], family="monospace")
    strips.set(
        title="rollouts of the model, nothing given; counts of what follows 0 and 1",
        xlabel="token (light 0, dark 1)",
        yticks=range(rollouts),
        yticklabels=[f"rollout {number + 1}" for number in range(rollouts)],
        xticks=range(0, length + 1, 10),
        xlim=(-0.5, 1.45 * length),
    )
    strips.spines[:].set_visible(False)
    strips.hlines([row + 0.5 for row in range(rollouts)], -0.5, length, color="white", linewidth=6)
    latents = bank.kernels[:, :, 1]
    known = kernels_of(open_process("urn").sample(400, numpy_stream(0, "schematic")))[..., 1]
    square.scatter(known[:, 0], known[:, 1], s=5, color="tab:green", alpha=0.4)
    square.scatter(latents[:, 0], latents[:, 1], s=70, color=colours, edgecolor="black", zorder=3)
    square.set(
        title="a latent each, over the prior's",
        xlabel="P(1 | 0)",
        ylabel="P(1 | 1)",
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
    )
    save(figure, out)


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--out", type=Path)
    asked.add_argument("--schematic", type=Path)
    given = parser.parse_args(arguments)
    check_path(given.out or given.schematic)
    if given.schematic is not None:
        schematic(given.schematic)
    else:
        print("\n".join(draw(given.out)))


if __name__ == "__main__":
    run(main)
