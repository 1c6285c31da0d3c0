"""Methods side by side on one problem, over seeds: what they find and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from posteer.api.elicit import Allowed, elicit_many
from posteer.core.errors import require
from posteer.core.progress import Progress
from posteer.methods.registry import open_method
from posteer.results import Comparison, MethodSummary


def compare(
    model: str,
    utility: str,
    *,
    length: int,
    methods: Sequence[str],
    horizon: int = 4,
    seeds: int = 10,
    context: str | Sequence[int] = (),
    allowed: Allowed = None,
    max_model_tokens: int | None = None,
    amortised_over: int = 51,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Comparison:
    """Run each method on the same seeds; a budget is the same for all of them."""
    require(len(methods) > 0, "expected at least one method, as in --methods ppt-rb,gcg")
    require(seeds >= 1, f"{seeds} seeds: expected at least 1")
    require(
        amortised_over >= 1, f"a bank shared by {amortised_over} utilities: expected at least 1"
    )
    for method in methods:
        open_method(method)  # a wrong name or setting is refused before anything runs
    summaries = [
        MethodSummary(
            method,
            elicit_many(
                model,
                [utility],
                length=length,
                horizon=horizon,
                method=method,
                seeds=range(seeds),
                context=context,
                allowed=allowed,
                max_model_tokens=max_model_tokens,
                device=device,
                progress=progress,
            ),
        )
        for method in methods
    ]
    return Comparison(summaries, amortised_over)
