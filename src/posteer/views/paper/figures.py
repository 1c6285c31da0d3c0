"""The data behind the figures of a sweep, and the figures themselves as SVG and PDF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch

from posteer.core.errors import require
from posteer.core.weights import normalise
from posteer.families.markov.kernels import lift
from posteer.families.markov.means import utility_of_kernels
from posteer.methods.ppt.method import PosteriorPrefixTuning
from posteer.methods.protocol import Request, pose
from posteer.paper.agreement import exact_optimum
from posteer.paper.cells import Cells, Key
from posteer.paper.layouts import MODELS
from posteer.paper.paired import family_of
from posteer.paper.published import HORIZON, LENGTHS, METHODS, TARGETS, published, utility_of_target
from posteer.sweeps.results import Histories
from posteer.tokens.contexts import ContextSpace
from posteer.views.figures.sweep import (
    Curve,
    Point,
    Steering,
    draw_ascents,
    draw_cells,
    draw_costs,
    draw_steering,
)

SHOWN = (("urn", "dyck"), ("urn", "sym-0.1"), ("beta-bernoulli", "tau-0.2"))
SUFFIXES = ("svg", "pdf")
GRID = 101


def draw_all(cells: Cells, histories: Histories, folder: Path) -> list[Path]:
    """Every figure that the runs suffice for."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []

    def outs(name: str) -> list[Path]:
        paths = [folder / f"{name}.{suffix}" for suffix in SUFFIXES]
        made.extend(paths)
        return paths

    panels = _points(cells)
    if panels:
        draw_cells(panels, outs("j-by-method"))
    curves = _ascents(cells, histories)
    if curves:
        draw_ascents(curves, outs("ascents"))
    costs = _costs(cells, histories)
    if costs:
        optima = {f"{m} {t}, m={n}": exact_optimum(m, n)[t] for m, t in SHOWN for n in LENGTHS}
        draw_costs(costs, {key: optima[key] for key in costs if key in optima}, outs("costs"))
    if "urn" in cells.models:
        draw_steering(
            [steering("urn", "dyck", m) for m in LENGTHS],
            ("P(1 | 0)", "P(1 | 1)"),
            outs("latent-posterior"),
        )
    return made


def _points(cells: Cells) -> dict[str, dict[str, list[Point]]]:
    panels: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for model in TARGETS:
        for length in LENGTHS:
            best = exact_optimum(model, length) if model in cells.models else {}
            for target in TARGETS[model]:
                for method in METHODS:
                    key = (model, target, length, method)
                    figure = cells.figure(key, "J")
                    if figure is None:
                        continue
                    theirs = published().get((*key, "J"))
                    panels[f"{MODELS[model]}, m={length}"][family_of(target)].append(
                        Point(
                            method,
                            target,
                            figure.value,
                            figure.standard_error or 0.0,
                            None if theirs is None else theirs.value,
                            best.get(target),
                        )
                    )
    return dict(panels)


def _ascents(cells: Cells, histories: Histories) -> dict[str, dict[str, list[tuple[Curve, Curve]]]]:
    panels: dict[str, dict[str, list[tuple[Curve, Curve]]]] = defaultdict(dict)
    for title, key in _shown(cells, ("ppt", "ppt-rb")):
        runs = [histories[name] for name in _runs(cells, key) if "ess" in histories.get(name, {})]
        if runs:
            panels[title][key[3]] = [
                (_thinned(run["surrogate"]), _thinned(run["ess"])) for run in runs
            ]
    return dict(panels)


def _costs(cells: Cells, histories: Histories) -> dict[str, dict[str, list[Curve]]]:
    panels: dict[str, dict[str, list[Curve]]] = defaultdict(dict)
    for title, key in _shown(cells):
        cell = cells.get(key)
        assert cell is not None
        curves: list[Curve] = []
        for row in cell.rows:
            history = histories.get(row["run"], {})
            if "value" in history:
                forward, backward = history["forward_tokens"], history["backward_tokens"]
                tokens = [max(a + b, 1.0) for a, b in zip(forward, backward, strict=True)]
                curves.append((tokens, list(accumulate(history["value"], max))))
            elif row["expected_utility"] is not None:
                curves.append(([max(row["bank_tokens"] / 51, 1.0)], [row["expected_utility"]]))
        if curves:
            panels[title][key[3]] = curves
    return dict(panels)


def _shown(cells: Cells, methods: Sequence[str] = METHODS) -> list[tuple[str, Key]]:
    return [
        (f"{model} {target}, m={length}", (model, target, length, method))
        for length in LENGTHS
        for model, target in SHOWN
        for method in methods
        if cells.get((model, target, length, method)) is not None
    ]


def _runs(cells: Cells, key: Key) -> list[str]:
    cell = cells.get(key)
    return [] if cell is None else [row["run"] for row in cell.rows]


def shown_runs(cells: Cells) -> list[str]:
    """The runs whose histories figures show."""
    return [name for _, key in _shown(cells) for name in _runs(cells, key)]


def _thinned(values: list[float], most: int = 80) -> Curve:
    """At most so many steps, evenly spread on a logarithmic axis, the last one kept."""
    steps = np.unique(np.geomspace(1, len(values), min(most, len(values))).round().astype(int))
    return steps.tolist(), [values[step - 1] for step in steps]


def steering(model: str, target: str, length: int, seed: int = 0) -> Steering:
    """The method on the model's own bank: its latents, their utilities, their tilted weights.

    Latents are points of a square: how likely each token is followed by a 1. Those that look at no
    token lie on its diagonal. A latent's utility is that from the law of the prompt's last token;
    for the picture, from the optimised prompt kernel's.
    """
    request = Request(
        model=model, utility=utility_of_target(target), length=length, horizon=HORIZON, seed=seed
    )
    problem = pose([request])[0]
    order = problem.markov.order
    two = problem.vocab_size == 2 and order <= 1
    require(two, f"{model} {target}: a square shows latents of two tokens that look at one at most")
    solved = PosteriorPrefixTuning(analytic=False, exact_means=True).optimise([problem])[0]
    kernel, square = solved.ascent.prompt, ContextSpace(2, 1)
    last = kernel.transitions[0, 0]  # of a kernel that looks at no token
    if order == 1:
        last = kernel.final_context(square, length - 1)[0]
    ones = torch.linspace(0, 1, GRID, dtype=torch.float64)
    first, second = torch.meshgrid(ones, ones, indexing="ij")
    rows = torch.stack([first.flatten(), second.flatten()], -1)
    kernels = torch.stack([1 - rows, rows], -1)
    means = utility_of_kernels(problem.expected, square, kernels, HORIZON)
    prompt, _ = solved.snap("own-context")
    text = "".join(map(str, prompt.tolist()))
    return Steering(
        title=f"{target}, m={length}",
        landscape=(means @ last).reshape(GRID, GRID).numpy(),
        samples=lift(solved.bank.space, solved.bank.kernels, 1)[:, :, 1].numpy(),
        weights=normalise(solved.ascent.log_tilt).numpy(),
        ess_fraction=solved.ess_fraction,
        caption=f"snaps to {text[:12]}{'...' if len(text) > 12 else ''}",
    )
