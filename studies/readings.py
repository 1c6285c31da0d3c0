"""Which optimiser did the paper use at order 0? Each reading against its published tables.

    python studies/readings.py

The paper says only that alpha is a softmax of logits. Here the latent bank is replaced by nodes
that integrate Beta(1/2, 1/2) exactly (p = sin^2 of equally spaced angles), so what remains is the
optimiser: plain gradient ascent or Adam, its rate, the spread of the initial logits, the limit on
steps. For each reading: the summed distance to the 120 published ESS figures of PPT-RB (analytic)
(mean, min and max over ten seeds), and mean J of the snapped prompts at length 50 for tau-0.1,
whose published value is -0.51 (0.00).
"""

from __future__ import annotations

import math

import torch
from running import Options, run
from tables import heading
from torch import Tensor

from posteer.evaluation import expected_utility
from posteer.families.markov.family import markov_space
from posteer.families.markov.means import utility_of_kernels
from posteer.goals.utilities import open_utility
from posteer.models import open_model
from posteer.paper.published import TARGETS, published, utility_of_target

N_NODES, N_STARTS, HORIZON = 100, 30, 4
MODEL = "beta-bernoulli"
READINGS = [
    # optimiser, rate, initial logits, step limit
    ("gradient", 0.1, "log Dirichlet(1)", 2000),
    ("gradient", 1.0, "log Dirichlet(1)", 2000),
    ("Adam", 0.01, "log Dirichlet(1)", 2000),
    ("Adam", 0.05, "log Dirichlet(1)", 2000),
    ("Adam", 0.1, "0.1 normal", 2000),
    ("Adam", 0.1, "normal", 2000),
    ("Adam", 0.1, "log Dirichlet(1)", 500),
    ("Adam", 0.1, "log Dirichlet(1)", 1000),
    ("Adam", 0.1, "log Dirichlet(1)", 2000),
    ("Adam", 0.1, "log Dirichlet(1)", 5000),
    ("Adam", 0.2, "log Dirichlet(1)", 2000),
]


def nodes() -> Tensor:
    """Kernels whose plain average is the expectation under Beta(1/2, 1/2)."""
    angles = (torch.arange(N_NODES, dtype=torch.float64) + 0.5) * math.pi / (2 * N_NODES)
    ones = angles.sin() ** 2
    return torch.stack([1 - ones, ones], -1)


def initial_logits(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(N_STARTS, 2, generator=generator, dtype=torch.float64)
    if kind == "log Dirichlet(1)":
        uniform = torch.rand(N_STARTS, generator=generator, dtype=torch.float64)
        return torch.stack([uniform.log(), (1 - uniform).log()], -1)
    return 0.1 * normal if kind == "0.1 normal" else normal


def ascend(
    means: Tensor, length: int, optimiser: str, rate: float, start: str, max_steps: int
) -> tuple[Tensor, Tensor]:
    """Final alpha(1) and ESS/L of every target and start; stops as the paper says."""
    kernels = nodes()
    logits = initial_logits(start).expand(len(means), -1, -1).clone().requires_grad_()
    moves = {"gradient": torch.optim.SGD, "Adam": torch.optim.Adam}[optimiser]([logits], lr=rate)
    best = torch.full(logits.shape[:2], -math.inf, dtype=torch.float64)
    waited = torch.zeros_like(best)
    ess = torch.ones_like(best)
    for _ in range(max_steps):
        log_w = length * (logits.softmax(-1) @ kernels.T).log()
        weights = log_w.softmax(-1)
        surrogate = (weights * means[:, None]).sum(-1)
        improved = surrogate.detach() > best + 1e-5
        running = waited < 100
        best = torch.where(improved & running, surrogate.detach(), best)
        waited = torch.where(running, torch.where(improved, 0.0, waited + 1), waited)
        running = waited < 100
        ess = 1 / (weights.detach().square().sum(-1) * N_NODES)
        if not bool(running.any()):
            break
        moves.zero_grad()
        (-surrogate.sum()).backward()
        held = logits.detach().clone()
        moves.step()
        logits.data = torch.where(running[..., None], logits.data, held)
    return logits.detach().softmax(-1)[..., 1], ess


def ess_distance(ess: Tensor, length: int) -> float:
    """Summed distance of mean, min and max over groups of ten starts from the tables."""
    figures, total = published(), 0.0
    for target, row in zip(TARGETS[MODEL], ess, strict=True):
        groups = row.view(-1, 10)
        ours = {
            "mean": groups.mean(),
            "min": groups.amin(1).mean(),
            "max": groups.amax(1).mean(),
        }
        for name, value in ours.items():
            key = (MODEL, target, length, "ppt-rb-analytic", f"ess_over_l_{name}")
            total += abs(float(value) - figures[key].value)
    return total


def snapped_mean(alpha: Tensor, length: int) -> float:
    """Mean J over starts of the better of floor and ceil ones, for tau-0.1."""
    model = open_model(f"exact:{MODEL}")
    utility = open_utility("reverse-xent(tau-0.1)", model)
    prompts = (torch.arange(length) < torch.arange(length + 1)[:, None]).long()
    values = expected_utility(model, utility, prompts, HORIZON).expected_utility
    low, high = (alpha * length).floor().long(), (alpha * length).ceil().long()
    return float(torch.maximum(values[low], values[high]).mean())


def main(arguments: list[str] | None = None) -> None:
    Options(__doc__).parse_args(arguments)
    space = markov_space(open_model(f"exact:{MODEL}").family, MODEL)
    means = torch.stack(
        [
            utility_of_kernels(
                open_utility(utility_of_target(target), space), space, nodes()[:, None], HORIZON
            )[:, 0]
            for target in TARGETS[MODEL]
        ]
    )
    columns = "| optimiser | rate | initial logits | step limit | ESS distance | J tau-0.1, m=50 |"
    print("\n".join(heading(columns)))
    for optimiser, rate, start, max_steps in READINGS:
        distance = 0.0
        for length in (6, 50):
            alpha, ess = ascend(means, length, optimiser, rate, start, max_steps)
            distance += ess_distance(ess, length)
        snapped = snapped_mean(alpha[TARGETS[MODEL].index("tau-0.1")], 50)
        print(
            f"| {optimiser} | {rate:g} | {start} | {max_steps} | {distance:.2f} | {snapped:.2f} |"
        )


if __name__ == "__main__":
    run(main)
