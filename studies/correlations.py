"""How well does a bank's surrogate order prompts, foretold by how far the model is from a filter?

    python studies/correlations.py [--models 36]

Small models of several kinds, filters and others, each with a bank as `posteer check` draws it. The
rank correlation of surrogate and J over all prompts of 7 tokens, the median over four utilities, is
regressed on the share of what prompts tell that the mixture explains, on two models of three; the
others test it. The line is `banks.checks.departure.FORETOLD`.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.banks import sample
from posteer.banks.checks.departure import check_departure
from posteer.evaluation import estimate_from_bank
from posteer.evaluation.values import expected_utility
from posteer.models import FunctionModel
from posteer.tokens.contexts import all_sequences

LENGTH, HORIZON = 7, 4
UTILITIES = ("dyck", "frequency(0)", "frequency(1)", "reverse-xent(sym-0.2)")
Predict = Callable[[Tensor], Tensor]


def of_logits(logit: Tensor) -> Tensor:
    return torch.stack([torch.zeros_like(logit), logit], 1).softmax(-1)


def copying(seed: int) -> Predict:
    """Recent tokens, and what followed the last two before, with random strengths."""
    generator = torch.Generator().manual_seed(seed)
    lean = torch.randn(8, dtype=torch.float64, generator=generator)
    strength = 2 * float(torch.rand(1, generator=generator))

    def predict(tokens: Tensor) -> Tensor:
        logit = torch.zeros(len(tokens), dtype=torch.float64)
        signs = 2 * tokens.double() - 1
        for lag in range(min(8, tokens.shape[1])):
            logit += 0.7**lag * signs[:, -1 - lag] * lean[lag]
        for place in range(2, tokens.shape[1]):
            same = (tokens[:, place - 2 : place] == tokens[:, -2:]).all(1)
            logit += strength * same * signs[:, place]
        return of_logits(logit)

    return predict


def filtering(seed: int) -> Predict:
    """Independent rows of order 0 to 2 with a Dirichlet prior, exactly filtered."""
    order, half = seed % 3, 0.2 + 0.3 * (seed % 4)

    def predict(tokens: Tensor) -> Tensor:
        counts = torch.full((len(tokens), 2), half, dtype=torch.float64)
        for place in range(order, tokens.shape[1]):
            ending = tokens[:, tokens.shape[1] - order :]
            same = (tokens[:, place - order : place] == ending).all(1)
            counts[torch.arange(len(tokens)), tokens[:, place]] += same.double()
        return counts / counts.sum(1, keepdim=True)

    return predict


def forgetting(seed: int) -> Predict:
    """A filter of rows of order 1 that sees the last few tokens, and leans at random besides."""
    generator = torch.Generator().manual_seed(seed)
    width = int(torch.randint(3, 12, (1,), generator=generator))
    lean = torch.randn(16, dtype=torch.float64, generator=generator) * (seed % 4) / 2
    inner = filtering(1 + 3 * seed)

    def predict(tokens: Tensor) -> Tensor:
        logit = inner(tokens[:, -width:]).log().diff(dim=1)[:, 0]
        last = torch.zeros(len(tokens), dtype=torch.long)
        for token in tokens[:, -4:].unbind(1):
            last = 2 * last + token
        return of_logits(logit + lean[last])

    return predict


KINDS = (copying, filtering, forgetting)


def measured(kind: Callable[[int], Predict], seed: int) -> tuple[float, float]:
    """The share explained, and the median rank correlation."""
    model = FunctionModel(kind(seed), vocab_size=2, order=1, name=f"{kind.__name__}-{seed}")
    bank = sample(model, rollouts=160, length=40, tuned=True, seed=seed)
    departure = check_departure(model, bank)
    assert departure is not None
    prompts = all_sequences(2, LENGTH)
    found = []
    for utility in UTILITIES:
        J = expected_utility(model, utility, prompts, HORIZON).expected_utility
        found.append(correlation(estimate_from_bank(bank, utility, prompts, HORIZON), J))
    return departure.explained_on_prompts, median(found)


def correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's."""
    ranks = [values.argsort().argsort().double() for values in (one, other)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def main(arguments: list[str] | None = None) -> None:
    options = Options(__doc__)
    options.add_argument("--models", type=positive, default=36)
    given = options.parse_args(arguments)
    rows = []
    print("\n".join(heading("| model | explained | correlation | learned on |")))
    for at in range(given.models):
        kind = KINDS[at % 3]
        share, rho = measured(kind, at // 3)
        learned = (at // 3) % 3 < 2
        rows.append((share, rho, learned))
        print(f"| {kind.__name__}-{at // 3} | {share:.3f} | {rho:.3f} | {learned} |", flush=True)
    table = torch.tensor([row[:2] for row in rows], dtype=torch.float64)
    known = torch.tensor([row[2] for row in rows])
    x = table[:, 0].clamp(min=0).sqrt()
    design = torch.stack([torch.ones_like(x), x], 1)
    line = torch.linalg.lstsq(design[known], table[known, 1:]).solution[:, 0]
    off = table[:, 1] - design @ line
    print(f"correlation ~ {line[0]:.3f} + {line[1]:.3f} sqrt(explained)")
    for name, rows_of in (("learned", known), ("held out", ~known)):
        spread = float(off[rows_of].square().mean().sqrt())
        print(f"{name}: {int(rows_of.sum())} models, off by {spread:.3f} (root mean square)")


if __name__ == "__main__":
    run(main)
