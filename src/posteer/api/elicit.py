"""One front door for every method, and the record it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from posteer.api.evaluate import judge as judge
from posteer.api.evaluate import opened_model
from posteer.banks import LatentBank, load_bank
from posteer.core.device import pick_device
from posteer.core.errors import InputError, require
from posteer.core.progress import Progress, phase, timed
from posteer.evaluation import Evaluation, PromptLandscape, expected_utilities, landscapes
from posteer.goals.objectives import open_goal
from posteer.goals.protocol import Utility
from posteer.methods.answers import Answer
from posteer.methods.auto import Auto
from posteer.methods.classes import method as classes
from posteer.methods.ppt import method as ppt
from posteer.methods.protocol import Problem
from posteer.methods.registry import BANKED, Method, open_method
from posteer.methods.verify import verify as verify_answer
from posteer.models import Metered, SequenceModel, condition
from posteer.results import Elicitation
from posteer.results import Judgement as Judgement
from posteer.tokens.conditions import AllowedPrompts, open_allowed
from posteer.tokens.prompts import parse_context

Allowed = str | AllowedPrompts | Callable[[tuple[int, ...]], bool] | None
"""Conditions on prompts as text, as an object, or as a predicate; None allows all."""


def _with_bank(
    solver: Method, name: str, bank: LatentBank | str | Path, allow_mismatch: bool
) -> Method:
    if not isinstance(solver, BANKED) or solver.analytic:
        raise InputError(f"method {name} uses no bank: use ppt, ppt-rb or classes")
    given = bank if isinstance(bank, LatentBank) else load_bank(bank)
    return replace(solver, bank=given, allow_mismatch=allow_mismatch)


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
