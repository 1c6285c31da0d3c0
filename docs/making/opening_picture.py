"""The picture that the README opens with: latents, what a prompt does to them, what that is worth.

    python docs/making/opening_picture.py docs/figures/opening.svg

The latents are the bank that ships with the urn; weights are their likelihoods of the prompt that
`auto` found; bars are means over the committed runs.
"""

import sys
from pathlib import Path
from typing import Any

import torch

import posteer
from posteer.banks.shipped import shipped_bank
from posteer.families.markov.kernels import log_likelihood
from posteer.tokens.contexts import count_transitions
from posteer.views.figures.canvas import canvas, save

RECORDS = Path(__file__).parent.parent / "records"
SHOWN = 1500
"""Latents that are drawn as dots."""
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"


def dyck_runs(file: str) -> Any:
    """The runs of a record on the task of the picture."""
    runs = posteer.load_results(RECORDS / file)
    return runs[(runs.model == "urn") & (runs.utility == "dyck") & (runs.length == 50)]


def latents(axes: Any, kernels: torch.Tensor, weights: torch.Tensor | None, title: str) -> None:
    """A dot for each latent: how often 1 follows 0, and how often it follows 1."""
    colours = BLUE if weights is None else ORANGE
    if weights is not None:
        axes.scatter(
            kernels[:, 0, 1], kernels[:, 1, 1], s=3, color="#cccccc", linewidths=0, rasterized=True
        )
    sizes = 4.0 if weights is None else 4.0 + 1500.0 * weights
    shown = slice(None) if weights is None else weights > 1e-3 * weights.max()
    sizes = sizes if weights is None else sizes[shown]
    axes.scatter(
        kernels[shown, 0, 1], kernels[shown, 1, 1], s=sizes, color=colours, alpha=0.5, linewidths=0,
        rasterized=True,
    )  # fmt: skip
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", title=title)
    axes.set(
        xlabel="chance of ) after (", ylabel="chance of ) after )", xticks=[0, 1], yticks=[0, 1]
    )


def main(out: Path) -> None:
    """Draw it."""
    bank = shipped_bank(posteer.open_model("urn").fingerprint)
    assert bank is not None
    kernels = bank.kernels[:SHOWN]
    best = dyck_runs("auto.parquet").iloc[0]
    prompt = torch.tensor([int(token) for token in best.prompt])
    counts = count_transitions(bank.space, prompt[None]).to(kernels.dtype)
    weights = log_likelihood(counts, kernels)[0].softmax(0)
    published = dyck_runs("paper.parquet").groupby("method").expected_utility.mean()
    bars = {
        "gradient search\n(GCG)": float(published["gcg"]),
        "posteer": float(best.expected_utility),
    }
    pyplot = canvas()
    pyplot.rcParams.update({"font.size": 10, "axes.titlesize": 11})
    figure, (before, middle, after, worth) = pyplot.subplots(
        1, 4, figsize=(11, 3.3), width_ratios=[3, 1.6, 3, 2.4]
    )
    latents(before, kernels, None, "1  what might be writing,\nas the model sees it")
    latents(after, kernels, weights, "3  after reading it:\nwhat the model believes")
    text = "".join("()"[token] for token in prompt.tolist())
    rows = "\n".join(text[at : at + 10] for at in range(0, len(text), 10))
    middle.text(0.5, 0.5, rows, ha="center", va="center", family="monospace", fontsize=13)
    middle.set_title("2  the prompt\nposteer finds")
    middle.axis("off")
    worth.bar(list(bars), list(bars.values()), color=[GREY, ORANGE], width=0.6)
    for at, value in enumerate(bars.values()):
        worth.text(at, value + 0.02, f"{value:.0%}", ha="center")
    worth.set(ylim=(0, 1.1), yticks=[], title="4  continuations that are\nbalanced brackets")
    for side in ("top", "right", "left"):
        worth.spines[side].set_visible(False)
    save(figure, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
