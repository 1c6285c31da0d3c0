"""Does asking that adapts find better prompts than asking about the first eight candidates?

    python studies/verifying.py [--models urn,ternary] [--questions 8]

On the shipped models of Markov kernels, at a length where all prompts can be tried. `shipped` asks
about the first candidates of the bank that ships with a model (5,000 rollouts of 2,000 tokens),
`small` about those of a small tuned bank (256 of 64), `adapting` begins with the
same small bank and lets every answer correct its surrogate. All may ask as many questions. A row is
a model: over its utilities, how often each is at rank 1, the median and the worst rank, how far J
is behind that of the best prompt (the mean prompt is behind by 1), and model tokens of a run.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, median
from typing import Any

from running import Options, positive, run
from tables import heading, row

import posteer
from posteer.banks import sample
from posteer.core.errors import require
from posteer.evaluation import landscape
from posteer.goals.utilities import open_goal

LENGTHS = {2: 10, 3: 6}
"""Of prompts, by the size of a vocabulary: about a thousand of them."""

BINARY = (
    "dyck",
    "frequency(0)",
    "frequency(0.5)",
    "reverse-xent(tau-0.2)",
    "reverse-xent(sym-0.2)",
    "reverse-xent(sym-0.8)",
)
WIDER = ("dyck", "frequency(0)", "frequency(0.5)", "frequency(1)")
MODELS = ("urn", "beta-bernoulli", "second-order", "ternary")
WAYS = ("shipped", "small", "adapting")
ROLLOUTS, TOKENS, HORIZON = 256, 64, 4
"""Of the bank that adapting begins with, and tokens of each."""


def cells_of(name: str, questions: int) -> list[dict[str, Any]]:
    """Each utility, asked both ways."""
    model = posteer.load(name)
    vocab = model.vocab_size
    length = LENGTHS[vocab]
    tuned = sample(model, rollouts=ROLLOUTS, length=TOKENS, tuned=True)
    unread = replace(tuned, read=None)  # nothing to correct a surrogate by
    found = []
    for utility in BINARY if vocab == 2 else WIDER:
        whole = landscape(model, open_goal(utility, model), length, HORIZON)
        assert whole is not None
        asked = {"length": length, "verify": questions, "rank": False}
        ways = {
            "shipped": posteer.elicit(model, utility, **asked),
            "small": posteer.elicit(model, utility, bank=unread, **asked),
            "adapting": posteer.elicit(model, utility, bank=tuned, **asked),
        }
        worst = whole.optimum - float(whole.values.mean())
        cell = {}
        for way, one in ways.items():
            assert one.verified is not None
            behind = (whole.optimum - one.expected_utility) / max(worst, 1e-12)
            cell[way] = whole.rank(one.expected_utility), behind, one.verified.tokens
        found.append(cell)
    return found


def main(arguments: list[str] | None = None) -> None:
    options = Options(__doc__)
    options.add_argument("--models", default=",".join(MODELS))
    options.add_argument("--questions", type=positive, default=8)
    asked = options.parse_args(arguments)
    names = asked.models.split(",")
    for name in names:
        known = name in MODELS
        require(known, f"model '{name}': expected some of {', '.join(MODELS)}")
    columns = ["rank 1", "median", "worst", "behind", "tokens"]
    names_of = [f"{way}: {one}" if one == "rank 1" else one for way in WAYS for one in columns]
    print("\n".join(heading(row("model", "cells", *names_of))), flush=True)
    for name in names:
        cells = cells_of(name, asked.questions)
        figures = [one for way in WAYS for one in _figures(cells, way)]
        print(row(name, len(cells), *figures), flush=True)


def _figures(cells: list[dict[str, Any]], which: str) -> list[str]:
    ranks, regrets, tokens = zip(*(cell[which] for cell in cells), strict=True)
    return [
        str(ranks.count(1)),
        f"{median(ranks):.0f}",
        str(max(ranks)),
        f"{fmean(regrets):.3f}",
        f"{median(tokens):.0f}",
    ]


if __name__ == "__main__":
    run(main)
