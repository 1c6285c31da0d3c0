"""Methods side by side on one problem, over seeds: what they find and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from posteer.api.eliciting import elicit_batch, takes_a_request
from posteer.core import Progress, require
from posteer.core.limits import MOST_SEED
from posteer.core.spec import within
from posteer.methods.protocol import Request
from posteer.methods.registry import open_method
from posteer.results import Comparison, MethodSummary

MOST_SEEDS = 10_000
"""Runs of each method."""


@takes_a_request("method", "seed", "save_bank")
def compare(
    model: Any,
    utility: Any,
    *,
    methods: Sequence[str] | Any,
    seeds: int | Any = 10,
    amortised_over: int | Any = 51,
    progress: Progress | None = None,
    **asked: Any,
) -> Comparison:
    """Run each method on the same seeds; a budget is the same for all of them.

    >>> found = compare("exact:urn", "dyck", length=4, methods=["exhaustive", "random"], seeds=1)
    >>> [summary.method for summary in found.methods]
    ['exhaustive', 'random']
    """
    named = isinstance(methods, Sequence) and not isinstance(methods, str) and len(methods) > 0
    require(named, "expected at least one method, as in `methods` ppt-rb,gcg")
    seeds = within(seeds, "seeds", 1, MOST_SEEDS)
    amortised_over = within(amortised_over, "a bank shared by", 1, MOST_SEED)
    for method in methods:
        open_method(method)  # a wrong name or setting is refused before anything runs
    first = Request(model=model, utility=utility, **asked)
    summaries = []
    for method in methods:
        runs = [replace(first, method=method, seed=seed) for seed in range(seeds)]
        summaries.append(MethodSummary(method, elicit_batch(runs, progress)))
    return Comparison(summaries, amortised_over)
