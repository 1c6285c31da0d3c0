"""What every method answers: a prompt, its figures, and its reasons as enums with figures.

Nothing here is a sentence: what a reason says to a person is written in views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.models.meter import QueryCount

EXACT = "exact"
"""What is said of an estimator where there is nothing to estimate."""


class StopReason(StrEnum):
    """Why a method stopped."""

    STEP_LIMIT = "step-limit"
    NO_IMPROVEMENT = "no-improvement"
    DIVERGED = "diverged"
    BUDGET = "budget"
    COMPLETE = "complete"
    ALL_CLASSES = "all classes"
    ALL_ALLOWED_CLASSES = "all classes of allowed prompts"
    ALL_PROMPTS = "all prompts"
    ALL_ALLOWED_PROMPTS = "all allowed prompts"
    LOCAL_OPTIMUM = "local optimum"
    ROUND_LIMIT = "round limit"
    PROVEN = "proven"
    NODE_LIMIT = "node limit"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


class Scope(StrEnum):
    """What a search that left nothing out has tried all of."""

    CLASSES = "classes"
    ALLOWED_CLASSES = "classes of allowed prompts"
    PROMPTS = "prompts"
    ALLOWED_PROMPTS = "allowed prompts"

    @property
    def stop_reason(self) -> StopReason:
        return StopReason[f"ALL_{self.name}"]


class Because(StrEnum):
    """Why a method was chosen."""

    BANK_GIVEN = "bank-given"
    BANK_SHIPPED = "bank-shipped"
    PRIOR_KNOWN = "prior-known"
    PRIOR_FINITE = "prior-finite"
    ROLLED_OUT = "rolled-out"
    BANK_KEPT = "bank-kept"
    NO_EXACT_MEAN = "no-exact-mean"
    NO_EXPECTED_UTILITY = "no-expected-utility"
    NO_LATENTS = "no-latents"
    FEW_TOKENS_LEFT = "few-tokens-left"
    BANK_TOO_DEAR = "bank-too-dear"
    FEW_PROMPTS = "few-prompts"
    ALL_CHEAPER = "all-cheaper"
    ALL_QUICKER = "all-quicker"
    GRADIENTS = "gradients"
    NO_GRADIENTS = "no-gradients"
    ALL_TRIED = "all-tried"
    CLIMBS = "climbs"
    PROVES = "proves"


@dataclass(frozen=True)
class Reason:
    """One reason and its figures."""

    because: Because
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The method that was chosen, as text, and why."""

    method: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Certificate:
    """What a prompt is provably best of, as far as a bank tells: all `count` of `scope`."""

    scope: Scope
    count: int
    estimator: str
    standard_error: float


@dataclass(frozen=True)
class Proof:
    """What no allowed prompt exceeds on the prior, and by how much that is more than the answer;
    `nodes` ends of prompts were bounded for it, or so many prompts tried."""

    bound: float
    gap: float
    nodes: int


@dataclass(frozen=True)
class EstimatorChoice:
    """What prompts were scored by, and the figures that decided it.

    `pareto_k` and `trusted` are of plain weights on probing prompts: the median k-hat and the share
    that can be trusted. `misfit` is the conjugate fit's, in standard errors, `relative_error` its
    error over that of plain weights. `pareto_k_at_best` is k-hat at the prompt that plain weights
    liked best, where that was a reason to leave them. All None where it was `asked` for by name, or
    latents are `tuned`: chosen to predict as they are weighed.
    """

    name: str
    asked: bool = False
    pareto_k: float | None = None
    trusted: float | None = None
    misfit: float | None = None
    fits: bool | None = None
    relative_error: float | None = None
    pareto_k_at_best: float | None = None
    tuned: bool = False


class Asked(StrEnum):
    """How asking the model about candidates went."""

    RANKED = "ranked"
    ONE_CANDIDATE = "one-candidate"
    NO_BUDGET = "no-budget"


@dataclass(frozen=True)
class Verification:
    """What asking the model itself about candidates gave.

    `compared` candidates were asked about for `tokens`; the best had been in `place` (from 1).
    `standard_error` is that of a sampled J, 0 where it is exact. Where asking went by `rounds`,
    each led by the answers before, no prompt that was looked at is expected to exceed `bound`, two
    standard errors added; `settled`: the best one is above. A prompt met on the way had no `place`.
    `first` is J on the model of the prompt that the method had first, where it was asked about.
    """

    outcome: Asked
    compared: int = 0
    place: int | None = None
    tokens: int = 0
    standard_error: float | None = None
    rounds: int = 1
    bound: float | None = None
    settled: bool = False
    first: float | None = None


@dataclass(frozen=True)
class Step:
    """A moment of a search: its best value, the prompts it just tried, all it has spent so far."""

    value: float
    candidates: int
    forward_tokens: int
    backward_tokens: int
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """A hard prompt and how it was found; figures that do not apply to a method are None.

    `surrogate` is what an ascent reached with a prompt *kernel*; `snapped_surrogate` is the bank's
    estimate for the hard prompt: a gap between them is utility lost in snapping. A search over
    classes has no kernel: its surrogate is the bank's estimate for the hard prompt.
    `held_out_surrogate` is the first on latents it was not tuned to, where there are any.
    `plain_surrogate` is what plain weights make of the hard prompt, where they can be trusted:
    nothing but the latents is assumed in it.
    `candidates` holds the best prompts a method knows, itself first, for trying on the model.
    `prompt_kernel` is what an ascent ended at, where that is a small table: the law of each token
    of a prompt after each context. `read_off` is how many tokens latents were read off, where that
    is not in the errors.
    """

    prompt: Int[Tensor, "m"]
    queries: QueryCount
    bank_tokens: int = 0
    surrogate: float | None = None
    surrogate_standard_error: float | None = None
    snapped_surrogate: float | None = None
    held_out_surrogate: float | None = None
    held_out_standard_error: float | None = None
    plain_surrogate: float | None = None
    plain_standard_error: float | None = None
    ess_fraction: float | None = None
    pareto_k: float | None = None
    steps: int | None = None
    stop_reason: StopReason | None = None
    certificate: Certificate | None = None
    proof: Proof | None = None
    estimator: EstimatorChoice | None = None
    verified: Verification | None = None
    choice: Choice | None = None
    prompt_kernel: Float[Tensor, "C V"] | None = None
    read_off: int | None = None
    candidates: Int[Tensor, "K m"] | None = field(default=None, repr=False)
    history: list[Step] = field(default_factory=list, repr=False)
    surrogate_history: list[float] = field(default_factory=list, repr=False)
    ess_history: list[float] = field(default_factory=list, repr=False)
