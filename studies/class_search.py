"""The class search against the optimum over all prompts, on the idealised models.

    python studies/class_search.py [--lengths 6 50] [--seeds 1] [--summary]
    python studies/class_search.py --method 'classes-analytic(limit=0)'    # climbing
    python studies/class_search.py --method 'ppt-rb-analytic(tilt=geometric)'
    python studies/class_search.py --method classes    # latents by rolling out

For each of the paper's 51 targets: J of the prompt that a method finds with its latents, the
optimum over all prompts, the gap between them, and the gap in standard errors of what the bank
says of the difference (the prompt found less the best one, over the same latents). A search that
leaves nothing out can only miss the optimum by the error of its bank: that column says whether so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median

import torch
from running import Options, positive, run
from tables import grouped, heading

from posteer.banks import LatentBank, draw_analytic, draw_bank
from posteer.core.errors import InputError
from posteer.evaluation import PromptLandscape, expected_utility, landscapes
from posteer.methods.answers import Answer
from posteer.methods.classes import ClassSearch
from posteer.methods.ppt.method import PosteriorPrefixTuning
from posteer.methods.protocol import Problem, Request, pose
from posteer.methods.registry import open_method
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.posterior import FoldedPrompts
from posteer.methods.scorers.protocol import BankScorer
from posteer.models import Metered, open_model
from posteer.paper.published import TARGETS, utility_of_target

HORIZON = 4


@dataclass(frozen=True)
class Outcome:
    """One target, length and seed."""

    model: str
    target: str
    length: int
    seed: int
    value: float
    optimum: float
    rank: int
    surrogate: float
    standard_error: float
    ess: float
    difference_error: float

    @property
    def gap(self) -> float:
        return self.optimum - self.value

    @property
    def gap_in_errors(self) -> float:
        """0 where the optimum itself was found."""
        if self.gap <= 1e-9:
            return 0.0
        return self.gap / self.difference_error if self.difference_error > 0 else math.inf


def outcomes_of(
    model_name: str, length: int, seeds: list[int], method: ClassSearch | PosteriorPrefixTuning
) -> list[Outcome]:
    """All targets of one model at one length."""
    model = open_model(f"exact:{model_name}")
    assert model.prior is not None
    shared = None
    if method.analytic:
        n = method.draw.n_samples
        banks = {seed: draw_analytic(model.prior, n, seed) for seed in seeds}
    else:
        shared = draw_bank(Metered(model), method.draw)
        banks = dict.fromkeys(seeds, shared)
    fits: dict[int, ConjugateFit] = {}
    targets = TARGETS[model_name]
    requests = [
        Request(
            model=model,
            utility=utility_of_target(target),
            length=length,
            horizon=HORIZON,
            seed=seed,
            bank=shared,
        )
        for target in targets
        for seed in seeds
    ]
    problems = pose(requests)
    goals = [problem.goal for problem in problems[:: len(seeds)]]
    fields = landscapes(model, goals, length, HORIZON)
    answers = method.solve(problems)
    outcomes = []
    for index, (problem, answer) in enumerate(zip(problems, answers, strict=True)):
        field = fields[index // len(seeds)]
        if field is None:
            raise InputError(f"length {length}: too many prompts to know the best of them")
        bank = banks[problem.seed]
        fit = fits.setdefault(id(bank), ConjugateFit(bank))
        target = targets[index // len(seeds)]
        outcomes.append(_judged(model_name, target, problem, answer, field, bank, fit))
    return outcomes


def _judged(
    name: str,
    target: str,
    problem: Problem,
    answer: Answer,
    field: PromptLandscape,
    bank: LatentBank,
    fit: ConjugateFit,
) -> Outcome:
    judged = expected_utility(problem.model.inner, problem.goal, answer.prompt[None], HORIZON)
    value = float(judged.expected_utility[0])
    pair = torch.stack([answer.prompt, field.best_prompt])
    counts, _, last = problem.markov.describe(pair)
    if answer.estimator is not None and answer.estimator.name == "conjugate":
        prompts = FoldedPrompts(problem.markov.ends, counts.double(), last)
        _, error = fit.difference(problem.expected, prompts, HORIZON)
    else:
        _, error = BankScorer.of(bank, problem).difference(counts, last)
    assert answer.surrogate is not None and answer.surrogate_standard_error is not None
    return Outcome(
        model=name,
        target=target,
        length=problem.length,
        seed=problem.seed,
        value=value,
        optimum=field.optimum,
        rank=field.rank(value),
        surrogate=answer.surrogate,
        standard_error=answer.surrogate_standard_error,
        ess=float("nan") if answer.ess_fraction is None else answer.ess_fraction * len(bank),
        difference_error=error,
    )


def table(outcomes: list[Outcome]) -> list[str]:
    """One row per target, figures averaged over seeds; the worst gap of them in errors."""
    lines = heading(
        "| model | m | target | J | optimum | gap | gap / s.e. of the difference | rank | ESS |"
    )
    cells = grouped(outcomes, lambda one: (one.model, one.length, one.target))
    for (model, length, target), own in cells.items():
        worst = max(one.gap_in_errors for one in own)
        lines.append(
            f"| {model} | {length} | {target} | {fmean(o.value for o in own):.4f} | "
            f"{own[0].optimum:.4f} | {fmean(o.gap for o in own):.4f} | {worst:.1f} | "
            f"{max(o.rank for o in own)} | {fmean(o.ess for o in own):.0f} |"
        )
    return lines


def summary(outcomes: list[Outcome]) -> list[str]:
    """One row per model and length."""
    lines = heading(
        "| model | m | runs | at the optimum | mean gap | largest gap | largest gap / s.e. | "
        "median ESS |"
    )
    for (model, length), own in grouped(outcomes, lambda one: (one.model, one.length)).items():
        gaps = [one.gap for one in own]
        reached = sum(one.rank == 1 for one in own)
        lines.append(
            f"| {model} | {length} | {len(own)} | {reached} | {fmean(gaps):.5f} | "
            f"{max(gaps):.4f} | {max(one.gap_in_errors for one in own):.1f} | "
            f"{median(one.ess for one in own):.0f} |"
        )
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--models", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--lengths", type=positive, nargs="+", default=[6, 50])
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--method", default="classes-analytic", help="one that works on latents")
    parser.add_argument("--summary", action="store_true", help="one row per model and length")
    given = parser.parse_args(arguments)
    method = open_method(given.method)
    if not isinstance(method, ClassSearch | PosteriorPrefixTuning):
        raise InputError(f"method {given.method}: expected one that works on latents")
    outcomes: list[Outcome] = []
    for model in given.models:
        for length in given.lengths:
            outcomes += outcomes_of(model, length, list(range(given.seeds)), method)
    print("\n".join(summary(outcomes)))
    if not given.summary:
        print("\n".join(["", *table(outcomes)]))


if __name__ == "__main__":
    run(main)
