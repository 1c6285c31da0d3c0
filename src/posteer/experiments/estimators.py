"""How far each estimator of hard prompts is from exact J, past where plain weights survive.

    python -m posteer.experiments.estimators [--prompts 5] [--latents 5000] [--seed 0]

Exact models with Dirichlet(1/2) rows, one analytic bank each, prompts that walk kernels drawn from
the prior. Each cell is the mean of |estimate - J| over the prompts and the mean standard error the
estimator gave itself; `spread` is the standard deviation of J over the prompts. k-hat and ESS are
medians, of the plain weights. The last line says how many seconds each estimator took in all,
fitting included.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor

from posteer.kernels import ContextSpace
from posteer.latents import draw_analytic
from posteer.models.continuations import continuation_laws
from posteer.models.exact import ExactModel
from posteer.objectives import ExpectedUtility
from posteer.processes import DirichletRows, sample_sequences
from posteer.randomness import numpy_stream, torch_stream
from posteer.shapes import Float
from posteer.steering.posteriors import (
    ConjugateFit,
    HardPromptPosterior,
    ImportanceSampled,
    TemperedSMC,
    scores_of_prompts,
)
from posteer.utilities import Utility, open_utility

SETTINGS = (
    (3, 1, 8, 50),
    (4, 1, 6, 100),
    (2, 2, 8, 100),
    (2, 3, 6, 200),
    (8, 1, 4, 100),
    (2, 1, 20, 200),
)
"""Vocabulary, order, horizon, length."""

UTILITIES = ("dyck", "frequency(0.3)", "reverse-xent(dir-4)")


def exact_values(
    model: ExactModel, utilities: list[Utility], prompts: Tensor, horizon: int
) -> Float[Tensor, "U K"]:
    """J by enumeration at any horizon, a prompt at a time: 2**20 continuations still fit."""
    vocab = model.space.vocab_size
    objectives = [ExpectedUtility(utility, vocab, horizon) for utility in utilities]
    columns = []
    for prompt in prompts:
        law = continuation_laws(model, prompt[None], horizon)
        values = [
            objective.of_laws(law, ContextSpace(vocab, objective.order).suffix(prompt[None]))
            for objective in objectives
        ]
        columns.append(torch.cat(values))
    return torch.stack(columns, 1)


def rows(n_prompts: int, n_latents: int, seed: int) -> Iterator[str]:
    yield "| V | order | N | m | utility | spread | k-hat | ESS | plain | PSIS | conjugate | SMC |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    seconds: dict[str, float] = defaultdict(float)
    for vocab, order, horizon, length in SETTINGS:
        model = ExactModel(DirichletRows.symmetric(vocab, order, 0.5))
        streams = numpy_stream(seed, "estimator-prompts"), torch_stream(seed, "estimator-prompts")
        prompts, _ = sample_sequences(model.process, n_prompts, length, *streams)
        utilities = [open_utility(name, model.space) for name in UTILITIES]
        truth = exact_values(model, utilities, prompts, horizon)
        bank = draw_analytic(model.process, n_latents, seed)
        fit = ConjugateFit(bank)
        estimators: list[HardPromptPosterior] = [
            ImportanceSampled(bank),
            ImportanceSampled(bank, smoothed=True),
            fit,
            TemperedSMC(bank, fit=fit),
        ]
        for utility, exact in zip(utilities, truth, strict=True):
            cells = []
            for estimator in estimators:
                started = time.perf_counter()
                found = scores_of_prompts(estimator, model.space, utility, prompts, horizon)
                seconds[estimator.name] += time.perf_counter() - started
                missed = float((found.value - exact).abs().mean())
                cells.append(f"{missed:.2g} ({float(found.standard_error.mean()):.2g})")
                if estimator.name == "importance":
                    shape, ess = found.pareto_k.median(), found.ess_fraction.median() * n_latents
            yield (
                f"| {vocab} | {order} | {horizon} | {length} | {utility.name} "
                f"| {float(exact.std()):.2g} | {float(shape):.1f} | {float(ess):.0f} | "
                + " | ".join(cells)
                + " |"
            )
    taken = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    yield f"\nSeconds for {len(SETTINGS) * len(UTILITIES) * n_prompts} scores: {taken}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--latents", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for line in rows(given.prompts, given.latents, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
