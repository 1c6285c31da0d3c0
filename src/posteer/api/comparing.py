"""Methods side by side on one problem, over seeds: what they find and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from posteer.api.eliciting import elicit_batch, takes_a_request
from posteer.core import InputError, require
from posteer.core.device import pick_device
from posteer.core.limits import COMPARED, MOST_SEED
from posteer.core.showing import Watch, watched
from posteer.core.spec import within
from posteer.methods.needs import fitting, unmet
from posteer.methods.protocol import Request, pose
from posteer.methods.registry import open_method
from posteer.models.registry import open_model
from posteer.results import Comparison, MethodSummary

MOST_SEEDS = 10_000
"""Runs of each method."""


@takes_a_request("method", "seed", "save_bank")
@watched
def compare(
    model: Any,
    utility: Any,
    *,
    methods: Sequence[str] | Any = COMPARED,
    seeds: int | Any = 10,
    amortised_over: int | Any = 51,
    progress: Watch = None,
    **asked: Any,
) -> Comparison:
    """Methods side by side on the same seeds: what they find and what they cost.

    Methods that need what the model or the goal has not are left out, and said to be; a `bank` is
    for those that use one.

    >>> found = compare("exact:urn", "dyck", length=4, methods=["exhaustive", "random"], seeds=1)
    >>> [summary.method for summary in found.methods]
    ['exhaustive', 'random']

    Args:
        methods: a list of names, settings in brackets.
        seeds: how many runs each method gets.
        amortised_over: how many utilities share the cost of a bank in tables and figures.
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
    """
    named = isinstance(methods, Sequence) and not isinstance(methods, str) and len(methods) > 0
    require(named, "expected at least one method, as in `methods` ppt-rb,gcg")
    seeds = within(seeds, "seeds", 1, MOST_SEEDS)
    amortised_over = within(amortised_over, "a bank shared by", 1, MOST_SEED)
    for method in methods:
        open_method(method)  # a wrong name or setting is refused before anything runs
    first = opened_once(Request(model=model, utility=utility, **asked))
    summaries, refused = [], {}
    for method in methods:
        needs = open_method(method).needs
        own = replace(first, method=method, bank=first.bank if needs.bank else None)
        problem = pose([own])[0]
        lacking = unmet(needs, problem)
        if lacking is not None:
            refused[method] = lacking.problem
            continue
        runs = [replace(own, seed=seed) for seed in range(seeds)]
        summaries.append(MethodSummary(method, elicit_batch(runs, progress)))
    if not summaries:
        told = "; ".join(f"{method}: {why}" for method, why in refused.items())
        raise InputError(f"no method can be compared: {told}: use {', '.join(fitting(problem))}")
    return Comparison(summaries, amortised_over, refused)


def opened_once(request: Request) -> Request:
    """The request with its model opened: none of the methods has to open it again."""
    words = {"alphabet": request.alphabet, "text": request.text}
    opened = open_model(request.model, pick_device(request.device), **words)
    return replace(request, model=opened, alphabet=None, text="")
