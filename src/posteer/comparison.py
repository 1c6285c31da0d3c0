"""Methods side by side on one problem, over seeds: what they find and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from posteer.elicitation import Allowed, Elicitation, elicit_many, open_method
from posteer.errors import require
from posteer.problem import Progress


@dataclass(frozen=True)
class MethodSummary:
    """One method over all seeds. Tokens are forward and backward together, per run."""

    method: str
    runs: list[Elicitation]

    @property
    def values(self) -> list[float]:
        return [run.expected_utility for run in self.runs]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def standard_error(self) -> float:
        n = len(self.values)
        return stdev(self.values) / math.sqrt(n) if n > 1 else math.nan

    @property
    def best(self) -> Elicitation:
        return max(self.runs, key=lambda run: run.expected_utility)

    @property
    def mean_rank(self) -> float | None:
        ranks = [run.rank for run in self.runs if run.rank is not None]
        return fmean(ranks) if len(ranks) == len(self.runs) else None

    @property
    def tokens(self) -> float:
        return fmean(_spent(run) for run in self.runs)

    @property
    def bank_tokens(self) -> int:
        return max(run.cost["bank_tokens"] for run in self.runs)

    @property
    def seconds(self) -> float:
        return fmean(run.seconds for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "mean": self.mean,
            "standard_error": self.standard_error,
            "best": self.best.expected_utility,
            "best_prompt": self.best.prompt,
            "mean_rank": self.mean_rank,
            "model_tokens": self.tokens,
            "bank_tokens": self.bank_tokens,
            "seconds": self.seconds,
            "runs": [run.to_json() for run in self.runs],
        }


@dataclass(frozen=True)
class Comparison:
    """All methods on one problem. A bank's cost is shared by `amortised_over` utilities."""

    methods: list[MethodSummary]
    amortised_over: int

    @property
    def optimum(self) -> float | None:
        return self.methods[0].runs[0].optimum

    def break_even(self) -> dict[str, dict[str, int]]:
        """For each method with a bank and each that asks the model directly: after how many
        utilities, one run each, the bank has cost less."""
        direct = [m for m in self.methods if m.bank_tokens == 0 and m.tokens > 0]
        return {
            banked.method: {
                other.method: math.ceil(banked.bank_tokens / (other.tokens - banked.tokens))
                for other in direct
                if other.tokens > banked.tokens
            }
            for banked in self.methods
            if banked.bank_tokens > 0
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "methods": [summary.to_json() for summary in self.methods],
            "optimum": self.optimum,
            "amortised_over": self.amortised_over,
            "break_even": self.break_even(),
        }


def _spent(run: Elicitation) -> int:
    return run.cost["forward_tokens"] + run.cost["backward_tokens"]


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


def trajectory(run: Elicitation, amortised_over: int) -> tuple[list[float], list[float]]:
    """Model tokens spent against the best value so far, a bank's share before the first step."""
    start = run.cost["bank_tokens"] / amortised_over
    steps = [step for step in run.history if math.isfinite(step.value)]
    if run.surrogate is not None or len(steps) < 2:  # one answer at the end
        return [start + _spent(run)], [run.expected_utility]
    tokens = [start + step.forward_tokens + step.backward_tokens for step in steps]
    return tokens, [step.value for step in steps]
