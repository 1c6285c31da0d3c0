"""Class search on a CPU and on a GPU, the same searches in one run: prompts, estimates, seconds.

    python benchmarks/scorers.py

Each search is made once before it is timed. Banks are drawn and fits are made on the CPU either
way, and particles are moved there: what a GPU takes over is the scoring of classes and, where they
are too many to score them all, the ascents that a climb starts from.
"""

from __future__ import annotations

import time

import torch
from training import require_gpu

from posteer import Elicitation, elicit

SEARCHES = [
    *(
        ("exact:urn", "dyck", 50, f"classes-analytic(estimator={name})")
        for name in ("importance", "psis", "conjugate", "smc")
    ),
    ("exact:urn", "reverse-xent(sym-0.1)", 100, "classes-analytic(estimator=importance)"),
    (
        "exact:markov(vocab=3,order=1)",
        "frequency(0.5)",
        30,
        "classes-analytic(estimator=importance,samples=2000)",
    ),
    (
        "exact:markov(vocab=2,order=2)",
        "dyck",
        30,
        "classes-analytic(estimator=conjugate,samples=2000)",
    ),
]


def timed(
    model: str, utility: str, length: int, method: str, device: str
) -> tuple[Elicitation, float]:
    started = time.perf_counter()
    found = elicit(model, utility, length=length, method=method, device=device, rank=False)
    torch.cuda.synchronize()
    return found, time.perf_counter() - started


def main() -> None:
    require_gpu()
    print(
        "| model | utility, length | method | CPU s | GPU s | ratio | the same prompt, J off by |"
    )
    print("|---|---|---|---|---|---|---|")
    for search in SEARCHES:
        timed(*search, "cuda"), timed(*search, "cpu")
        (there, quick), (here, slow) = timed(*search, "cuda"), timed(*search, "cpu")
        assert here.surrogate is not None and there.surrogate is not None
        model, utility, length, method = search
        same = "yes" if here.prompt == there.prompt else "no"
        print(
            f"| {model} | {utility}, {length} | {method} | {slow:.2f} | {quick:.2f} | "
            f"{slow / quick:.1f} | {same}, {abs(here.surrogate - there.surrogate):.0e} |"
        )


if __name__ == "__main__":
    main()
