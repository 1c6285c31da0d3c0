"""Prompts found past the binary setting, against coordinate ascent that is told the exact J.

    python studies/past_binary.py [--restarts 20] [--seed 0]
    python studies/past_binary.py --model ternary --length 50 --horizon 4

Exact models with Dirichlet(1/2) rows and random targets: `auto` on an analytic bank, without asking
the model, beside the best single substitution from so many random prompts until none helps, on J
itself. J is summed over classes of continuations; of the prompt found it is computed a second time,
by walking the tree of all continuations. With `--model` the same on a trained model, whose J only
the model knows: `auto` with `--verify 8`, and both report the model tokens they spent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from estimators import SETTINGS, exact_values
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.api.eliciting import elicit, elicit_batch
from posteer.core.device import pick_device
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Int
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.families.markov.urns import UrnMeans
from posteer.methods.climbing.climb import climb
from posteer.methods.direct.coordinate import single_substitutions
from posteer.methods.protocol import Problem, Request, pose
from posteer.methods.scorers.protocol import HardScores
from posteer.models import ExactModel, open_model

CONCENTRATION = 0.5


@dataclass(frozen=True, eq=False)
class ExactScorer:
    """J of exact Bayes with Dirichlet rows."""

    prior: DirichletRows
    means: UrnMeans

    @classmethod
    def of(cls, model: ExactModel, problem: Problem) -> ExactScorer:
        assert isinstance(model.prior, DirichletRows)
        return cls(model.prior, UrnMeans(problem.expected, problem.space, problem.horizon))

    def __call__(
        self, counts: Int[Tensor, "K C V"], first: Int[Tensor, "K"], last: Int[Tensor, "K"]
    ) -> HardScores:
        urns = self.prior.concentration + counts
        value = self.means(urns[:, None], last)[:, 0]
        return HardScores.of(value, torch.zeros_like(value), torch.ones_like(value))


def utilities_of(vocab: int, order: int, seed: int) -> list[str]:
    """Balanced brackets, a random frequency and a random kernel."""
    stream = numpy_stream(seed, "past-binary", vocab, order)
    frequency = round(float(stream.uniform(0.05, 0.95)), 2)
    return ["dyck", f"frequency({frequency})", f"reverse-xent(dir-{stream.integers(100)})"]


@dataclass(frozen=True)
class Substitutions:
    """One token of a prompt changed to another."""

    length: int
    vocab: int

    @property
    def size(self) -> int:
        return self.length * (self.vocab - 1)

    def __call__(
        self, rows: Int[Tensor, "K m"], moves: Int[Tensor, "n"]
    ) -> tuple[Int[Tensor, "N m"], Int[Tensor, "N"]]:
        found = [single_substitutions(row, self.vocab)[moves] for row in rows]
        return torch.cat(found), torch.arange(len(rows)).repeat_interleave(len(moves))


def coordinate_ascent(
    problem: ClassProblem, scorer: ExactScorer, restarts: int, seed: int
) -> tuple[float, int]:
    """The best value from random prompts by single substitutions, and the classes it scored."""
    vocab = problem.space.vocab_size
    generator = torch_stream(seed, "past-binary-starts")
    starts = torch.randint(vocab, (restarts, problem.length), generator=generator)

    near = Substitutions(problem.length, vocab)
    unused = numpy_stream(seed, "past-binary-shares")  # all substitutions are one share
    found = climb(
        near, problem.describe, scorer, None, starts, unused, 1, max_rounds=10**6, share=near.size
    )
    return float(found.values[0]), found.n_scored


def exact_rows(restarts: int, seed: int) -> Iterator[str]:
    """A row per setting and utility."""
    yield from heading(
        "| V | order | N | m | utility | J of auto's prompt | its estimate | coordinate ascent "
        "| ahead by | method | seconds | coordinate: seconds, classes |"
    )
    for vocab, order, horizon, length in SETTINGS:
        model = ExactModel(DirichletRows.symmetric(vocab, order, CONCENTRATION))
        for name in utilities_of(vocab, order, seed):
            asked = Request(model=model, utility=name, length=length, horizon=horizon, seed=seed)
            (found,), (problem,) = elicit_batch([asked]), pose([asked])
            chosen = found.answer.estimator
            value = _by_both(model, problem, torch.tensor(found.prompt)[None])
            started = time.perf_counter()
            scorer = ExactScorer.of(model, problem)
            other, n_scored = coordinate_ascent(problem.markov, scorer, restarts, seed)
            seconds = time.perf_counter() - started
            yield (
                f"| {vocab} | {order} | {horizon} | {length} | {name} | {value:.5f} "
                f"| {found.surrogate:.4f} ± {found.surrogate_standard_error:.4f} | {other:.5f} "
                f"| {value - other:+.5f} | {'' if chosen is None else chosen.name}, "
                f"{found.stop_reason} | {found.seconds:.1f} | {seconds:.0f} s, {n_scored:,} |"
            )


def _by_both(model: ExactModel, problem: Problem, prompt: Int[Tensor, "1 m"]) -> float:
    """J of a prompt by classes of continuations, having checked it against the whole tree."""
    described = problem.markov.describe(prompt)
    value = ExactScorer.of(model, problem)(*described).value
    tree = exact_values(model, [problem.expected], prompt, problem.horizon)[0]
    if not torch.allclose(value, tree, atol=1e-9, rtol=0):
        raise AssertionError(f"{float(value)} by classes, {float(tree)} by the tree")
    return float(value)


def trained_rows(name: str, length: int, horizon: int, restarts: int, seed: int) -> Iterator[str]:
    """A row per utility, on the model itself."""
    yield from heading(
        "| model | N | m | utility | J of auto's prompt | its estimate | coordinate ascent "
        "| ahead by | model tokens | coordinate's | ratio |"
    )
    model = open_model(name, pick_device("auto"))
    rival = f"coordinate(restarts={restarts})"
    for utility in utilities_of(model.vocab_size, model.order, seed):
        found = elicit(model, utility, length=length, horizon=horizon, seed=seed, verify=8)
        other = elicit(model, utility, length=length, horizon=horizon, seed=seed, method=rival)
        spent, theirs = found.cost["forward_tokens"], other.cost["forward_tokens"]
        yield (
            f"| {name} | {horizon} | {length} | {utility} | {found.expected_utility:.5f} "
            f"| {found.surrogate:.4f} ± {found.surrogate_standard_error:.4f} "
            f"| {other.expected_utility:.5f} "
            f"| {found.expected_utility - other.expected_utility:+.5f} | {spent:,} | {theirs:,} "
            f"| {spent / theirs:.2e} |"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--model", help="a trained model")
    parser.add_argument("--length", type=positive, default=50)
    parser.add_argument("--horizon", type=positive, default=4)
    parser.add_argument("--restarts", type=positive, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    lines = exact_rows(given.restarts, given.seed)
    if given.model is not None:
        lines = trained_rows(given.model, given.length, given.horizon, given.restarts, given.seed)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    run(main)
