"""One front door for every method: a request goes down whole, a record comes up whole."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from posteer.api.judging import Judge
from posteer.core import Progress, require, timed
from posteer.core.device import differentiable
from posteer.core.errors import Interrupted
from posteer.core.showing import Watch, watched
from posteer.core.spec import shown
from posteer.core.userfiles import leaving
from posteer.methods.answers import Answer
from posteer.methods.cautions import of_search
from posteer.methods.latent_source import of_bank, require_no_saving
from posteer.methods.needs import require_needs
from posteer.methods.protocol import Problem, Request, pose
from posteer.methods.registry import open_method
from posteer.methods.verify import verify
from posteer.methods.watching import watcher_now, watching
from posteer.models.protocol import Can
from posteer.results import Elicitation, Judged, Question

Door = TypeVar("Door", bound=Callable[..., Any])


ARGUMENTS = "Args:\n"


def _explained(docstring: str | None) -> dict[str, str]:
    """What a docstring says of each argument, as it stands there."""
    entries = inspect.cleandoc(docstring or "").partition(ARGUMENTS)[2]
    parts = re.split(r"^(?=    \w)", entries, flags=re.MULTILINE)
    return {part.partition(":")[0].strip(): f"{part.rstrip()}\n" for part in parts if part.strip()}


def takes_a_request(*without: str) -> Callable[[Door], Door]:
    """Show a door's own parameters and, for its `**asked`, those of a `Request`.

    Fields that the door fills in itself are left out, and refused if they are given. A door's
    docstring ends with its own `Args:`; those of the request are written among them.
    """

    def opened(door: Door) -> Door:
        signature = inspect.signature(door)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        rest = [
            inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if entry.default is MISSING else entry.default,
                annotation=entry.type,
            )
            for entry in fields(Request)
            if entry.name not in (*signature.parameters, *without)
        ]
        keywords = [p for p in own if p.kind is p.KEYWORD_ONLY]
        own = [p for p in own if p.kind is not p.KEYWORD_ONLY]
        whole = signature.replace(parameters=own + rest + keywords)

        @wraps(door)
        def checked(*given: Any, **asked: Any) -> Any:
            whole.bind(*given, **asked)  # a missing or unknown argument is a TypeError by its name
            return door(*given, **asked)

        checked.__signature__ = whole  # type: ignore[attr-defined]
        told = {**_explained(Request.__doc__), **_explained(door.__doc__)}
        begin, heading, _ = inspect.cleandoc(door.__doc__ or "").partition(ARGUMENTS)
        checked.__doc__ = begin + heading + "".join(told.get(name, "") for name in whole.parameters)
        return cast(Door, checked)

    return opened


@takes_a_request()
def elicit(model: Any, utility: Any, *, progress: Watch = None, **asked: Any) -> Elicitation:
    """Find a prompt after which a model's continuations have high utility.

    The record that is returned has the prompt (`found.prompt`), how good it is on the model itself
    (`expected_utility`, with `rank` and `optimum` where all prompts could be tried), how sure that
    is, and what it cost. In a notebook it shows as a table; `found.plot()` draws it.

    >>> elicit("exact:urn", "dyck", length=6).prompt
    [0, 1, 0, 1, 0, 1]

    Args:
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
    """
    return elicit_batch([Request(model=model, utility=utility, **asked)], progress)[0]


@takes_a_request("utility", "seed")
def elicit_many(
    model: Any,
    utilities: Sequence[Any] | Any,
    *,
    seeds: Sequence[int] | Any = (0,),
    progress: Watch = None,
    **asked: Any,
) -> list[Elicitation]:
    """Every utility with every seed, as one batch; utilities vary slowest.

    >>> runs = elicit_many("exact:urn", ["dyck", "frequency(0.5)"], length=6, seeds=range(2))
    >>> [(run.utility, run.seed) for run in runs]
    [('dyck', 0), ('dyck', 1), ('frequency(0.5)', 0), ('frequency(0.5)', 1)]

    Args:
        utilities: a list of utilities, each as `elicit` takes one.
        seeds: a list of seeds.
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
    """
    for given, what in ((utilities, "utilities"), (seeds, "seeds")):
        several = isinstance(given, Sequence | range) and not isinstance(given, str)
        require(several, f"{what} {shown(given)}: expected a list of them")
    requests = [
        Request(model=model, utility=utility, seed=seed, **asked)
        for utility in utilities
        for seed in seeds
    ]
    return elicit_batch(requests, progress)


@differentiable()
@watched
def elicit_batch(requests: Sequence[Request] | Any, progress: Watch = None) -> list[Elicitation]:
    """Requests that differ in utility and seed alone, solved as one tensor programme.

    >>> goals = ("dyck", "frequency(1.0)")
    >>> asked = [Request(model="exact:urn", utility=goal, length=6) for goal in goals]
    >>> [run.rank for run in elicit_batch(asked)]
    [1, 1]

    Args:
        requests: what is asked, each as `elicit` would be.
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
    """
    given = isinstance(requests, Sequence) and all(isinstance(one, Request) for one in requests)
    require(given, f"{shown(requests)}: expected requests, as in [Request(model=.., utility=..)]")
    require(len(requests) > 0, "expected at least one utility and one seed")
    method = open_method(requests[0].method)
    problems = pose(requests, method.needs.verify)
    name = _name_of(requests[0])
    if not method.needs.bank:
        require_no_saving(requests[0].save_bank, f"{name} draws none")
    for problem in problems:
        require_needs(method.needs, problem, name)
    model = problems[0].model.name
    watcher = watcher_now() if len(requests) == 1 else None
    with (
        timed() as phases,
        _told_if_interrupted(problems[0]),
        leaving(model),
        watching(watcher),
    ):
        started = time.perf_counter()
        answers = method.solve(problems, progress)
        answers = [
            verify(problem, answer, method.needs)
            for problem, answer in zip(problems, answers, strict=True)
        ]
        seconds = (time.perf_counter() - started) / len(problems)
        judged, judging_tokens = _judge_all(problems, answers, progress)
    share = {what: spent / len(problems) for what, spent in phases.items()}
    return [
        Elicitation(
            asked=_question(problem, name),
            answer=answer,
            judged=_doubted(problem, answer, value),
            seconds=seconds,
            drawn=problem.drawn,
            judging_tokens=judging_tokens,
            phases=share,
        )
        for problem, answer, value in zip(problems, answers, judged, strict=True)
    ]


@contextmanager
def _told_if_interrupted(problem: Problem) -> Iterator[None]:
    """Ctrl-C once a bank was drawn says where that is."""
    try:
        yield
    except KeyboardInterrupt as stop:
        bank, kept = problem.drawn.bank, problem.request.save_bank
        if bank is None:
            raise
        raise Interrupted(None if kept is None else Path(kept), len(bank), len(bank)) from stop


def _name_of(request: Request) -> str:
    return request.method if isinstance(request.method, str) else type(request.method).__name__


def _question(problem: Problem, method: str) -> Question:
    given = problem.request.allowed
    shown = None if problem.allowed is None else getattr(given, "__name__", str(given))
    return Question(
        model=problem.model.name,
        utility=problem.goal.name,
        horizon=problem.horizon,
        length=problem.length,
        method=method,
        seed=problem.seed,
        context=list(problem.context),
        allowed=shown,
        text=problem.model.text,
        vocabulary=problem.model.vocabulary,
    )


def _judge_all(
    problems: list[Problem], answers: list[Answer], progress: Progress | None
) -> tuple[list[Judged], int]:
    """The answers on the model itself; this is not charged to the method."""
    first = problems[0]
    budget = first.max_model_tokens
    charged = first.drawn.tokens + max(answer.queries.total for answer in answers)
    judge = Judge(
        first.model.inner,
        first.length,
        first.horizon,
        first.allowed,
        first.request.rank,
        None if budget is None else budget - charged,
    )
    return judge.judge(
        [problem.goal for problem in problems],
        torch.stack([answer.prompt for answer in answers]),
        [problem.seed for problem in problems],
        progress,
    )


def _doubted(problem: Problem, answer: Answer, judged: Judged) -> Judged:
    """A judgement with all that there is to doubt of it and of the search."""
    search = of_search(answer, judged.expected_utility, judged.exact)
    if judged.bound is None and answer.proof is not None and Can.EXACT in problem.model.can:
        judged = replace(judged, bound=answer.proof.bound)
    return replace(judged, warnings=(*of_bank(problem), *search, *judged.warnings))
