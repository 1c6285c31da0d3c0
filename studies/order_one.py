"""How is the update at order 1 meant? Readings of it against the published ESS tables.

    python studies/order_one.py [--quick]       # docs/records/order-one.json, some minutes
    python studies/order_one.py --many          # docs/records/order-one-many.json, some more

The paper states the step (rate 0.1, along the tangent of the simplex, floor and renormalise; rho by
the gradient with weights held) and we take it so. Tried here, each alone: rho by its whole
gradient; rho after A rather than with it; the nearest point of the simplex instead of floor and
renormalise; no tangent; A without the term of the last context; Adam on logits, as at order 0; the
best step kept rather than the last. The bank is replaced by nodes that integrate the prior
(products of p = sin^2 of equally spaced angles), so what remains is the update. For each: the
distance to the mean, least and greatest ESS/L of PPT-RB (A) over ten starts, summed over targets
some of which fit as stated and some of which do not, at both lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from places import RECORDS
from running import Options, run, write_document
from tables import heading
from torch import Tensor

from posteer.core.randomness import numpy_stream
from posteer.evaluation import expected_utility
from posteer.families.markov.family import Lifted
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import PromptKernel
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.snap import snap
from posteer.models import open_model
from posteer.paper.published import FREQUENCIES, HORIZON, published, utility_of_target
from posteer.tokens.contexts import ContextSpace

RECORD, MANY = RECORDS / "order-one.json", RECORDS / "order-one-many.json"
STARTS, FLOOR, RATE = 10, 1e-6, 0.1
NODES, STEPS = {6: 12, 50: 28}, 1000
"""Nodes of a row, by length: more where the tilted prior is narrower."""
TARGETS = ("q-0.1", "q-0.2", "q-0.4", "q-0.8", "dyck", "q-0.5", "sym-0.9", "dir-2")
"""The first four differ most as stated; the others fit."""


@dataclass(frozen=True)
class Reading:
    """The stated update, or with one thing done otherwise."""

    rho: str = "weights held"
    projection: str = "floor"
    tangent: bool = True
    second_term: bool = True
    kept: str = "last"


READINGS = {
    "as stated": Reading(),
    "rho by its whole gradient": Reading(rho="whole"),
    "rho after A": Reading(rho="after"),
    "nearest point of the simplex": Reading(projection="nearest"),
    "no tangent": Reading(tangent=False),
    "A without the term of the last context": Reading(second_term=False),
    "Adam on logits": Reading(projection="logits"),
    "the best step, not the last": Reading(kept="best"),
}


def nodes(each: int) -> Tensor:
    """Kernels [K, 2, 2] whose plain average is the expectation under the urn's prior."""
    angles = (torch.arange(each, dtype=torch.float64) + 0.5) * math.pi / (2 * each)
    ones = angles.sin() ** 2
    first, second = (some.flatten() for some in torch.meshgrid(ones, ones, indexing="ij"))
    rows = torch.stack([first, second], -1)
    return torch.stack([1 - rows, rows], -1)


def means_of(targets: tuple[str, ...], kernels: Tensor) -> Tensor:
    """[T, 2, K]: utility of each latent from each context."""
    space = ContextSpace(2, 1)
    goals = [open_utility(utility_of_target(target), space) for target in targets]
    return torch.stack([utility_of_kernels(g, space, kernels, HORIZON).T for g in goals])


def _product(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    a, b, c, d = one
    e, f, g, h = other
    return [a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h]


def _power_times_ones(table: list[Tensor], power: int) -> list[Tensor]:
    """A power of 2 x 2 tables applied to ones."""
    vector = [torch.ones_like(table[0]), torch.ones_like(table[0])]
    while power:
        if power & 1:
            a, b, c, d = table
            vector = [a * vector[0] + b * vector[1], c * vector[0] + d * vector[1]]
        power >>= 1
        if power:
            table = _product(table, table)
    return vector


def surrogate(
    table: Tensor, rho: Tensor, kernels: Tensor, means: Tensor, length: int, second_term: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """J_tilt, ESS/L and J_tilt with weights held; tables [B, 2, 2], means [B, 2, K]."""
    entries = [(0, 0), (0, 1), (1, 0), (1, 1)]
    joint = [table[:, a, b, None] * kernels[:, a, b] for a, b in entries]
    after = _power_times_ones(joint, length - 1)
    tilt = rho[:, :1] * after[0] + rho[:, 1:] * after[1]
    weights = tilt / tilt.sum(-1, keepdim=True)
    moving = table if second_term else table.detach()
    last = (rho[:, None] @ torch.linalg.matrix_power(moving, length - 1))[:, 0]
    utility = (last[..., None] * means).sum(1)
    ess = 1 / (weights.detach().square().sum(-1) * kernels.shape[0])
    return (weights * utility).sum(-1), ess, (weights.detach() * utility).sum(-1)


def nearest(values: Tensor) -> Tensor:
    """The Euclidean projection onto the simplex of two, kept off its corners."""
    first = ((values[..., 0] - values[..., 1] + 1) / 2).clamp(FLOOR, 1 - FLOOR)
    return torch.stack([first, 1 - first], -1)


def moved(values: Tensor, gradient: Tensor, reading: Reading) -> Tensor:
    """One step of rows."""
    if reading.tangent:
        gradient = gradient - gradient.mean(-1, keepdim=True)
    stepped = values + RATE * gradient
    if reading.projection == "nearest":
        return nearest(stepped)
    raised = stepped.clamp(min=FLOOR)
    return raised / raised.sum(-1, keepdim=True)


def ascend(
    means: Tensor, kernels: Tensor, length: int, reading: Reading, steps: int, each: int = STARTS
) -> tuple[Tensor, Tensor, Tensor]:
    """Final ESS/L [T, starts] and prompt kernels; runs that have stopped leave the batch."""
    n = len(means)
    table, rho = (some.repeat(n, *[1] * (some.ndim - 1)) for some in starts(each))
    goals = means.repeat_interleave(each, 0)
    final = torch.ones(len(goals), dtype=torch.float64)
    ends = (table.clone(), rho.clone())
    at = torch.arange(len(goals))
    best, waited = torch.full_like(final, -math.inf), torch.zeros_like(final)
    adam = [(some.log(), torch.zeros_like(some), torch.zeros_like(some)) for some in (table, rho)]
    for step in range(1, steps + 1):
        table, rho = table.detach().requires_grad_(), rho.detach().requires_grad_()
        value, ess, fixed = surrogate(table, rho, kernels, goals, length, reading.second_term)
        improved = value.detach() > best + 1e-5
        best = torch.where(improved, value.detach(), best)
        waited = torch.where(improved, 0.0, waited + 1)
        shown = improved if reading.kept == "best" else torch.ones_like(improved)
        final[at[shown]] = ess[shown]
        ends[0][at[shown]], ends[1][at[shown]] = table.detach()[shown], rho.detach()[shown]
        going = waited < 100
        if not bool(going.any()):
            break
        (slope,) = torch.autograd.grad(value.sum(), table, retain_graph=True)
        after = moved(table.detach(), slope, reading)
        if reading.rho == "after":
            fixed = surrogate(after, rho, kernels, goals, length, True)[2]
        whole = value if reading.rho == "whole" or reading.projection == "logits" else fixed
        (of_rho,) = torch.autograd.grad(whole.sum(), rho)
        if reading.projection == "logits":
            pairs = ((table.detach(), slope), (rho.detach(), of_rho))
            adam = [
                _adam(*kept, values * (g - (values * g).sum(-1, keepdim=True)), step)
                for kept, (values, g) in zip(adam, pairs, strict=True)
            ]
            table, rho = (logits.softmax(-1) for logits, _, _ in adam)
        else:
            table, rho = after, moved(rho.detach(), of_rho, reading)
        table, rho, goals, at = table[going], rho[going], goals[going], at[going]
        best, waited = best[going], waited[going]
        adam = [(x[going], y[going], z[going]) for x, y, z in adam]
    return final.view(n, each), *ends


def _adam(
    logits: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
    ahead = mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
    return logits + RATE * ahead, mean, square


def starts(n: int) -> tuple[Tensor, Tensor]:
    """Of Dirichlet(1), the same for every target."""
    stream = numpy_stream(0, "order-one")
    tables = torch.from_numpy(stream.dirichlet([1.0, 1.0], size=(n, 2)))
    return tables, torch.from_numpy(stream.dirichlet([1.0, 1.0], size=n))


def figures(ess: Tensor) -> dict[str, list[float]]:
    """Mean, least and greatest by target."""
    return {
        target: [round(float(one), 4) for one in (row.mean(), row.min(), row.max())]
        for target, row in zip(TARGETS, ess, strict=True)
    }


def show(record: dict[str, Any]) -> list[str]:
    """Distances by reading, and the mean at m=50 of each target beside the published."""
    shown = " | ".join(TARGETS)
    lines = heading(f"| reading | distance at m=6 | at m=50 | mean at m=50: {shown} |")
    key = "ppt-rb-analytic"
    theirs = [published()["urn", t, 50, key, "ess_over_l_mean"].value for t in TARGETS]
    lines.append(f"| published | | | {' | '.join(f'{one:.2f}' for one in theirs)} |")
    for name in READINGS:
        by_length = record[name]
        distances = [f"{distance(by_length[str(m)], m):.2f}" for m in (6, 50)]
        means = [f"{by_length['50'][target][0]:.2f}" for target in TARGETS]
        lines.append(f"| {name} | {' | '.join(distances)} | {' | '.join(means)} |")
    return lines


def distance(ours: dict[str, list[float]], length: int) -> float:
    """Summed over targets, mean, least and greatest."""
    total = 0.0
    for target, values in ours.items():
        for name, value in zip(("mean", "min", "max"), values, strict=True):
            key = ("urn", target, length, "ppt-rb-analytic", f"ess_over_l_{name}")
            total += abs(value - published()[key].value)
    return total


MANY_TARGETS = (*FREQUENCIES, "dyck")
COMPARED = ("as stated", "A without the term of the last context")


def many(each: int, steps: int) -> dict[str, Any]:
    """ESS/L, and J on exact Bayes of the snapped prompts, at m=50: mean and standard deviation over
    many starts, of two readings."""
    kernels = nodes(24)
    means = means_of(MANY_TARGETS, kernels)
    found: dict[str, Any] = {"starts": each}
    for name in COMPARED:
        ess, tables, rhos = ascend(means, kernels, 50, READINGS[name], steps, each)
        reached = snapped(kernels, means.repeat_interleave(each, 0), tables, rhos)
        found[name] = {
            target: [*_spread(of_ess), *_spread(of_j)]
            for target, of_ess, of_j in zip(MANY_TARGETS, ess, reached, strict=True)
        }
    return found


def _spread(values: Tensor) -> list[float]:
    return [round(float(values.mean()), 5), round(float(values.std()), 5)]


def snapped(kernels: Tensor, means: Tensor, tables: Tensor, rhos: Tensor) -> Tensor:
    """J on exact Bayes of each prompt kernel's hard prompt, by the rule the paper's tables show."""
    model, space = open_model("exact:urn"), ContextSpace(2, 1)
    bank = Lifted(space, kernels, None)
    prompts = [
        snap(bank, PromptKernel(table[None], rho[None]), of.T, 50, "optimum-context")[0]
        for table, rho, of in zip(tables, rhos, means, strict=True)
    ]
    rows = torch.stack(prompts).view(len(MANY_TARGETS), -1, 50)
    return torch.stack(
        [
            expected_utility(
                model, open_utility(utility_of_target(target), space), some, HORIZON
            ).expected_utility
            for target, some in zip(MANY_TARGETS, rows, strict=True)
        ]
    )


def show_many(record: dict[str, Any]) -> list[str]:
    """Beside the published means of ten seeds; chi-square of differences, cells taken apart."""
    columns = f"| | reading, {record['starts']} starts | {' | '.join(MANY_TARGETS)} | chi-square |"
    lines = heading(columns)
    for at, (what, column) in enumerate((("ESS/L", "ess_over_l_mean"), ("J", "J"))):
        key = "ppt-rb-analytic"
        theirs = [published()["urn", t, 50, key, column].value for t in MANY_TARGETS]
        printed = " | ".join(f"{one:.2f}" for one in theirs)
        lines.append(f"| {what} | published, 10 seeds | {printed} | |")
        for name in COMPARED:
            shown, total = [], 0.0
            for target, other in zip(MANY_TARGETS, theirs, strict=True):
                mean, spread = record[name][target][2 * at : 2 * at + 2]
                variance = spread**2 * (1 / STARTS + 1 / record["starts"]) + 0.01**2 / 12
                total += (mean - other) ** 2 / variance
                shown.append(f"{mean:.3f} ({spread / math.sqrt(STARTS):.3f})")
            lines.append(
                f"| {what} | {name} | {' | '.join(shown)} | {total:.0f} of {len(theirs)} |"
            )
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps, nothing kept")
    parser.add_argument("--many", action="store_true", help="many starts of two readings instead")
    given = parser.parse_args(arguments)
    if given.many:
        found = many(4 if given.quick else 20, 3 if given.quick else 700)
        if not given.quick:
            write_document(MANY, found)
        print("\n".join(show_many(found)))
        return
    record: dict[str, Any] = {name: {} for name in READINGS}
    for m in NODES:
        kernels = nodes(NODES[m])
        means = means_of(TARGETS, kernels)
        for name, reading in READINGS.items():
            ess, _, _ = ascend(means, kernels, m, reading, 3 if given.quick else STEPS)
            record[name][str(m)] = figures(ess)
    if not given.quick:
        write_document(RECORD, record)
    print("\n".join(show(record)))


if __name__ == "__main__":
    run(main)
