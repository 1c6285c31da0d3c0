"""What a run will take, measured on a little of it here and now.

Time is measured where it will be spent: a few steps of an ascent, a few model tokens of a search, a
search over classes with fewer latents. How many steps and tokens a run takes is the one thing
assumed, from the paper's sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from posteer.core.errors import InputError
from posteer.families.markov.family import MarkovFamily
from posteer.families.registry import open_process
from posteer.methods.protocol import Method, Problem, Request, Work, place_of, pose
from posteer.models.exact import ExactModel

STEPS = {True: 1400, False: 235}
"""Mean steps of an ascent with exact means, and with single rollouts (docs/records)."""

COPIES = 21
"""Tables of a bank's size that an ascent holds at once, measured."""

PROBED_RUNS, PROBED_STEPS, PROBED_TOKENS, PROBED_LATENTS = 8, 4, 3000, 500
MOST_PROBED_STEPS = 4 * 8**3
TOLD_APART = 0.05
"""Seconds between two probes, less of which may be the machine's load."""


def posed_again(problem: Problem, n: int = 1, budget: int | None = None) -> list[Problem]:
    """The problem with seeds 0 to n, the model with a meter of its own, no bank."""
    base: Request = replace(
        problem.request, model=problem.model.base, bank=None, max_model_tokens=budget
    )
    return pose([replace(base, seed=seed) for seed in range(n)])


def _on_known_latents(problem: Problem, n: int = 1) -> list[Problem]:
    """The same, on latents that can be drawn at once: of a model whose prior is not known those of
    exact Bayes over kernels of the same size."""
    if problem.model.prior is not None:
        return posed_again(problem, n)
    name = f"markov(vocab={problem.vocab_size},order={problem.markov.order})"
    like = ExactModel(open_process(name))
    base: Request = replace(problem.request, model=like, bank=None, max_model_tokens=None)
    return pose([replace(base, seed=seed) for seed in range(n)])


def work_of_ascents(
    problem: Problem,
    together: int,
    n_latents: int,
    max_steps: int,
    exact_means: bool,
    ascend: Callable[[list[Problem], int], None],
) -> Work:
    """Of one run in a batch: the slope between ascents of few and more steps, on prior draws."""
    size = problem.vocab_size ** (problem.markov.order + 1)
    memory = together * n_latents * size * 8.0 * COPIES
    steps = float(min(STEPS[exact_means], max_steps))
    n, on_gpu = min(together, PROBED_RUNS), place_of(problem).startswith("cuda")

    def seconds(taken: int) -> float:
        problems = _on_known_latents(problem, n)
        started = time.perf_counter()
        ascend(problems, taken)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    seconds(1)  # warms up
    once, more = seconds(1), PROBED_STEPS
    while (longer := seconds(1 + more)) - once < TOLD_APART and more < MOST_PROBED_STEPS:
        more *= 8  # kernels climb hundreds of steps in what one call takes
    spent = max(longer - once, 1e-6) / more
    return Work(steps * spent / (together if on_gpu else n), memory, steps)  # a GPU is not full


def work_of_one_run(problem: Problem, n_latents: int, of_size: Callable[[int], Method]) -> Work:
    """Of a method whose time grows with the latents: runs with fewer, and what more would cost."""
    if problem.model.prior is None and not isinstance(problem.family, MarkovFamily):
        return Work(None)
    most = min(n_latents, PROBED_LATENTS)
    sizes = (most, max(2, most // 2), most)  # the first warms up
    times = [_seconds(of_size(size), _on_known_latents(problem)) for size in sizes]
    if times[1] is None or times[2] is None:
        return Work(None)
    slope = max(times[2] - times[1], 0.0) / max(most - sizes[1], 1)
    return Work(times[2] + slope * (n_latents - most), steps=1.0)


def rounds_of(problem: Problem) -> float:
    """How often a greedy search moves before it ends, on average (docs/records)."""
    return 2 + 0.35 * problem.length * (problem.vocab_size - 1)


def work_of_search(problem: Problem, tokens: float, method: Method) -> Work:
    """Tokens a search takes, times the seconds a token takes here."""
    budget, price = (
        problem.max_model_tokens,
        problem.model.tokens_of(problem.length, problem.horizon),
    )
    if budget is not None:
        tokens = min(tokens, budget)
    probed = max(int(min(tokens, PROBED_TOKENS)), 6 * price)
    problems = posed_again(problem, budget=probed)
    seconds = _seconds(method, problems)
    asked = problems[0].model.queries.total
    return Work(None if seconds is None else seconds * tokens / max(asked, 1))


def _seconds(method: Method, problems: list[Problem]) -> float | None:
    """How long a method takes; None if it will not run on this at all."""
    started = time.perf_counter()
    try:
        method.solve(problems)
    except InputError:
        return None
    return time.perf_counter() - started
