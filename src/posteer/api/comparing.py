"""Methods side by side on one problem, over seeds: what they find and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from posteer.api.eliciting import elicit_batch, takes_a_request
from posteer.core import Progress, require
from posteer.methods.protocol import Request
from posteer.methods.registry import open_method
from posteer.results import Comparison, MethodSummary


@takes_a_request("method", "seed", "save_bank")
def compare(
    model: Any,
    utility: Any,
    *,
    methods: Sequence[str],
    seeds: int = 10,
    amortised_over: int = 51,
    progress: Progress | None = None,
    **asked: Any,
) -> Comparison:
    """Run each method on the same seeds; a budget is the same for all of them.

    >>> found = compare("exact:urn", "dyck", length=4, methods=["exhaustive", "random"], seeds=1)
    >>> [summary.method for summary in found.methods]
    ['exhaustive', 'random']
    """
    require(len(methods) > 0, "expected at least one method, as in --methods ppt-rb,gcg")
    require(seeds >= 1, f"{seeds} seeds: expected at least 1")
    require(
        amortised_over >= 1, f"a bank shared by {amortised_over} utilities: expected at least 1"
    )
    for method in methods:
        open_method(method)  # a wrong name or setting is refused before anything runs
    first = Request(model=model, utility=utility, **asked)
    summaries = []
    for method in methods:
        runs = [replace(first, method=method, seed=seed) for seed in range(seeds)]
        summaries.append(MethodSummary(method, elicit_batch(runs, progress)))
    return Comparison(summaries, amortised_over)
