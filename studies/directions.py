"""Forward and reverse cross-entropy want different prompts: a small figure.

    python studies/directions.py --out docs/figures/directions.svg

On the idealised Beta-Bernoulli model a prompt counts only by its ones. For three coins as targets,
both objectives over all counts, each less its own maximum.
"""

from __future__ import annotations

from pathlib import Path

import torch
from running import Options, run

from posteer.evaluation import expected_utility
from posteer.goals.utilities import open_goal
from posteer.models import open_model
from posteer.views.figures.canvas import canvas, check_path, save

LENGTH, HORIZON = 20, 4
TARGETS = ("tau-0.55", "tau-0.7", "tau-0.9")


def curves(target: str) -> dict[str, list[float]]:
    """Both objectives by number of ones in the prompt."""
    model = open_model("exact:beta-bernoulli")
    ones = torch.arange(LENGTH + 1)
    prompts = (torch.arange(LENGTH) < ones[:, None]).long()
    return {
        kind: expected_utility(
            model, open_goal(f"{kind}({target})", model), prompts, HORIZON
        ).expected_utility.tolist()
        for kind in ("reverse-xent", "forward-xent")
    }


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args(arguments).out
    check_path(out)
    pyplot = canvas()
    figure, panels = pyplot.subplots(1, len(TARGETS), figsize=(12, 3.4), sharey=True)
    for panel, target in zip(panels, TARGETS, strict=True):
        for kind, values in curves(target).items():
            top = max(values)
            (line,) = panel.plot([value - top for value in values], label=kind)
            panel.plot(values.index(top), 0, "o", color=line.get_color())
            print(f"{target} {kind}: best with {values.index(top)} ones of {LENGTH}")
        panel.set(title=target, xlabel=f"ones among {LENGTH} prompt tokens", ylim=(-4, 0.2))
    panels[0].set_ylabel("nats below the best prompt")
    panels[0].legend()
    save(figure, out)


if __name__ == "__main__":
    run(main)
