"""What the class search finds where classes are too many to try, and what it misses.

    python studies/class_climb.py banks     # against the same climb on exact J
    python studies/class_climb.py optima    # against all classes, where they are few

`banks`: past the binary setting a bank holds few latents that matter; J of the prompt it chooses,
as is and with `z` standard deviations of the utility over the root of the effective sample size
taken off each estimate, beside the prompt that climbing on the exact J of the same model finds.
`optima`: how often climbing from repetitive and random prompts, without an ascent, ends at the best
of all classes for the same bank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from past_binary import ExactScorer
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.banks import draw_analytic
from posteer.core.shapes import Int
from posteer.evaluation import expected_utility
from posteer.methods.climbing.search import SearchSettings, search_classes
from posteer.methods.protocol import Problem, Request, pose
from posteer.methods.scorers.protocol import BankScorer, HardScores
from posteer.models import ExactModel

HORIZON = 4
PAST_BINARY = [("vocab=2,order=2", 50), ("vocab=3,order=1", 50), ("vocab=4,order=1", 30)]
ENUMERABLE = [
    ("vocab=2,order=2", 20),
    ("vocab=3,order=1", 11),
    ("vocab=2,order=3", 13),
    ("vocab=3,order=0", 50),
    ("vocab=4,order=0", 30),
]
UTILITIES = ["dyck", "frequency(0.3)", "frequency(0.6)"]
UTILITIES += [f"reverse-xent(sym-{r})" for r in (0.2, 0.8)]
CAUTIONS = (0.0, 0.5, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class CautiousScorer:
    """A bank's estimate less what so few latents could make of any utility."""

    bank: BankScorer
    caution: float

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        scores = self.bank(counts, first, last)
        ess = scores.ess_fraction * len(self.bank.kernels)
        doubt = self.caution * self.bank.means.std() / ess.sqrt()
        return replace(scores, value=scores.value - doubt)


def _asked(process: str, utility: str, length: int) -> tuple[ExactModel, Problem]:
    model = f"exact:markov({process})"
    asked = Request(model=model, utility=utility, length=length, horizon=HORIZON)
    problem = pose([asked])[0]
    assert isinstance(problem.model.inner, ExactModel)
    return problem.model.inner, problem


def banks(samples: int, restarts: int) -> list[str]:
    """One row per model and utility."""
    settings = SearchSettings(limit=0, restarts=restarts, keep=1)
    lines = heading(
        "| model | m | utility | "
        + " | ".join(f"J, z={z:g} (ESS)" for z in CAUTIONS)
        + " | climb on exact J |"
    )
    for process, length in PAST_BINARY:
        for utility in ("dyck", "frequency(0.3)", "reverse-xent(sym-0.2)"):
            model, problem = _asked(process, utility, length)
            scorer = BankScorer.of(draw_analytic(model.prior, samples, 0), problem)
            cells = []
            for caution in CAUTIONS:
                cautious = CautiousScorer(scorer, caution)
                found = search_classes(problem.markov, cautious, settings)
                judged = expected_utility(model, problem.goal, found.prompts[:1], HORIZON)
                ess = float(found.scores.ess_fraction[0]) * samples
                cells.append(f"{float(judged.expected_utility[0]):.4f} ({ess:.0f})")
            best = search_classes(problem.markov, ExactScorer.of(model, problem), settings)
            cells.append(f"{float(best.scores.value[0]):.4f}")
            lines.append(f"| {process} | {length} | {utility} | {' | '.join(cells)} |")
    return lines


def optima(samples: int, restarts: int, seeds: int) -> list[str]:
    """One row per model."""
    lines = heading("| model | m | classes | trials | at the optimum | misses |")
    for process, length in ENUMERABLE:
        trials, misses, sizes = 0, [], set()
        for utility in UTILITIES:
            model, problem = _asked(process, utility, length)
            scorer = BankScorer.of(draw_analytic(model.prior, samples, 0), problem)
            best = search_classes(problem.markov, scorer, SearchSettings(limit=400_000, keep=1))
            assert best.scope is not None
            sizes.add(best.n_scored)
            for seed in range(seeds):
                settings = SearchSettings(limit=0, restarts=restarts, keep=1)
                found = search_classes(problem.markov, scorer, settings, seed)
                gap = float(best.scores.value[0] - found.scores.value[0])
                trials += 1
                misses += [f"{utility} by {gap:.4f}"] if gap > 1e-9 else []
        size = " or ".join(f"{n:,}" for n in sorted(sizes))
        reached = trials - len(misses)
        lines.append(
            f"| {process} | {length} | {size} | {trials} | {reached} | {'; '.join(misses)} |"
        )
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("what", choices=["banks", "optima"])
    parser.add_argument("--samples", type=positive, help="latents: 3000 for banks, 300 for optima")
    parser.add_argument("--restarts", type=positive, default=8)
    parser.add_argument("--seeds", type=positive, default=5, help="of optima")
    given = parser.parse_args(arguments)
    if given.what == "banks":
        print("\n".join(banks(given.samples or 3000, given.restarts)))
    else:
        print("\n".join(optima(given.samples or 300, given.restarts, given.seeds)))


if __name__ == "__main__":
    run(main)
