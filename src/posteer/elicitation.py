"""One front door for every method, and the record it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from posteer.allowed import AllowedPrompts, open_allowed
from posteer.automatic import Auto
from posteer.errors import InputError, require
from posteer.evaluation import (
    Evaluation,
    PromptLandscape,
    expected_utilities,
    landscapes,
)
from posteer.judgement import Judgement as Judgement
from posteer.judgement import judge as judge
from posteer.judgement import opened_model, public_record
from posteer.latents import LatentBank, load_bank
from posteer.latents.sampling import pick_device
from posteer.models import Metered, SequenceModel, condition
from posteer.objectives import open_goal
from posteer.phases import phase, timed
from posteer.problem import Answer, Problem, Progress, Step, parse_context
from posteer.search import exhaustive, gcg, prefixes, simple
from posteer.spec import Spec, integer, parse_spec
from posteer.steering import classes, ppt
from posteer.utilities import Utility
from posteer.verification import verify as verify_answer

Allowed = str | AllowedPrompts | Callable[[tuple[int, ...]], bool] | None
"""Conditions on prompts as text, as an object, or as a predicate; None allows all."""


@runtime_checkable
class Method(Protocol):
    """A way to find prompts. It sees the model only through its meter."""

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]: ...


def _auto(spec: Spec) -> Auto:
    """`auto`, or `auto(verify=8)`."""
    verify = integer(spec.take(verify=0)["verify"], "verify")
    require(verify >= 0, f"verify {verify}: expected at least 0")
    return Auto(open_method=open_method, verify=verify)


METHODS: dict[str, Callable[[Spec], Method]] = {
    "auto": _auto,
    "ppt": ppt.from_spec,
    "ppt-rb": ppt.from_spec,
    "ppt-analytic": ppt.from_spec,
    "ppt-rb-analytic": ppt.from_spec,
    "classes": classes.from_spec,
    "classes-analytic": classes.from_spec,
    "gcg": gcg.from_spec,
    "coordinate": simple.coordinate_from_spec,
    "random": simple.random_from_spec,
    "beam": simple.beam_from_spec,
    "simplex-pt": prefixes.from_spec,
    "real-pt": prefixes.from_spec,
    "soft-pt": prefixes.from_spec,
    "exhaustive": exhaustive.from_spec,
}


BANKED = ppt.PosteriorPrefixTuning | classes.ClassSearch | Auto
"""Methods that work on latents: a bank can be given to them, unless they are analytic."""


def open_method(text: str) -> Method:
    """A method by name, with settings if any: `ppt-rb`, `ppt(samples=2000,steps=500)`."""
    spec = parse_spec(text)
    if spec.name not in METHODS:
        raise InputError(f"unknown method '{spec.name}': expected one of {', '.join(METHODS)}")
    return METHODS[spec.name](spec)


def _with_bank(
    solver: Method, name: str, bank: LatentBank | str | Path, allow_mismatch: bool
) -> Method:
    if not isinstance(solver, BANKED) or solver.analytic:
        raise InputError(f"method {name} uses no bank: use ppt, ppt-rb or classes")
    given = bank if isinstance(bank, LatentBank) else load_bank(bank)
    return replace(solver, bank=given, allow_mismatch=allow_mismatch)


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


def elicit(
    model: str | SequenceModel | Any,
    utility: str | Utility | Callable[..., float],
    *,
    length: int,
    horizon: int = 4,
    method: str | Method | None = None,
    seed: int = 0,
    bank: LatentBank | str | Path | None = None,
    allow_mismatch: bool = False,
    context: str | Sequence[int] = (),
    allowed: Allowed = None,
    max_model_tokens: int | None = None,
    verify: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Elicitation:
    """Find a hard prompt that steers a model, which runs on `device` if it is a network.

    Without a method it is chosen by what is known of the model and the goal (`auto`). With `verify`
    the model itself is asked about so many of the best candidates, and that is charged. The prompt
    follows the tokens of `context`, which the model has read; only `allowed` prompts are answered.

    >>> elicit("exact:urn", "dyck", length=6).prompt
    [0, 1, 0, 1, 0, 1]
    """
    return elicit_many(
        model,
        [utility],
        length=length,
        horizon=horizon,
        method=method,
        seeds=[seed],
        bank=bank,
        allow_mismatch=allow_mismatch,
        context=context,
        allowed=allowed,
        max_model_tokens=max_model_tokens,
        verify=verify,
        device=device,
        progress=progress,
    )[0]


def elicit_many(
    model: str | SequenceModel | Any,
    utilities: Sequence[str | Utility | Callable[..., float]],
    *,
    length: int,
    horizon: int = 4,
    method: str | Method | None = None,
    seeds: Sequence[int] = (0,),
    bank: LatentBank | str | Path | None = None,
    allow_mismatch: bool = False,
    context: str | Sequence[int] = (),
    allowed: Allowed = None,
    max_model_tokens: int | None = None,
    verify: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Elicitation]:
    """Every utility with every seed, as one batch; utilities vary slowest."""
    require(len(utilities) > 0 and len(seeds) > 0, "expected at least one utility and one seed")
    return elicit_batch(
        opened_model(model, device),
        [(utility, seed) for utility in utilities for seed in seeds],
        length=length,
        horizon=horizon,
        method=method,
        bank=bank,
        allow_mismatch=allow_mismatch,
        context=context,
        allowed=allowed,
        max_model_tokens=max_model_tokens,
        verify=verify,
        device=pick_device(device),
        progress=progress,
    )


def elicit_batch(
    model: SequenceModel,
    runs: Sequence[tuple[str | Utility | Callable[..., float], int]],
    *,
    length: int,
    horizon: int = 4,
    method: str | Method | None = None,
    bank: LatentBank | str | Path | None = None,
    allow_mismatch: bool = False,
    context: str | Sequence[int] = (),
    allowed: Allowed = None,
    max_model_tokens: int | None = None,
    verify: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Elicitation]:
    """Any pairs of utility and seed on an opened model, as one batch; ascents on `device`."""
    for name, number in (("length", length), ("horizon", horizon), ("verify", verify)):
        require(isinstance(number, int), f"{name} {number}: expected a whole number")
    require(verify >= 0, f"verify {verify}: expected at least 0")
    vocab_size = model.space.vocab_size
    metered = Metered(condition(model, parse_context(context, vocab_size)))
    conditions = open_allowed(allowed, vocab_size)
    given = {_key(utility): utility for utility, _ in runs}
    goals = {key: open_goal(utility, metered.space) for key, utility in given.items()}
    problems = [
        Problem(metered, goals[_key(utility)], length, horizon, seed, max_model_tokens, conditions)
        for utility, seed in runs
    ]
    method = "auto" if method is None else method
    solver = open_method(method) if isinstance(method, str) else method
    if bank is not None:
        solver = _with_bank(solver, str(method), bank, allow_mismatch)
    if isinstance(solver, ppt.PosteriorPrefixTuning | Auto) and solver.device is None:
        solver = replace(solver, device=device)
    with timed() as phases:
        started = time.perf_counter()
        most = max(verify, solver.verify) if isinstance(solver, Auto) else verify
        if isinstance(solver, Auto | classes.ClassSearch):
            solver = solver.with_candidates(most)
        answers = solver.solve(problems, progress)
        answers = [verify_answer(*one, most) for one in zip(problems, answers, strict=True)]
        seconds = (time.perf_counter() - started) / len(problems)
        with phase("rank"):
            fields = landscapes(
                metered.inner, list(goals.values()), length, horizon, progress, conditions
            )
            among = dict(zip(goals, fields, strict=True))
        with phase("judge"):
            judged = _judge_all(problems, answers)
    name = method if isinstance(method, str) else type(method).__name__
    share = {what: spent / len(problems) for what, spent in phases.items()}
    shown = None if conditions is None else getattr(allowed, "__name__", str(allowed))
    return [
        replace(
            _record(problem, answer, judged[at], among[_key(runs[at][0])], name, seconds, share),
            context=list(problem.context),
            allowed=shown,
        )
        for at, (problem, answer) in enumerate(zip(problems, answers, strict=True))
    ]


def _key(utility: Any) -> Any:
    return utility if isinstance(utility, str) else id(utility)


def _judge_all(problems: list[Problem], answers: list[Answer]) -> list[Evaluation]:
    """The answers' exact utilities on the model itself; this is not charged to the method."""
    first = problems[0]
    return expected_utilities(
        first.model.inner,
        [problem.utility for problem in problems],
        torch.stack([answer.prompt for answer in answers]),
        first.horizon,
        seeds=[problem.seed for problem in problems],
    )


def _record(
    problem: Problem,
    answer: Answer,
    judged: Evaluation,
    among: PromptLandscape | None,
    method: str,
    seconds: float,
    phases: dict[str, float],
) -> Elicitation:
    value = float(judged.expected_utility[0])
    return Elicitation(
        model=problem.model.name,
        utility=problem.utility.name,
        horizon=problem.horizon,
        length=problem.length,
        method=method,
        seed=problem.seed,
        prompt=answer.prompt.tolist(),
        expected_utility=value,
        standard_error=float(judged.standard_error[0]),
        surrogate=answer.surrogate,
        surrogate_standard_error=answer.surrogate_standard_error,
        snapped_surrogate=answer.snapped_surrogate,
        held_out_surrogate=answer.held_out_surrogate,
        held_out_standard_error=answer.held_out_standard_error,
        ess_fraction=answer.ess_fraction,
        pareto_k=answer.pareto_k,
        rank=None if among is None else among.rank(value),
        optimum=None if among is None else among.optimum,
        steps=answer.steps,
        stop_reason=answer.stop_reason,
        certificate=answer.certificate,
        estimator=answer.estimator,
        verified=answer.verified,
        choice=answer.choice,
        cost={
            "forward_tokens": answer.queries.forward_tokens,
            "backward_tokens": answer.queries.backward_tokens,
            "bank_tokens": answer.bank_tokens,
        },
        seconds=seconds,
        exact=judged.exact,
        vocab_size=problem.model.space.vocab_size,
        n_prompts=None if among is None else among.n_prompts,
        history=answer.history,
        surrogate_history=answer.surrogate_history,
        ess_history=answer.ess_history,
        phases=phases,
    )
