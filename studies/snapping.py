"""Does the paper's snapping of Dyck on the urn hang on the bank or on the model?

    python studies/snapping.py [--banks 500]    # docs/records/snapping.json, a minute

With the candidate score its tables show (`optimum-context`), 010101 (J 0.58) and 101010 (J near 0)
are told apart at m=6 by the bank alone: exact Bayes gives both the same. Drawn here: which wins on
bootstraps of the shipped rollout bank, and on fresh banks of the prior, at the prompt kernel where
the ascent on the shipped bank ends. Had the noise of a bank decided, both would be near a half.
Then the rank that the other rule (`own-context`) gives the analytic variants, beside the published.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import torch
from places import RECORDS
from running import Options, positive, run, write_document

from posteer.banks.drawn import draw_analytic
from posteer.core.randomness import torch_stream
from posteer.families.markov.family import Lifted
from posteer.families.markov.means import utility_of_kernels
from posteer.families.registry import open_process
from posteer.methods.ppt.method import PosteriorPrefixTuning
from posteer.methods.ppt.snap import choose, propose
from posteer.methods.protocol import Request, pose
from posteer.paper.cells import Cells
from posteer.paper.published import HORIZON, published
from posteer.sweeps.results import read_rows

RECORD = RECORDS / "snapping.json"
ANALYTIC = ("ppt-rb-analytic", "ppt-analytic")


def shares(banks: int) -> dict[str, float]:
    """How often 010101 wins."""
    asked = Request(model="urn", utility="dyck", length=6, horizon=HORIZON, device="cpu")
    problem = pose([asked])[0]
    solved = PosteriorPrefixTuning(analytic=False, exact_means=True).optimise([problem])[0]
    kernel, lifted, means = solved.ascent.prompt, solved.lifted, solved.means
    near = propose(lifted.space, kernel, 6)
    prior = open_process("urn")
    stream, n = torch_stream(0, "snapping"), len(lifted.kernels)
    won = {"shipped bank": 0, "bootstraps of it": 0, "banks of the prior": 0}
    for number in range(banks):
        drawn = torch.randint(n, (n,), generator=stream)
        fresh = draw_analytic(prior, n, seed=number).kernels
        known = {
            "shipped bank": (lifted.kernels, means),
            "bootstraps of it": (lifted.kernels[drawn], means[drawn]),
            "banks of the prior": (
                fresh,
                utility_of_kernels(problem.expected, lifted.space, fresh, HORIZON),
            ),
        }
        for name, (kernels, values) in known.items():
            bank = Lifted(lifted.space, kernels, None)
            prompt, _ = choose(bank, kernel, near, values, "optimum-context")
            won[name] += prompt.tolist() == [0, 1] * 3
    return {name: count / banks for name, count in won.items()}


def ranks() -> dict[str, dict[str, float]]:
    """Mean rank of the analytic variants under the other rule, and as published."""
    cells = Cells(read_rows(RECORDS / "analytic-own-context.parquet"))
    found = {}
    for method in ANALYTIC:
        cell, theirs = (
            cells.by_key["urn", "dyck", 6, method],
            published()["urn", "dyck", 6, method, "rank"],
        )
        found[method] = {"ours": fmean(cell.values("rank")), "published": theirs.value}
    return found


def lines(record: dict[str, Any]) -> list[str]:
    said = [f"010101 wins: {share:.0%} on {name}" for name, share in record["shares"].items()]
    for method, one in record["own_context_ranks"].items():
        said.append(
            f"{method}, scored by its own last context: mean rank {one['ours']:.1f}, published "
            f"{one['published']:.1f}"
        )
    return said


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--banks", type=positive, default=500)
    given = parser.parse_args(arguments)
    record = {
        "banks": given.banks,
        "shares": shares(given.banks),
        "own_context_ranks": ranks(),
    }
    write_document(RECORD, record)
    print("\n".join(lines(record)))


if __name__ == "__main__":
    run(main)
