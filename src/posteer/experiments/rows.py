"""The published rows of PPT and GCG, run and set beside the paper's figures.

    python -m posteer.experiments.rows run --out records.csv [--methods ppt-rb ppt] [--device cuda]
    python -m posteer.experiments.rows run --out records.csv --methods gcg --urn FOLDER
    python -m posteer.experiments.rows table records.csv
    python -m posteer.experiments.rows agree some.csv others.csv

`run` ascends every target of the paper for ten seeds, snaps each end point under every reading of
"J_tilt of a candidate", and writes one record per run and reading. The analytic methods run on the
idealised models; `ppt` and `ppt-rb` run from the shipped banks of the trained ones, which judge the
prompts; `gcg` searches on the trained ones, `--device` being the model's, or with `--urn` on
another trained urn alone. `table` sets records beside the published figures, `agree` two files
beside each other.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from posteer.evaluation import expected_utility, landscapes
from posteer.experiments.paper.published import TARGETS, utility_of_target
from posteer.experiments.row_tables import (
    READINGS,
    agreement,
    agreement_between,
    cell_table,
    read_records,
    search_agreement,
    search_table,
)
from posteer.latents import DrawPlan
from posteer.models import Metered, open_model
from posteer.problem import Problem
from posteer.search.gcg import GreedyCoordinateGradient
from posteer.steering.ascent import AscentSettings
from posteer.steering.ppt import PosteriorPrefixTuning
from posteer.utilities import Utility, open_utility

METHODS = ("ppt-rb-analytic", "ppt-analytic", "ppt-rb", "ppt", "gcg")
HORIZON = 4


@dataclass(frozen=True)
class Record:
    """One run under one reading of the snapping rule."""

    model: str
    target: str
    length: int
    method: str
    seed: int
    reading: str
    ess_fraction: float | None
    pareto_k: float | None
    steps: int | None
    stop_reason: str | None
    surrogate: float | None
    prompt: str
    expected_utility: float
    rank: int | None
    optimum: float | None
    held_out_surrogate: float | None
    forward_tokens: int
    bank_tokens: int
    backward_tokens: int = 0


def run(
    model_name: str,
    length: int,
    method: str,
    seeds: list[int],
    n_samples: int = 5000,
    device: str = "cpu",
    steps: int = 5000,
    folder: str | None = None,
) -> list[Record]:
    """All targets of one model, length and method, as one batch."""
    if method == "gcg":
        return _search(model_name, length, seeds, device, folder)
    analytic = method.endswith("-analytic")
    model = Metered(open_model(f"exact:{model_name}" if analytic else model_name))
    draw = DrawPlan(n_samples=n_samples)
    tuning = PosteriorPrefixTuning(
        analytic=analytic,
        exact_means=method.startswith("ppt-rb"),
        draw=draw if analytic else DrawPlan(),
        ascent=AscentSettings(max_steps=steps),
        device=device,
    )
    targets = TARGETS[model_name]
    utilities = [open_utility(utility_of_target(target), model.space) for target in targets]
    problems = [Problem(model, u, length, HORIZON, seed) for u in utilities for seed in seeds]
    solutions = tuning.optimise(problems)
    fields = landscapes(model.inner, utilities, length, HORIZON)
    records = []
    for which, target in enumerate(targets):
        own = solutions[which * len(seeds) : (which + 1) * len(seeds)]
        among = fields[which]
        snapped = [(one, reading, one.snap(reading)[0]) for one in own for reading in READINGS]
        prompts = torch.stack([prompt for _, _, prompt in snapped])
        values = _values(model, utilities[which], prompts)
        held_out = {id(one): tuning.on_held_out(one)[0] for one in own}
        for (solution, reading, prompt), value in zip(snapped, values, strict=True):
            records.append(
                Record(
                    model=model_name,
                    target=target,
                    length=length,
                    method=method,
                    seed=solution.problem.seed,
                    reading=reading,
                    ess_fraction=solution.ess_fraction,
                    pareto_k=solution.pareto_k,
                    steps=solution.ascent.steps,
                    stop_reason=solution.ascent.stop_reason,
                    surrogate=solution.ascent.surrogate,
                    prompt="".join(map(str, prompt.tolist())),
                    expected_utility=value,
                    rank=None if among is None else among.rank(value),
                    optimum=None if among is None else among.optimum,
                    held_out_surrogate=held_out[id(solution)],
                    forward_tokens=solution.queries.forward_tokens,
                    bank_tokens=solution.bank.tokens,
                )
            )
    return records


def _search(
    model_name: str, length: int, seeds: list[int], device: str, folder: str | None
) -> list[Record]:
    """GCG as the paper sets it, on the trained model; prompts are judged on CPU as the others'."""
    model = Metered(open_model(folder or model_name, device))
    judge = Metered(open_model(folder or model_name))
    targets = TARGETS[model_name]
    utilities = [open_utility(utility_of_target(target), model.space) for target in targets]
    problems = [Problem(model, u, length, HORIZON, seed) for u in utilities for seed in seeds]
    answers = GreedyCoordinateGradient().solve(problems)
    fields = landscapes(judge.inner, utilities, length, HORIZON)
    records = []
    for which, target in enumerate(targets):
        own = answers[which * len(seeds) : (which + 1) * len(seeds)]
        among = fields[which]
        prompts = torch.stack([answer.prompt for answer in own])
        values = _values(judge, utilities[which], prompts)
        for seed, answer, value in zip(seeds, own, values, strict=True):
            records.append(
                Record(
                    model=model_name,
                    target=target,
                    length=length,
                    method="gcg",
                    seed=seed,
                    reading="",
                    ess_fraction=None,
                    pareto_k=None,
                    steps=answer.steps,
                    stop_reason=answer.stop_reason,
                    surrogate=None,
                    prompt="".join(map(str, answer.prompt.tolist())),
                    expected_utility=value,
                    rank=None if among is None else among.rank(value),
                    optimum=None if among is None else among.optimum,
                    held_out_surrogate=None,
                    forward_tokens=answer.queries.forward_tokens,
                    bank_tokens=0,
                    backward_tokens=answer.queries.backward_tokens,
                )
            )
    return records


def _values(model: Metered, utility: Utility, prompts: Tensor) -> list[float]:
    """J of each prompt, each distinct one once."""
    distinct, where = prompts.unique(dim=0, return_inverse=True)
    judged = expected_utility(model.inner, utility, distinct, HORIZON)
    return judged.expected_utility[where].tolist()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="posteer.experiments.rows", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    runner = commands.add_parser("run")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--lengths", type=int, nargs="+", default=[6, 50])
    runner.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    runner.add_argument("--seeds", type=int, default=10)
    runner.add_argument("--samples", type=int, default=5000)
    runner.add_argument("--steps", type=int, default=5000)
    runner.add_argument("--device", default="cpu")
    runner.add_argument("--urn", help="folder of another trained urn, to run on alone")
    agree = commands.add_parser("agree")
    agree.add_argument("some", type=Path)
    agree.add_argument("others", type=Path)
    table = commands.add_parser("table")
    table.add_argument("records", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "table":
        records = read_records(given.records)
        searched = [record for record in records if not record["reading"]]
        tuned = [record for record in records if record["reading"]]
        if tuned:
            print("\n".join([*agreement(tuned), "", *cell_table(tuned)]))
        if searched:
            print("\n".join([*search_agreement(searched), "", *search_table(searched)]))
        return
    if given.command == "agree":
        print("\n".join(agreement_between(read_records(given.some), read_records(given.others))))
        return
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(Record.__dataclass_fields__))
        writer.writeheader()
        for model in TARGETS if given.urn is None else ["urn"]:
            for length in given.lengths:
                for method in given.methods:
                    seeds = list(range(given.seeds))
                    found = run(
                        model,
                        length,
                        method,
                        seeds,
                        given.samples,
                        given.device,
                        given.steps,
                        given.urn,
                    )
                    writer.writerows(asdict(record) for record in found)
                    file.flush()
                    print(f"{model} {length} {method}: {len(found)} records", file=sys.stderr)


if __name__ == "__main__":
    main()
