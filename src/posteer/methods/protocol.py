"""What is asked of every method, and what a method declares.

A `Request` says all that is asked; it goes down whole. `pose` opens it: names become objects. A
`Method` is one file: it declares its `Needs`, foretells its cost, and solves a batch of problems
that differ in utility and seed alone, as one tensor programme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from posteer.banks import DrawPlan, LatentBank
from posteer.banks.checks.departure import Departure, check_departure
from posteer.banks.drawn import open_bank
from posteer.core import Progress, require
from posteer.core.device import pick_device
from posteer.core.limits import LISTED_PROMPTS, MOST_HORIZON, MOST_OF_ANY, MOST_SEED, MOST_TOKENS
from posteer.core.spec import number as real
from posteer.core.spec import whole_number, within
from posteer.families.markov.family import markov_space
from posteer.families.markov.prompt_classes import ClassProblem
from posteer.goals.protocol import Utility
from posteer.goals.utilities import Goal, expected, open_goal
from posteer.methods.answers import Answer
from posteer.models.conditioned import condition
from posteer.models.meter import Metered, Spending
from posteer.models.protocol import Can, Model
from posteer.models.registry import open_model
from posteer.tokens.conditions import AllowedPrompts, open_allowed
from posteer.tokens.contexts import ContextSpace
from posteer.tokens.drawing import list_allowed
from posteer.tokens.prompts import parse_context

Whole = int | Any
"""A whole number of Python's or numpy's; a request checks it, and holds Python's."""

Allowed = str | AllowedPrompts | Callable[[tuple[int, ...]], bool] | Any | None
"""Conditions on prompts as text, as an object, or as a predicate; None allows all."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Find a prompt of `length` tokens that makes continuations of `horizon` tokens useful.

    >>> Request(model="exact:urn", utility="dyck", length=6).horizon
    4

    Args:
        model: a shipped name (`urn`), exact Bayes (`exact:urn`), a model folder, `./file.py:name`,
            or an object: what `posteer.wrap` and `posteer.open_model` return.
        utility: how good a continuation is: a name such as `dyck` or `frequency(0.3)`,
            `./file.py:function`, or a function of a continuation, which is a tuple of tokens.
        length: how many tokens the prompt has.
        horizon: how many tokens of the continuation are judged.
        method: how prompts are looked for: a name with settings in brackets, as `posteer methods`
            lists them. `auto` chooses by what is known of the model and the goal, and says why.
        seed: seed of all that is drawn at random.
        bank: latents that `posteer.sample` drew from this model: the object, or its file. By
            default those shipped with the model, those of its known prior, or drawn for this.
        allow_mismatch: use a bank of another model, or one drawn after another context.
        context: tokens that the model has read before the prompt, as `0110` or a list.
        allowed: conditions on the prompt, as in `first=0;ban=11;count(1)<=10`, or a function that
            says whether a prompt is allowed.
        max_model_tokens: most tokens that the model may be asked to read, forward and backward, for
            the bank, the search and `verify` together. Judging what was found comes on top.
        verify: ask the model itself about so many of the best candidates, and answer with the best.
        gap: with a method that proves bounds, stop once the prompt is within so much of the best.
        nodes: with such a method, stop after so many ends of prompts were looked at.
        rank: whether the prompt is ranked among all of its length. By default on an exact model,
            and elsewhere where that is cheap and the budget has as much left.
        save_bank: file for the bank that is drawn; the same call goes on after an interruption.
        device: where networks run, ascents, and the scoring of classes: auto, cpu or cuda.
        alphabet: tokens that a language model is steered over, as text (`" H, T"`) or ids; of any
            other model names for all its tokens.
        text: what a language model reads before everything.
    """

    model: str | Model | Any
    utility: str | Goal | Callable[..., float] | Any
    length: Whole
    horizon: Whole = 4
    method: str | Method | Any = "auto"
    seed: Whole = 0
    bank: LatentBank | str | Path | Any = None
    allow_mismatch: bool = False
    context: str | Sequence[int] | Any = ()
    allowed: Allowed = None
    max_model_tokens: Whole | None = None
    verify: Whole = 0
    gap: float | Any = None
    nodes: Whole | None = None
    rank: bool | None = None
    save_bank: str | Path | None = None
    device: str | Any = "auto"
    alphabet: str | Sequence[str | int] | Any = None
    text: str | Any = ""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("length", 1, MOST_TOKENS),
            ("horizon", 1, MOST_HORIZON),
            ("verify", 0, 1_000_000),
            ("seed", -MOST_SEED, MOST_SEED),
        ):
            number = whole_number(getattr(self, name), name)
            require(number >= least, f"{name} {number}: expected at least {least}")
            require(number <= most, f"{name} {number}: expected at most {most}")
            object.__setattr__(
                self, name, number
            )  # numpy's whole numbers overflow, and are no JSON
        if self.gap is not None:
            gap = real(self.gap, "gap")
            require(gap >= 0, f"gap {gap:g}: expected at least 0")
            object.__setattr__(self, "gap", gap)
        if self.nodes is not None:
            object.__setattr__(self, "nodes", within(self.nodes, "nodes", 0, 1000 * MOST_OF_ANY))
        if self.max_model_tokens is not None:
            budget = whole_number(self.max_model_tokens, "max_model_tokens")
            require(budget >= 1, f"budget of {budget} model tokens: expected some")
            object.__setattr__(self, "max_model_tokens", budget)
        require(self.rank in (None, True, False), f"rank {self.rank}: expected yes, no or nothing")
        if self.method is None:
            object.__setattr__(self, "method", "auto")

    def batches_with(self, other: Request) -> bool:
        """Whether the two differ in utility and seed alone."""
        names = {entry.name for entry in fields(self)} - {"utility", "seed"}
        pairs = ((getattr(self, name), getattr(other, name)) for name in names)
        return all(one is another or one == another for one, another in pairs)


class LatentsFrom(Enum):
    """Where a method's latents come from."""

    NOWHERE = "nowhere"
    PRIOR = "prior"
    ROLLOUTS = "rollouts"


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a method needs of a problem, and what it makes use of.

    `latents`: drawn from the prior, or by rollouts as in `draw`; `atoms`: those of a finite prior
    are taken as they are, not drawn; `finite`: the prior must be one; `bank`: a given one may stand
    for them. `model`: abilities that it must declare. `proves`: it bounds J of all prompts, and
    stops by the request's `gap` and `nodes`. `expected_utility`: the goal is the mean of a utility;
    `exact_means`: that mean is known of every latent. `counts`, `tilts`: the family is
    `Counted`, `Tiltable`. `continuations`: all of them can be enumerated; with `targets` it draws
    from the target of a forward cross-entropy where they cannot. `conditions`: it honours allowed
    prompts. `candidates`: it answers with several. `device`: it computes on the request's.
    `verify`: so many candidates it wants the model to be asked about by itself.
    """

    latents: LatentsFrom = LatentsFrom.NOWHERE
    draw: DrawPlan = field(default_factory=DrawPlan)
    atoms: bool = False
    finite: bool = False
    proves: bool = False
    bank: bool = False
    model: Can = Can.NOTHING
    expected_utility: bool = False
    exact_means: bool = False
    counts: bool = False
    tilts: bool = False
    continuations: bool = False
    targets: bool = False
    conditions: bool = True
    candidates: bool = False
    device: bool = False
    verify: int = 0


@dataclass(frozen=True)
class Work:
    """What one run takes, foretold: None where that cannot be said."""

    seconds: float | None
    bytes_in_memory: float = 0.0
    steps: float = 60.0


@runtime_checkable
class Method(Protocol):
    """A way to find prompts. It sees the model only through its meter."""

    @property
    def needs(self) -> Needs: ...

    def forecast(self, problem: Problem, together: int) -> Work:
        """What a run takes in a batch of so many, measured on a little of it here and now."""

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]: ...


@dataclass
class Drawn:
    """The bank that was drawn for a batch of problems, what that asked of the model just now, and
    the settings that draw the same again where sizes were chosen by speed. Of a given bank, whether
    the model has `changed` since."""

    bank: LatentBank | None = None
    tokens: int = 0
    settings: str | None = None
    changed: bool = False

    @cached_property
    def departure(self) -> Departure | None:
        """How far the model is from a filter over its latents, as what was read of it for them
        tells; None where nothing was."""
        return None if self.bank is None else check_departure(None, self.bank)

    def facts(self) -> dict[str, Any] | None:
        """Of the bank, with the settings that draw it again, and how far the model is from it."""
        bank, found = self.bank, self.departure
        if bank is None:
            return None
        told = None
        if found is not None:
            told = asdict(found) | {"foretold": asdict(found.rank_correlation)}
        return {
            "rollouts": len(bank),
            "rollout_length": bank.origin.rollout_length,
            "settings": self.settings,
            "check": told,
        }


@dataclass(frozen=True, eq=False)
class Problem:
    """A request with its names opened. All that is said of prompts is said of what follows the
    model's context. `candidates` is how many prompts the model will be asked about; `drawn` is
    shared by the problems of a batch, as the meter is."""

    request: Request
    model: Metered
    goal: Goal
    allowed: AllowedPrompts | None = None
    bank: LatentBank | None = None
    candidates: int = 0
    drawn: Drawn = field(default_factory=Drawn)

    def __post_init__(self) -> None:
        model, length, horizon = self.model, self.length, self.horizon
        known = len(model.context)
        require(
            known + length > model.order,
            f"length {length}: expected more than the model's order {model.order}",
        )
        require(
            known + length > self.goal.order,
            f"length {length}: {self.goal.name} reads {self.goal.order} prompt tokens, "
            "expected more",
        )
        longest = model.max_length
        require(
            longest is None or length + horizon - 1 <= longest,
            f"length {length} and horizon {horizon}: {model.name} reads "
            f"{longest} tokens, expected length + horizon at most {(longest or 0) + 1}",
        )
        if self.allowed is None:
            return
        require(
            self.allowed.vocab_size == model.vocab_size,
            f"allowed prompts are over {self.allowed.vocab_size} tokens: {model.name} has "
            f"{model.vocab_size}",
        )
        self.allowed.token_mask(length)  # refuses what no prompt can satisfy
        if model.vocab_size**length <= LISTED_PROMPTS:
            list_allowed(self.allowed, length)  # and so does this

    @property
    def length(self) -> int:
        return self.request.length

    @property
    def horizon(self) -> int:
        return self.request.horizon

    @property
    def seed(self) -> int:
        return self.request.seed

    @property
    def max_model_tokens(self) -> int | None:
        return self.request.max_model_tokens

    @property
    def context(self) -> tuple[int, ...]:
        """What the model has read before the prompt."""
        return self.model.context

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def family(self) -> Any:
        """What the latents are: a given bank's own, else what the model says of its."""
        return self.model.family if self.bank is None else self.bank.latents.family

    @property
    def expected(self) -> Utility:
        """The goal as a utility, for methods whose surrogate is the mean of one."""
        return expected(self.goal)

    @property
    def space(self) -> ContextSpace:
        """The contexts of the model's latents, where these are Markov kernels."""
        return markov_space(self.family, self.model.name)

    @cached_property
    def markov(self) -> ClassProblem:
        """The problem as Markov latents see it: walks over contexts, behind the context's end."""
        return ClassProblem(self.space, self.length, self.goal.order, self.allowed, self.context)


def pose(requests: Sequence[Request], verify: int = 0) -> list[Problem]:
    """The problems of requests that differ in utility and seed alone; each name is opened once.

    >>> pose([Request(model="exact:urn", utility="dyck", length=6)])[0].goal.name
    'dyck'
    """
    first = requests[0]
    require(
        all(first.batches_with(other) for other in requests),
        "requests of one batch may differ in utility and seed alone",
    )
    opened = open_model(
        first.model, pick_device(first.device), alphabet=first.alphabet, text=first.text
    )
    budget = first.max_model_tokens
    spending = Spending(most=None if budget is None else budget * len(requests))
    context = parse_context(first.context, opened.vocabulary)
    model = Metered(condition(opened, context), spending)
    allowed = open_allowed(first.allowed, model.vocabulary)
    bank = None if first.bank is None else open_bank(first.bank)
    goals: dict[Any, Goal] = {}
    drawn = Drawn()
    for request in requests:
        key = key_of(request.utility)
        if key not in goals:
            goals[key] = open_goal(request.utility, model)
    return [
        Problem(
            request,
            model,
            goals[key_of(request.utility)],
            allowed,
            bank,
            max(request.verify, verify),
            drawn,
        )
        for request in requests
    ]


def only_asked(problem: Problem) -> bool:
    """Whether the latents of a problem are models, of whose states nothing is known."""
    return bool(getattr(problem.family, "only_asked", False))


def key_of(utility: Any) -> Any:
    """Equal for utilities that are opened as one."""
    return utility if isinstance(utility, str) else id(utility)


def place_of(problem: Problem, own: str | None = None) -> str:
    """The device that a problem's tensors live on: a method's own, or the request's."""
    return pick_device(own or problem.request.device)
