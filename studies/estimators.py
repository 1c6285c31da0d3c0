"""How far each estimator of hard prompts is from exact J, past where plain weights survive.

    python studies/estimators.py [--prompts 5] [--latents 5000] [--seed 0]
    python studies/estimators.py --model ternary second-order [--length 50]

Exact models with Dirichlet(1/2) rows, one analytic bank each, or trained models with their shipped
banks; prompts that walk kernels drawn from the prior. Each cell is the mean of |estimate - J| over
the prompts and the mean standard error the estimator gave itself; `spread` is the standard
deviation of J over the prompts. k-hat and ESS are medians, of the plain weights. The last line says
how many seconds each estimator took in all, fitting included.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.banks import LatentBank, draw_analytic
from posteer.banks.shipped import shipped_bank
from posteer.core import Float, InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.markov.dirichlet import DirichletRows
from posteer.goals.objectives import ExpectedUtility
from posteer.goals.protocol import Utility
from posteer.goals.utilities import open_utility
from posteer.methods.scorers.choice import Estimators
from posteer.methods.scorers.posterior import scores_of_prompts
from posteer.models import ExactModel, Model, load
from posteer.models.continuations import continuation_laws
from posteer.tokens.contexts import ContextSpace

SETTINGS = (
    (3, 1, 8, 50),
    (4, 1, 6, 100),
    (2, 2, 8, 100),
    (2, 3, 6, 200),
    (8, 1, 4, 100),
    (2, 1, 20, 200),
)
"""Vocabulary, order, horizon, length."""

ESTIMATORS = ("importance", "psis", "conjugate", "smc")
UTILITIES = ("dyck", "frequency(0.3)", "reverse-xent(dir-4)")


def exact_values(
    model: Model, utilities: list[Utility], prompts: Tensor, horizon: int
) -> Float[Tensor, "U K"]:
    """J by enumeration at any horizon, a prompt at a time: 2**20 continuations still fit."""
    vocab = model.vocab_size
    objectives = [ExpectedUtility(utility, vocab, horizon) for utility in utilities]
    columns = []
    for prompt in prompts:
        law = continuation_laws(model, prompt[None], horizon)
        values = [
            objective.of_laws(law, ContextSpace(vocab, objective.order).suffix(prompt[None]))
            for objective in objectives
        ]
        columns.append(torch.cat(values))
    return torch.stack(columns, 1)


@dataclass(frozen=True, eq=False)
class Case:
    """A model, its bank, and what is asked of both."""

    model: Model
    bank: LatentBank
    horizon: int
    length: int


def exact_cases(n_latents: int, seed: int) -> Iterator[Case]:
    """Exact Bayes with Dirichlet(1/2) rows, one analytic bank each."""
    for vocab, order, horizon, length in SETTINGS:
        process = DirichletRows.symmetric(vocab, order, 0.5)
        bank = draw_analytic(process, n_latents, seed)
        yield Case(ExactModel(process), bank, horizon, length)


def trained_case(name: str, horizon: int, length: int, device: str = "cpu") -> Case:
    """A shipped model and the bank of its own rollouts."""
    model = load(name, device)
    bank = shipped_bank(model.fingerprint)
    if bank is None:
        raise InputError(f"{name} has no bank in the package")
    return Case(model, bank, horizon, length)


def rows(cases: Iterable[Case], n_prompts: int, seed: int) -> Iterator[str]:
    yield from heading(
        "| V | order | N | m | utility | spread | k-hat | ESS | plain | PSIS | conjugate | SMC |"
    )
    seconds: dict[str, float] = defaultdict(float)
    for case in cases:
        model, bank, space = case.model, case.bank, case.bank.space
        streams = numpy_stream(seed, "estimator-prompts"), torch_stream(seed, "estimator-prompts")
        assert model.prior is not None
        prompts = model.prior.sample(n_prompts, streams[0]).roll_out(case.length, streams[1])
        utilities = [open_utility(name, model) for name in UTILITIES]
        truth = exact_values(model, utilities, prompts, case.horizon)
        known = Estimators(bank)
        estimators = [known.named(name) for name in ESTIMATORS]
        for utility, exact in zip(utilities, truth, strict=True):
            cells = []
            for estimator in estimators:
                started = time.perf_counter()
                found = scores_of_prompts(estimator, utility, prompts, case.horizon)
                seconds[estimator.name] += time.perf_counter() - started
                missed = float((found.value - exact).abs().mean())
                cells.append(f"{missed:.2g} ({float(found.standard_error.mean()):.2g})")
                if estimator.name == "importance":
                    shape, ess = found.pareto_k.median(), found.ess_fraction.median() * len(bank)
            yield (
                f"| {space.vocab_size} | {space.order} | {case.horizon} | {case.length} "
                f"| {utility.name} | {float(exact.std()):.2g} | {float(shape):.1f} "
                f"| {float(ess):.0f} | " + " | ".join(cells) + " |"
            )
    taken = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    yield f"\nSeconds for all scores: {taken}"


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--model", nargs="+", help="trained models, with their shipped banks")
    parser.add_argument("--length", type=positive, default=50, help="of prompts for trained models")
    parser.add_argument("--horizon", type=positive, default=4, help="for trained models")
    parser.add_argument("--prompts", type=positive, default=5)
    parser.add_argument("--latents", type=positive, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    cases = exact_cases(given.latents, given.seed)
    if given.model:
        cases = (trained_case(name, given.horizon, given.length) for name in given.model)
    for line in rows(cases, given.prompts, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    run(main)
