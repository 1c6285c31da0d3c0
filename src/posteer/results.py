"""Records: what was asked, what was found, how good it is; and their JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from posteer.methods.answers import Step


@dataclass(frozen=True, kw_only=True)
class Elicitation:
    """What was asked, the hard prompt found, its exact utility, and how far to trust the search.

    `surrogate` is what the ascent reached with a prompt *kernel*; `snapped_surrogate` is the bank's
    estimate for the hard prompt: a gap between them is utility lost in snapping. A search over
    classes has no kernel: its surrogate is the bank's estimate for the hard prompt.
    `held_out_surrogate` is the first on latents it was not tuned to, where there are any. `rank`
    and `optimum` are over all allowed prompts of the length, None where those cannot be enumerated.
    `context` is what the model had read before the prompt, `allowed` the conditions on it.
    `certificate` is what the method itself can vouch for, `estimator` what it scored prompts by and
    why, `verified` what asking the model about its candidates gave, `choice` why this method.
    `standard_error` is that of `expected_utility`: 0 when it is exact.
    """

    model: str
    utility: str
    horizon: int
    length: int
    method: str
    seed: int
    prompt: list[int]
    expected_utility: float
    standard_error: float
    surrogate: float | None
    surrogate_standard_error: float | None
    snapped_surrogate: float | None
    held_out_surrogate: float | None
    held_out_standard_error: float | None
    ess_fraction: float | None
    pareto_k: float | None
    rank: int | None
    optimum: float | None
    steps: int | None
    stop_reason: str | None
    certificate: str | None
    estimator: str | None
    verified: str | None
    choice: str | None
    cost: dict[str, int]
    seconds: float
    exact: bool = field(repr=False)
    vocab_size: int = field(repr=False)
    n_prompts: int | None = field(repr=False)
    context: list[int] = field(default_factory=list)
    allowed: str | None = None
    history: list[Step] = field(default_factory=list, repr=False)
    surrogate_history: list[float] = field(default_factory=list, repr=False)
    ess_history: list[float] = field(default_factory=list, repr=False)
    phases: dict[str, float] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The keys promised to machines; figures JSON cannot hold (nan, infinities) are null."""
        return public_record(self)


def public_record(record: Any) -> dict[str, Any]:
    """What a record shows to machines; conditions that were not given are left out."""
    hidden = {"exact", "vocab_size", "n_prompts", "history", "phases"}
    hidden |= {"surrogate_history", "ess_history"}
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in vars(record).items()
        if key not in hidden and (value or key not in ("context", "allowed"))
    }


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How good a given prompt is, alone and among all prompts of its length."""

    model: str
    utility: str
    horizon: int
    prompt: list[int]
    expected_utility: float
    standard_error: float
    rank: int | None
    optimum: float | None
    exact: bool = field(repr=False)
    vocab_size: int = field(repr=False)
    n_prompts: int | None = field(repr=False)
    context: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The keys promised to machines."""
        return public_record(self)


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


def trajectory(run: Elicitation, amortised_over: int) -> tuple[list[float], list[float]]:
    """Model tokens spent against the best value so far, a bank's share before the first step."""
    start = run.cost["bank_tokens"] / amortised_over
    steps = [step for step in run.history if math.isfinite(step.value)]
    if run.surrogate is not None or len(steps) < 2:  # one answer at the end
        return [start + _spent(run)], [run.expected_utility]
    tokens = [start + step.forward_tokens + step.backward_tokens for step in steps]
    return tokens, [step.value for step in steps]
