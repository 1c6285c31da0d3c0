"""What a sweep will take, before anything starts: time, memory, disk.

Time is measured where it will be spent: a few steps of each group's own ascent, a few model tokens
of its own search, here and now. How many steps and tokens a run takes is the one thing assumed,
from the paper's sweep.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from posteer.core.errors import InputError
from posteer.core.progress import Progress
from posteer.goals.objectives import open_goal
from posteer.methods.direct.gcg import GreedyCoordinateGradient
from posteer.methods.direct.simple import CoordinateAscent
from posteer.methods.ppt.method import PosteriorPrefixTuning
from posteer.methods.protocol import Problem
from posteer.methods.registry import open_method
from posteer.models import Metered, SequenceModel, complete, open_model
from posteer.sweeps.runs import RunConfig

STEPS = {True: 1400, False: 235}
"""Mean steps of an ascent with exact means, and with single rollouts (docs/records)."""
COPIES = 21
"""Tables of a bank's size that an ascent holds at once, measured."""
LOADED = 320e6
"""Bytes of a process before it has done anything: torch, a model, its banks."""
PASSES = {"cpu": 1e9, "cuda": 8e9}
RECORD_BYTES, STEP_BYTES = 2000, 5.5
PROBED_RUNS, PROBED_STEPS, PROBED_TOKENS = 8, 4, 3000


@dataclass(frozen=True)
class Forecast:
    """Of one group of runs; seconds are None for a method whose work cannot be foretold."""

    model: str
    method: str
    length: int
    runs: int
    seconds: float | None
    bytes_in_memory: float
    bytes_on_disk: float

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def forecast(
    runs: Iterable[RunConfig], batch_size: int, device: str, progress: Progress | None = None
) -> list[Forecast]:
    """One forecast per group of runs that can share a batch."""
    groups: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], RunConfig] = {}
    for run in runs:
        groups[run.group] += 1
        first.setdefault(run.group, run)
    models: dict[str, SequenceModel] = {}
    found = []
    for done, (group, count) in enumerate(groups.items()):
        run = first[group]
        if run.model not in models:
            models[run.model] = complete(open_model(run.model, device))
        found.append(_of_group(models[run.model], run, count, batch_size, device))
        if progress is not None:
            progress("timing a few steps of each group", done + 1, len(groups))
    return found


def _of_group(
    model: SequenceModel, run: RunConfig, count: int, batch_size: int, device: str
) -> Forecast:
    solver = open_method(run.method)
    together = min(count, batch_size)
    memory, steps = LOADED + PASSES[device.partition(":")[0]], 60.0
    seconds: float | None
    if isinstance(solver, PosteriorPrefixTuning):
        goal = open_goal(run.utility, model.space)
        size = model.space.vocab_size ** (max(model.space.order, goal.order) + 1)
        memory += together * solver.draw.n_samples * size * 8 * COPIES
        steps = min(STEPS[solver.exact_means], solver.ascent.max_steps)
        seconds = count * steps * _seconds_a_step(model, run, solver, together, device)
    else:
        seconds = _seconds_of_search(model, run, solver)
        seconds = None if seconds is None else count * seconds
    disk = count * (RECORD_BYTES + steps * STEP_BYTES)
    return Forecast(run.model, run.method, run.length, count, seconds, memory, disk)


def _problems(model: SequenceModel, run: RunConfig, n: int, budget: int | None) -> list[Problem]:
    metered = Metered(model)
    goal = open_goal(run.utility, metered.space)
    return [Problem(metered, goal, run.length, run.horizon, seed, budget) for seed in range(n)]


def _seconds_a_step(
    model: SequenceModel, run: RunConfig, solver: PosteriorPrefixTuning, together: int, device: str
) -> float:
    """Of one run in a batch: the slope between ascents of few and more steps, on prior draws."""
    n = min(together, PROBED_RUNS)
    analytic = model.process is not None  # a bank of the right size costs nothing to draw so
    if not analytic:
        return float("nan")
    times = []
    for steps in (1, 1, 1 + PROBED_STEPS):  # the first warms up
        probe = replace(
            solver,
            analytic=True,
            bank=None,
            device=device,
            ascent=replace(solver.ascent, max_steps=steps),
        )
        problems = _problems(model, run, n, None)
        started = time.perf_counter()
        probe.optimise(problems)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    spent = max(times[2] - times[1], 1e-6) / PROBED_STEPS
    return spent / (together if device.startswith("cuda") else n)  # a GPU is not full at n runs


def _seconds_of_search(model: SequenceModel, run: RunConfig, solver: Any) -> float | None:
    """Tokens a search takes, times the seconds a token takes here."""
    price = Metered(model).tokens_of(run.length, run.horizon)
    choices = run.length * (model.space.vocab_size - 1)
    rounds = 2 + 0.35 * choices
    if isinstance(solver, GreedyCoordinateGradient):
        tokens = rounds * (2 + choices / 2) * price
    elif isinstance(solver, CoordinateAscent):
        tokens = solver.restarts * rounds * choices * price
    else:
        return None
    if run.max_model_tokens is not None:
        tokens = min(tokens, run.max_model_tokens)
    budget = int(min(tokens, max(PROBED_TOKENS, 6 * price)))
    problems = _problems(model, run, 1, max(budget, 6 * price))
    started = time.perf_counter()
    try:
        answer = solver.solve(problems)[0]
    except InputError:  # it will not run on this model at all
        return None
    spent = answer.queries.forward_tokens + answer.queries.backward_tokens
    return (time.perf_counter() - started) * tokens / max(spent, 1)
