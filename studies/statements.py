"""Statements of the paper that no table of it holds: each one tried.

    python studies/statements.py [--quick]     # docs/records/statements.json, a few minutes

half: a uniform target gives J = -N log 2 for every prompt. rollouts: counts of rollouts approach
the prior as they get longer, on exact Bayes; what is left on a trained model no length removes.
gradient: low ESS/L spoils the estimated gradient, and single rollouts spoil it more than exact
means: relative error of the gradient in A over many banks, at prompt kernels of all sharpness.
Costs are read off the sweep's own records, by `results_page.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from places import RECORDS
from running import Options, run, write_document
from torch import Tensor

from posteer.banks import DrawPlan, draw_bank
from posteer.banks.checks.statistics import wasserstein
from posteer.banks.drawn import draw_analytic
from posteer.banks.shipped import shipped_bank
from posteer.core.randomness import numpy_stream
from posteer.evaluation import expected_utility
from posteer.families.markov.family import Lifted, kernels_of
from posteer.families.markov.tilt import PromptKernel
from posteer.families.registry import open_process
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.batches import tilted_runs
from posteer.methods.protocol import Problem, Request, pose
from posteer.models import Metered, load, open_model
from posteer.paper.published import HORIZON
from posteer.sweeps.results import Row
from posteer.tokens.contexts import all_sequences

RECORD = RECORDS / "statements.json"
LENGTHS = (20, 80, 320, 1280)
BANKS, LATENTS, REFERENCE = 20, 1000, 200_000
PAPERS_TOKENS = 5000 * 1999
"""Of a bank; the first token of a rollout is not asked for."""


def half() -> dict[str, float]:
    """How far J of any prompt of 6 is from -N log 2 under a uniform target."""
    found = {}
    for name, target in (("beta-bernoulli", "tau-0.5"), ("urn", "sym-0.5")):
        model = load(name, "cpu")
        utility = open_utility(f"reverse-xent({target})", model)
        values = expected_utility(model, utility, all_sequences(2, 6), HORIZON).expected_utility
        found[name] = float((values + HORIZON * math.log(2)).abs().max())
    return found


def rollouts(samples: int) -> dict[str, list[float]]:
    """W1 to the prior of the coin by length of rollouts: exact Bayes, and the trained model."""
    prior = kernels_of(open_process("beta-bernoulli").sample(500_000, numpy_stream(0, "prior")))
    values = prior[:, 0, 1]
    exact = Metered(open_model("exact:beta-bernoulli"))
    trained = shipped_bank(load("beta-bernoulli", "cpu").fingerprint)
    assert trained is not None and trained.counts is not None
    counts = {**trained.snapshots, 2000: trained.counts}
    found: dict[str, list[float]] = {"lengths": list(LENGTHS), "exact": []}
    for length in LENGTHS:
        drawn = draw_bank(exact, DrawPlan(n_samples=samples, rollout_length=length))
        found["exact"].append(wasserstein(drawn.kernels[:, 0, 1], values))
    parts = values[: 20 * samples].view(20, samples)
    found["drawn"] = [float(np.mean([wasserstein(part, values) for part in parts]))]
    found["trained_lengths"] = [float(length) for length in sorted(counts)]
    found["trained"] = [_distance(counts[length], values) for length in sorted(counts)]
    return {name: [round(float(one), 5) for one in some] for name, some in found.items()}


def _distance(counts: Tensor, values: Tensor) -> float:
    shares = counts.double() / counts.sum(-1, keepdim=True)
    return wasserstein(shares.reshape(len(counts), -1, 2)[:, 0, 1], values)


def gradients(kernels: int) -> dict[str, Any]:
    """At each prompt kernel: ESS/L, and the relative error of the gradient, exact means or not."""
    prior, rows = open_process("urn"), []
    stream = numpy_stream(0, "statements-kernels")
    large = draw_analytic(prior, REFERENCE, seed=10_000).kernels
    for number in range(kernels):
        length, sharp = (6, 50)[number % 2], 4.0 ** stream.uniform(-2, 2)
        table = torch.from_numpy(stream.dirichlet([sharp] * 2, size=2))
        prompt = PromptKernel(table[None], torch.full((1, 2), 0.5, dtype=torch.float64))
        asked = Request(model="exact:urn", utility="dyck", length=length, horizon=HORIZON)
        problem = pose([asked])[0]
        truth, _ = _gradient(problem, prompt, [large], exact=True)
        banks = [draw_analytic(prior, LATENTS, seed=seed).kernels for seed in range(BANKS)]
        row: dict[str, float] = {"length": length}
        for name, exact in (("exact_means", True), ("rollouts", False)):
            some, ess = _gradient(problem, prompt, banks, exact)
            error = (some - truth).square().sum((1, 2)).mean().sqrt() / truth.norm()
            row |= {name: round(float(error), 4), "ess": round(float(ess.mean()), 4)}
        rows.append(row)
    return {"banks": BANKS, "latents": LATENTS, "kernels": rows}


def _gradient(
    problem: Problem, prompt: PromptKernel, banks: Sequence[Tensor], exact: bool
) -> tuple[Tensor, Tensor]:
    """Of each bank, along the simplex: what a step follows."""
    space = problem.markov.space
    owned = [(problem, Lifted(space, kernels, None)) for kernels in banks]
    runs = tilted_runs(owned, "linear", exact, torch.device("cpu"))
    n = len(banks)
    every = PromptKernel(prompt.transitions.expand(n, -1, -1), prompt.initial.expand(n, -1))
    at = runs.estimate(every)
    return at.gradient - at.gradient.mean(-1, keepdim=True), at.ess_fraction


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's; values that tie share their mean rank, so that no order of sorting decides."""
    ranks = []
    for some in map(np.asarray, (one, other)):
        below = (some[:, None] > some).sum(1)
        ranks.append(below + (some[:, None] == some).sum(1) / 2)
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def costs(rows: Sequence[Row]) -> dict[str, Any]:
    """What records say of what was asked of models, by kind of method."""
    done = [row for row in rows if row["status"] != "failed"]
    tuned = [row for row in done if row["method"].startswith("ppt")]
    rolled = [row for row in tuned if "analytic" not in row["method"]]
    greedy = [row for row in done if row["method"] == "gcg"]
    price = {(m, h): m + 2 ** (h + 1) - 2 - 2**h for m in (6, 50) for h in (HORIZON,)}
    return {
        "tuned": len(tuned),
        "tuned_tokens": sum(row["forward_tokens"] + row["backward_tokens"] for row in tuned),
        "analytic_bank": sum(r["bank_tokens"] for r in tuned if "analytic" in r["method"]),
        "banks": sorted({(row["model"], row["bank_tokens"]) for row in rolled}),
        "utilities": len({(row["model"], row["utility"]) for row in rolled}),
        "greedy": len(greedy),
        "greedy_most": max(
            row["forward_tokens"] / (row["steps"] * (1 + row["length"]) * price[row["length"], 4])
            for row in greedy
        )
        if greedy
        else 0.0,
    }


def lines(record: dict[str, Any], spent: dict[str, Any]) -> list[str]:
    """Rows of a table: what is said, what was found, whether it is so."""
    far = max(record["half"].values())
    rolled, drawn = record["rollouts"]["exact"], record["rollouts"]["drawn"][0]
    trained = record["rollouts"]["trained"]
    kernels = record["gradients"]["kernels"]
    ess = [one["ess"] for one in kernels]
    tied = {kind: rank_correlation(ess, [k[kind] for k in kernels]) for kind in KINDS}
    clear = 1.96 / math.sqrt(len(kernels) - 1)
    noisier = sum(one["rollouts"] > one["exact_means"] for one in kernels)
    banks = ", ".join(
        f"{model} {tokens:,}" + " (fewer than the paper's)" * (tokens < PAPERS_TOKENS)
        for model, tokens in spent["banks"]
    )
    found = [
        (
            "PPT asks the model nothing while it optimises, forward or backward",
            f"{spent['tuned_tokens']} tokens in {spent['tuned']:,} runs",
            spent["tuned_tokens"] == 0,
        ),
        (
            "The analytic variants ask the model nothing at all",
            f"{spent['analytic_bank']} tokens of banks",
            spent["analytic_bank"] == 0,
        ),
        (
            "One set of sampled tokens, L R = 10,000,000, serves every utility",
            f"tokens asked, the first of a rollout being free: {banks}; {spent['utilities']} "
            "utilities",
            len(spent["banks"]) == len({model for model, _ in spent["banks"]}),
        ),
        (
            "GCG evaluates at most m candidates a step",
            f"at most {spent['greedy_most']:.2f} of the forward tokens of 1 + m candidates a step, "
            f"{spent['greedy']:,} runs",
            0 < spent["greedy_most"] <= 1 + 1e-9,
        ),
        (
            "Under a uniform target J is -N log 2 for every prompt",
            f"largest difference {far:.0e}, all 64 prompts of both models",
            far < 1e-5,
        ),
        (
            "The counting error of rollouts vanishes as they get longer (exact Bayes, coin)",
            f"W1 to the prior {_by(record['rollouts']['lengths'], rolled)}; draws of the prior "
            f"{drawn:.4f}",
            rolled == sorted(rolled, reverse=True) and rolled[-1] < 2 * drawn,
        ),
        (
            "Rollouts of the trained model recover the prior (coin)",
            f"W1 {_by(record['rollouts']['trained_lengths'], trained)}",
            trained[-1] < 2 * max(drawn, rolled[-1]),
        ),
        *(
            (
                f"Low ESS/L spoils the estimated gradient ({said})",
                f"rank correlation of ESS/L and relative error over {len(kernels)} prompt kernels: "
                f"{tied[kind]:.2f}; below {-clear:.2f} once in 40 by chance",
                tied[kind] < -clear,
            )
            for kind, said in KINDS.items()
        ),
        (
            "Exact means make the gradient less noisy",
            f"at {noisier} of {len(kernels)} prompt kernels",
            noisier == len(kernels),
        ),
    ]
    return [f"| {said} | {what} | {'holds' if so else 'not shown'} |" for said, what, so in found]


KINDS = {"rollouts": "PPT", "exact_means": "PPT-RB"}


def _by(lengths: Sequence[float], values: Sequence[float]) -> str:
    return ", ".join(f"{v:.4f} at R={n:.0f}" for n, v in zip(lengths, values, strict=True))


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, nothing kept")
    given = parser.parse_args(arguments)
    record = {
        "half": half(),
        "rollouts": rollouts(500 if given.quick else 5000),
        "gradients": gradients(4 if given.quick else 40),
    }
    if not given.quick:
        write_document(RECORD, record)
    for part, facts in record.items():
        print(part, facts)


if __name__ == "__main__":
    run(main)
