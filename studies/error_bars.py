"""Does J lie within two standard errors of what a search over classes reports?

    python studies/error_bars.py [--seeds 30] [--workers 2] [--latents 1000 5000]
        [--lengths 6 20 50] [--keep found.jsonl]

Priors that no mixture of Dirichlets holds, and one that it does. Each search draws a bank of the
prior, chooses an estimator and a prompt by itself (`classes-analytic`), and says what it expects
there, on that bank and on one held out; truth is by quadrature. A cell is the share of searches, in
per cent, whose truth is within two of their standard errors: of the surrogate, of the held-out one,
and the estimators that were chosen. Utilities of one seed share a bank, so 30 seeds are not 120
searches: a share's standard error is that of a mean over banks, and a share that is outside 92 to
98 by more than two of these is in bold. The last lines are means over the priors that are awkward.
With `--keep` what is found is written down as it comes, and what is written there is not searched
again: a run goes on where it was, and one of no more seeds than are there prints the table.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
from awkward import Awkward, DrawnMixture, awkward_priors, dirichlet_rows
from running import Options, positive, run
from tables import grouped, heading

from posteer.goals.utilities import open_utility
from posteer.methods.protocol import Request, pose
from posteer.methods.registry import open_method
from posteer.models import ExactModel

UTILITIES = ("frequency(0.3)", "frequency(0.5)", "frequency(1.0)", "dyck")
HORIZON = 4
ROUNDING = 1e-9
"""Of an error that is exactly zero, as at a few atoms far apart."""
WANTED = (0.92, 0.98)


@dataclass(frozen=True)
class Case:
    """One bank, asked for the best prompts of a length under every utility."""

    prior: str
    n_latents: int
    length: int
    seed: int


@dataclass(frozen=True)
class Found:
    """What one search said, and the truth."""

    case: Case
    utility: str
    estimator: str
    truth: float
    value: float
    error: float
    held_out: float
    held_out_error: float

    @property
    def covers(self) -> tuple[bool, bool]:
        """Whether the truth is within two standard errors, on the bank and on the one held out."""
        return (
            abs(self.value - self.truth) <= 2 * self.error + ROUNDING,
            abs(self.held_out - self.truth) <= 2 * self.held_out_error + ROUNDING,
        )


def laws() -> dict[str, Awkward]:
    """The priors by name, the well-behaved one last."""
    return {law.name: law for law in [*awkward_priors(), dirichlet_rows()]}


def search(case: Case) -> list[Found]:
    """Every utility on one bank."""
    torch.set_num_threads(1)
    law = laws()[case.prior]
    model = ExactModel(DrawnMixture.of_law(law), case.prior)
    goals = [name for name in UTILITIES if open_utility(name, model).order <= law.order]
    method = f"classes-analytic(samples={case.n_latents})"
    problems = pose(
        [
            Request(model=model, utility=name, length=case.length, method=method, seed=case.seed)
            for name in goals
        ]
    )
    found = []
    for problem, answer in zip(problems, open_method(method).solve(problems), strict=True):
        assert answer.estimator is not None
        truth = law.expected_utility(problem.expected, answer.prompt[None], HORIZON)
        figures = (
            answer.surrogate,
            answer.surrogate_standard_error,
            answer.held_out_surrogate,
            answer.held_out_standard_error,
        )
        value, error, other, other_error = (float(f) if f is not None else -1.0 for f in figures)
        chosen = answer.estimator.name
        one = (case, problem.goal.name, chosen, float(truth), value, error, other, other_error)
        found.append(Found(*one))
    return found


def coverage(found: Iterable[Found]) -> tuple[float, float]:
    """The shares of searches that cover, on the bank and on the one held out."""
    covered = torch.tensor([one.covers for one in found], dtype=torch.float64).mean(0)
    return float(covered[0]), float(covered[1])


def spread(found: Iterable[Found]) -> tuple[float, float]:
    """Standard errors of these shares: what is found on one bank counts as one."""
    banks = grouped(found, lambda one: (one.case.prior, one.case.n_latents, one.case.seed))
    shares = torch.tensor([coverage(rows) for rows in banks.values()], dtype=torch.float64)
    if len(shares) < 2:
        return math.inf, math.inf
    own, other = (shares.std(0) / len(shares) ** 0.5).tolist()
    return own, other


def outside(share: float, error: float, n: int) -> bool:
    """Whether a share is outside what is wanted by more than two of its standard errors; one of
    `n` that are all alike has that of the nearest that is wanted."""
    nearest = min(max(share, WANTED[0]), WANTED[1])
    return abs(share - nearest) > 2 * max(error, (nearest * (1 - nearest) / n) ** 0.5)


def shown(found: list[Found], digits: int = 0) -> str:
    """`95 / **80**`: coverage of both, in bold where it is outside what is wanted beyond chance."""
    figures = []
    for share, error in zip(coverage(found), spread(found), strict=True):
        figure = f"{100 * share:.{digits}f}"
        figures.append(f"**{figure}**" if outside(share, error, len(found)) else figure)
    return " / ".join(figures)


def cell(found: list[Found]) -> str:
    """`95 / 93 (conjugate 40, importance 50)`: coverage of both, and what was chosen."""
    chosen = Counter(one.estimator for one in found)
    names = ", ".join(f"{name} {n}" for name, n in sorted(chosen.items()))
    return f"{shown(found)} ({names})"


def table(found: list[Found], lengths: list[int]) -> list[str]:
    """Coverage by prior and bank, a column for each length."""
    lines = heading("| prior | latents | " + " | ".join(f"m={m}" for m in lengths) + " |")
    for (prior, n), rows in grouped(
        found, lambda one: (one.case.prior, one.case.n_latents)
    ).items():
        by_length = grouped(rows, lambda one: one.case.length)
        cells = " | ".join(cell(by_length[m]) for m in lengths)
        lines.append(f"| {prior} | {n} | {cells} |")
    awkward = [one for one in found if one.case.prior != dirichlet_rows().name]
    for n, rows in grouped(awkward, lambda one: one.case.n_latents).items():
        by_length = grouped(rows, lambda one: one.case.length)
        cells = " | ".join(shown(by_length[m], 1) for m in lengths)
        lines.append(f"| awkward ones together | {n} | {cells} |")
    return lines


def read_found(path: Path) -> dict[Case, list[Found]]:
    """What an earlier run kept, by its case."""
    if not path.is_file():
        return {}
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    found = [Found(**{**one, "case": Case(**one["case"])}) for one in kept]
    return grouped(found, lambda one: one.case)


def search_all(cases: Sequence[Case], workers: int, keep: Path | None) -> dict[Case, list[Found]]:
    """All cases, those that are kept already read."""
    known = read_found(keep) if keep else {}
    left = [case for case in cases if case not in known]
    os.environ["OMP_NUM_THREADS"] = "1"
    with get_context("spawn").Pool(min(workers, max(1, len(left)))) as pool:
        for rows in pool.imap_unordered(search, left):
            known[rows[0].case] = rows
            if keep:
                with keep.open("a") as file:
                    file.writelines(json.dumps(asdict(one)) + "\n" for one in rows)
    return known


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--seeds", type=positive, default=30)
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--latents", type=positive, nargs="+", default=[1000, 5000])
    parser.add_argument("--lengths", type=positive, nargs="+", default=[6, 20, 50])
    parser.add_argument("--priors", choices=list(laws()), nargs="+", default=list(laws()))
    parser.add_argument("--keep", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    cases = [
        Case(prior, n, length, seed)
        for seed in range(given.seeds)  # first, so that what is cut short has some of each
        for prior in given.priors
        for n in given.latents
        for length in given.lengths
    ]
    known = search_all(cases, given.workers, given.keep)
    print("\n".join(table([one for case in cases for one in known[case]], given.lengths)))


if __name__ == "__main__":
    run(main)
