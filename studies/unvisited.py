"""Which treatment of unvisited rows is best: banks of the exact urn against exact answers.

    python studies/unvisited.py [--banks 16]

For each rollout length and treatment: the error of the bank's estimate of J over hard prompts (all
64 of length 6 and 200 of length 50, four utilities), in units of the spread of J over them.
`error` is of one bank of 5,000, root mean square; `bias` is what is left when banks are averaged.
ESS/L is that of the all-zero prompt of length 6, exactly 0.3438 under the prior.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.banks import DrawPlan, draw_analytic, draw_bank
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.weights import ess_fraction
from posteer.evaluation import expected_utility
from posteer.families.markov.family import MarkovLatents, markov_space
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.unvisited import TREATMENTS, filled
from posteer.goals.utilities import open_utility
from posteer.models import Metered, Model, open_model
from posteer.tokens.contexts import all_sequences, count_transitions

UTILITIES = ("dyck", "frequency(0.3)", "reverse-xent(sym-0.1)", "reverse-xent(dir-4)")
HORIZON = 4


class Judge:
    """Exact answers on the urn, and how far kernels miss them."""

    def __init__(self, model: Model) -> None:
        self.space = markov_space(model.family, model.name)
        self.utilities = [open_utility(name, model) for name in UTILITIES]
        generator = torch_stream(0, "unvisited-experiment")
        bias = torch.rand(200, 1, generator=generator)
        long = (torch.rand(200, 50, generator=generator) < bias).long()
        self.prompts = [all_sequences(2, 6), long]
        self.answers = [
            [
                expected_utility(model, utility, prompts, HORIZON).expected_utility
                for utility in self.utilities
            ]
            for prompts in self.prompts
        ]

    def misses(self, kernels: Tensor) -> Tensor:
        """Estimate less truth for each prompt and utility, scaled."""
        parts = []
        for prompts, answers in zip(self.prompts, self.answers, strict=True):
            weights = log_likelihood(count_transitions(self.space, prompts), kernels).softmax(-1)
            last = self.space.suffix(prompts)
            for utility, truth in zip(self.utilities, answers, strict=True):
                means = utility_of_kernels(utility, self.space, kernels, HORIZON)
                value = (weights.nan_to_num(0.0) * means.T[last]).sum(-1)
                parts.append((value - truth) / truth.std())
        return torch.cat(parts)

    def ess_of_zeros(self, kernels: Tensor) -> float:
        zeros = torch.zeros(1, 6, dtype=torch.long)
        return float(ess_fraction(MarkovLatents(self.space, kernels).log_likelihood(zeros))[0])


def rows(n_banks: int, n_samples: int = 5000) -> Iterator[str]:
    model = open_model("exact:urn")
    judge = Judge(model)
    assert model.prior is not None

    def law_after(tokens: Tensor) -> Tensor:
        return model.log_predictive(tokens[None])[0, -1].exp()

    def kernels_of(counts: Tensor, treatment: str, seed: int) -> Tensor:
        return filled(judge.space, counts, treatment, numpy_stream(seed, "unvisited"), law_after)

    def row(length: str, name: str, banks: list[Tensor]) -> str:
        misses = torch.stack([judge.misses(kernels) for kernels in banks])
        error = float(misses.square().mean().sqrt())
        bias = float(misses.mean(0).square().mean().sqrt())
        ess = sum(judge.ess_of_zeros(kernels) for kernels in banks) / len(banks)
        return f"| {length} | {name} | {error:.4f} | {bias:.4f} | {ess:.4f} |"

    yield from heading("| R | treatment | error | bias | ESS/L of zeros |")
    for length in (50, 200, 2000):
        plans = [
            DrawPlan(n_samples=n_samples, rollout_length=length, seed=seed)
            for seed in range(n_banks)
        ]
        counts = [draw_bank(Metered(model), plan).counts for plan in plans]
        for treatment in TREATMENTS:
            kernels = [
                kernels_of(table, treatment, seed)
                for seed, table in enumerate(counts)
                if table is not None
            ]
            yield row(str(length), treatment, kernels)
        empty = [
            table.double() / table.sum(-1, keepdim=True).clamp(min=1)
            for table in counts
            if table is not None
        ]
        yield row(str(length), "left empty", empty)
    drawn = [draw_analytic(model.prior, n_samples, seed).kernels for seed in range(n_banks)]
    yield row("", "drawn from the prior", drawn)


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--banks", type=positive, default=16)
    for line in rows(parser.parse_args(arguments).banks):
        print(line, flush=True)


if __name__ == "__main__":
    run(main)
