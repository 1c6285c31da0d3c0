"""The published rows of PPT and GCG, run and set beside the paper's figures.

    python -m posteer.experiments.rows run --out records.csv [--methods ppt-rb ppt] [--device cuda]
    python -m posteer.experiments.rows table records.csv

`run` ascends every target of the paper for ten seeds, snaps each end point under every reading of
"J_tilt of a candidate", and writes one record per run and reading. The analytic methods run on the
idealised models; `ppt` and `ppt-rb` run from the shipped banks of the trained ones, which judge the
prompts; `gcg` searches on the trained ones, `--device` being the model's. `table` sets records
beside the published figures.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import get_args

import torch
from torch import Tensor

from posteer.evaluation import expected_utility, landscapes
from posteer.experiments.published import TARGETS, Figure, published, utility_of_target
from posteer.latents import DrawPlan
from posteer.models import Metered, open_model
from posteer.problem import Problem
from posteer.search.gcg import GreedyCoordinateGradient
from posteer.steering.ascent import AscentSettings
from posteer.steering.ppt import PosteriorPrefixTuning
from posteer.steering.snap import CandidateScore
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
) -> list[Record]:
    """All targets of one model, length and method, as one batch."""
    if method == "gcg":
        return _search(model_name, length, seeds, device)
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
        snapped = [(one, reading, one.snap(reading)[0]) for one in own for reading in _READINGS]
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


def _search(model_name: str, length: int, seeds: list[int], device: str) -> list[Record]:
    """GCG as the paper sets it, on the trained model; prompts are judged on CPU as the others'."""
    model = Metered(open_model(model_name, device))
    judge = Metered(open_model(model_name))
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


def search_table(records: list[dict[str, str]]) -> list[str]:
    """Every cell of a search: J and, where all prompts can be ranked, rank; ours beside theirs."""
    figures = published()
    lines = [
        "| model | m | target | J published | J ours | rank published | rank ours | tokens | |",
        "|---" * 9 + "|",
    ]
    for key, by_reading in _cells(records).items():
        model, target, m, _ = key
        rows = by_reading[""]
        j = figures[*key, "J"]
        theirs = figures.get((*key, "rank"))
        rank = _mean_and_error(rows, "rank") if rows[0]["rank"] else ""
        tokens = fmean(float(r["forward_tokens"]) + float(r["backward_tokens"]) for r in rows)
        lines.append(
            f"| {model} | {m} | {target} | {j.value:.2f} ({j.standard_error:.2f}) "
            f"| {_mean_and_error(rows)} | {'' if theirs is None else f'{theirs.value:.1f}'} "
            f"| {rank} | {tokens:,.0f} | {'' if _matches(figures, key, rows) else 'differs'} |"
        )
    return lines


def _values(model: Metered, utility: Utility, prompts: Tensor) -> list[float]:
    """J of each prompt, each distinct one once."""
    distinct, where = prompts.unique(dim=0, return_inverse=True)
    judged = expected_utility(model.inner, utility, distinct, HORIZON)
    return judged.expected_utility[where].tolist()


def read_records(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def agreement(records: list[dict[str, str]]) -> list[str]:
    """How many published cells each reading matches: J within 0.05 or three standard errors, and
    (after the slash) within three standard errors and the rounding of the tables."""
    cells = _cells(records)
    figures = published()
    lines = ["| method | length | ESS mean within 0.02 | " + " | ".join(_READINGS) + " |"]
    lines.append("|---" * (3 + len(_READINGS)) + "|")
    for method in dict.fromkeys(key[3] for key in cells):
        for length in sorted({key[2] for key in cells}):
            ess_hits, total = 0, 0
            loose, strict = dict.fromkeys(_READINGS, 0), dict.fromkeys(_READINGS, 0)
            for (model, target, m, name), by_reading in cells.items():
                if name != method or m != length:
                    continue
                total += 1
                ess = fmean(float(r["ess_fraction"]) for r in by_reading[_READINGS[0]])
                mean = figures[model, target, m, name, "ess_over_l_mean"].value
                ess_hits += abs(ess - mean) <= 0.02
                for reading in _READINGS:
                    key = (model, target, m, name)
                    loose[reading] += _matches(figures, key, by_reading[reading])
                    strict[reading] += _matches(figures, key, by_reading[reading], False)
            row = " | ".join(f"{loose[r]} / {strict[r]}" for r in _READINGS)
            lines.append(f"| {method} | {length} | {ess_hits} of {total} | {row} |")
    return lines


def cell_table(records: list[dict[str, str]]) -> list[str]:
    """Every cell: ESS/L as mean [min, max], J as mean (standard error), ours beside theirs."""
    figures = published()
    lines = [
        "| model | m | target | method | ESS/L published | ESS/L ours | J published "
        "| J, paper's snapping | J, default | optimum | |",
        "|---" * 11 + "|",
    ]
    for key, by_reading in _cells(records).items():
        model, target, m, method = key
        theirs = [figures[*key, f"ess_over_l_{s}"].value for s in ("mean", "min", "max")]
        ess = [float(r["ess_fraction"]) for r in by_reading[DEFAULT_READING]]
        optimum = float(by_reading[DEFAULT_READING][0]["optimum"] or "nan")
        j = figures[*key, "J"]
        note = ""
        if not _matches(figures, key, by_reading[PAPERS_READING]):
            above = j.value > optimum + 0.005
            note = "published J is above our optimum" if above else "differs"
        lines.append(
            f"| {model} | {m} | {target} | {method} "
            f"| {theirs[0]:.2f} [{theirs[1]:.2f}, {theirs[2]:.2f}] "
            f"| {fmean(ess):.2f} [{min(ess):.2f}, {max(ess):.2f}] "
            f"| {j.value:.2f} ({j.standard_error:.2f}) "
            f"| {_mean_and_error(by_reading[PAPERS_READING])} "
            f"| {_mean_and_error(by_reading[DEFAULT_READING])} "
            f"| {'' if math.isnan(optimum) else f'{optimum:.2f}'} | {note} |"
        )
    return lines


_READINGS = get_args(CandidateScore)
DEFAULT_READING, PAPERS_READING = "own-context", "optimum-context"
_Key = tuple[str, str, int, str]
_Figures = dict[tuple[str, str, int, str, str], Figure]


def _cells(records: list[dict[str, str]]) -> dict[_Key, dict[str, list[dict[str, str]]]]:
    cells: dict[_Key, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        key = (record["model"], record["target"], int(record["length"]), record["method"])
        cells[key][record["reading"]].append(record)
    return cells


def _standard_error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _mean_and_error(rows: list[dict[str, str]], column: str = "expected_utility") -> str:
    values = [float(r[column]) for r in rows]
    return f"{fmean(values):.2f} ({_standard_error(values):.2f})"


def _matches(
    figures: _Figures, key: _Key, rows: list[dict[str, str]], generous: bool = True
) -> bool:
    """Whether our mean J is the published one, up to both standard errors and rounding."""
    values = [float(r["expected_utility"]) for r in rows]
    figure = figures[*key, "J"]
    error = 3 * math.hypot(figure.standard_error or 0.0, _standard_error(values))
    allowed = max(0.05, error) if generous else error + 0.005
    return abs(fmean(values) - figure.value) <= allowed


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
            print("\n".join(search_table(searched)))
        return
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(Record.__dataclass_fields__))
        writer.writeheader()
        for model in TARGETS:
            for length in given.lengths:
                for method in given.methods:
                    seeds = list(range(given.seeds))
                    found = run(
                        model, length, method, seeds, given.samples, given.device, given.steps
                    )
                    writer.writerows(asdict(record) for record in found)
                    file.flush()
                    print(f"{model} {length} {method}: {len(found)} records", file=sys.stderr)


if __name__ == "__main__":
    main()
