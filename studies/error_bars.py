"""Does J lie within two standard errors of what a search over classes reports?

    python studies/error_bars.py [--seeds 30] [--workers 2] [--latents 1000 5000] [--lengths 6 50]

Priors that no mixture of Dirichlets holds, and one that it does. Each search draws a bank of the
prior, chooses an estimator and a prompt by itself (`classes-analytic`), and says what it expects
there, on that bank and on one held out; truth is by quadrature. A cell is the share of searches, in
per cent, whose truth is within two of their standard errors: of the surrogate, of the held-out one,
and the estimators that were chosen. Utilities of one seed share a bank, so 30 seeds are not 90
searches: a cell of 95 % is known to some four points. The last lines are means over the priors that
are awkward.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context

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


def cell(found: list[Found]) -> str:
    """`95/93 conjugate 40 importance 50`: coverage of both, and what was chosen."""
    own, other = coverage(found)
    chosen = Counter(one.estimator for one in found)
    names = ", ".join(f"{name} {n}" for name, n in sorted(chosen.items()))
    return f"{100 * own:.0f} / {100 * other:.0f} ({names})"


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
        shares = (coverage(by_length[m]) for m in lengths)
        cells = " | ".join(f"{100 * own:.1f} / {100 * other:.1f}" for own, other in shares)
        lines.append(f"| awkward ones together | {n} | {cells} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--seeds", type=positive, default=30)
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--latents", type=positive, nargs="+", default=[1000, 5000])
    parser.add_argument("--lengths", type=positive, nargs="+", default=[6, 20, 50])
    parser.add_argument("--priors", choices=list(laws()), nargs="+", default=list(laws()))
    given = parser.parse_args(arguments)
    cases = [
        Case(prior, n, length, seed)
        for prior in given.priors
        for n in given.latents
        for length in given.lengths
        for seed in range(given.seeds)
    ]
    os.environ["OMP_NUM_THREADS"] = "1"
    with get_context("spawn").Pool(given.workers) as pool:
        solved = pool.map(search, cases, chunksize=1)
    print("\n".join(table([one for rows in solved for one in rows], given.lengths)))


if __name__ == "__main__":
    run(main)
