"""What direct searches share: values and gradients of many runs' prompts at once, and their cost.

Runs are (utility, seed) pairs on one model. Prompts of different runs are read in the same passes,
each charged to its own run, and no run is ever charged past its budget.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from posteer.core import Float, InputError, Int, Progress, phase, require
from posteer.core.device import free_cached, is_out_of_memory
from posteer.core.limits import ENUMERABLE_CONTINUATIONS
from posteer.core.randomness import torch_stream
from posteer.evaluation import check_prompts, log_probs_of, tokens_of_value
from posteer.goals.objectives import ExpectedUtility, ForwardCrossEntropy, objective_of
from posteer.methods.answers import Answer, Step, StopReason
from posteer.methods.forecasting import work_of_search
from posteer.methods.protocol import Needs, Problem, Work
from posteer.methods.watching import Candidates, watcher_now
from posteer.models.continuations import NODES_IN_ONE_PASS, continuation_laws, tokens_at_once
from posteer.models.meter import QueryCount
from posteer.models.trees import tree_size
from posteer.tokens.drawing import draw_allowed

TARGETS_DRAWN = 128
"""Continuations of a target that prompts are compared on, where not all can be enumerated."""


@dataclass
class Run:
    """One run's best prompt so far, what it has spent, and its history."""

    problem: Problem
    spent: QueryCount = field(default_factory=QueryCount)
    history: list[Step] = field(default_factory=list)
    best: float = -torch.inf
    prompt: Int[Tensor, "m"] | None = None
    stop_reason: StopReason = StopReason.STEP_LIMIT

    @property
    def left(self) -> float:
        """Model tokens it may still spend."""
        budget = self.problem.max_model_tokens
        return math.inf if budget is None else float(budget - self.spent.total)

    def offer(self, value: float, prompt: Int[Tensor, "m"]) -> bool:
        """Keep the prompt if it is the best yet; value and prompt always belong together."""
        if self.prompt is not None and not value > self.best:
            return False
        self.best, self.prompt = value, prompt.clone()
        return True

    def answer(self, surrogate: float | None = None) -> Answer:
        if self.prompt is None:  # only a budget keeps a run from its first prompt
            raise InputError(
                f"a budget of {self.problem.max_model_tokens} model tokens does not pay for one "
                f"prompt: expected at least {self._price_of_one}"
            )
        return Answer(
            prompt=self.prompt,
            queries=replace(self.spent),
            surrogate=surrogate,
            steps=len(self.history),
            stop_reason=self.stop_reason,
            history=self.history,
        )

    @property
    def _price_of_one(self) -> int:
        return self.problem.model.tokens_of(self.problem.length, self.problem.horizon)


class Field:
    """The runs of a batch on one model, length and horizon."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        self.model, self.length, self.horizon = first.model, first.length, first.horizon
        self.vocab, self.allowed = first.vocab_size, first.allowed
        self.runs = [Run(problem) for problem in problems]
        objectives: dict[int, ExpectedUtility | ForwardCrossEntropy] = {}
        for problem in problems:
            key = id(problem.goal)
            if key not in objectives:
                objectives[key] = objective_of(problem.goal, self.vocab, self.horizon)
        self.objectives = [objectives[id(problem.goal)] for problem in problems]
        self.sampled = self.vocab**self.horizon > ENUMERABLE_CONTINUATIONS
        self.started = time.perf_counter()

    @property
    def price(self) -> int:
        """Forward tokens of one prompt."""
        return self.price_of(self.length)

    def price_of(self, length: int) -> int:
        """Forward tokens of a prompt, with all that may follow or what is drawn of a target."""
        if self.sampled:
            return tokens_of_value(self.model, length, self.horizon, TARGETS_DRAWN)
        return self.model.tokens_of(length, self.horizon)

    def affordable(self, run: int, wanted: int, price: int | None = None) -> int:
        """How many of so many prompts the run can still pay for."""
        left = self.runs[run].left
        return (
            wanted if math.isinf(left) else min(wanted, max(0, int(left) // (price or self.price)))
        )

    def random_prompts(self, runs: Sequence[int], purpose: str, n: int = 1) -> Int[Tensor, "B n m"]:
        """Uniform prompts, `n` for each run, from the run's own seed."""
        return torch.stack(
            [self.draw(n, torch_stream(self.runs[run].problem.seed, purpose)) for run in runs]
        )

    def draw(self, n: int, generator: torch.Generator) -> Int[Tensor, "n m"]:
        """Uniform prompts, or allowed ones."""
        if self.allowed is not None:
            return draw_allowed(self.allowed, self.length, n, generator)
        return torch.randint(self.vocab, (n, self.length), generator=generator)

    def permitted(self, prompts: Int[Tensor, "K t"]) -> Int[Tensor, "K2 t"]:
        """Those that are allowed, or may become so if they are not whole."""
        if self.allowed is None:
            return prompts
        return prompts[self.allowed.may_begin(prompts, self.length)]

    def values(self, runs: Int[Tensor, "K"], prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """The exact objective of each prompt under its run's goal, charged to the run."""
        if len(prompts) == 0:
            return torch.zeros(0, dtype=torch.float64)
        check_prompts(self.model, prompts)
        for run, n in zip(*runs.unique(return_counts=True), strict=True):
            self.runs[int(run)].spent.forward_tokens += int(n) * self.price_of(prompts.shape[1])
        if self.sampled:
            return self._drawn_values(runs, prompts)
        values = self.of_laws(runs, prompts, self._laws(runs, prompts))
        return values.masked_fill(self.model.impossible(prompts), -torch.inf)

    def _laws(self, runs: Int[Tensor, "K"], prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K Y"]:
        """Laws of continuations. Runs that differ in their goals alone start alike and try the same
        prompts: the model reads those once, though each run is charged."""
        seen: Counter[tuple[int, bytes]] = Counter()
        rows: dict[tuple[bytes, int], int] = {}
        places = []
        for row, (run, prompt) in enumerate(zip(runs.tolist(), prompts.numpy(), strict=True)):
            tokens = prompt.tobytes()
            again = seen[run, tokens]  # what one run asks twice is read twice
            seen[run, tokens] += 1
            places.append(rows.setdefault((tokens, again), row))
        distinct = sorted(rows.values())
        at = {row: place for place, row in enumerate(distinct)}
        laws = continuation_laws(self.model, prompts[distinct], self.horizon)
        return laws[[at[row] for row in places]]

    def _drawn_values(
        self, runs: Int[Tensor, "K"], prompts: Int[Tensor, "K m"]
    ) -> Float[Tensor, "K"]:
        """Forward cross-entropies on what is drawn of the target: the same for all prompts of a run
        that end alike, so that they are compared on it."""
        values = []
        for run, prompt in zip(runs.tolist(), prompts, strict=True):
            goal = self.objectives[run]
            assert isinstance(goal, ForwardCrossEntropy), "declared in needs"
            stream = torch_stream(self.runs[run].problem.seed, "targets")
            ends = self.model.last_contexts(goal.order, prompt[None]).expand(TARGETS_DRAWN)
            drawn = goal.draw(ends, self.horizon, stream)
            values.append(log_probs_of(self.model, prompt, drawn).mean())
        return torch.stack(values)

    def of_laws(
        self, runs: Int[Tensor, "K"], prompts: Int[Tensor, "K m"], laws: Float[Tensor, "K Y"]
    ) -> Float[Tensor, "K"]:
        """Goals of laws; the prompts say in which context a continuation starts."""
        by_objective: dict[int, list[int]] = {}
        for row, run in enumerate(runs.tolist()):
            by_objective.setdefault(id(self.objectives[run]), []).append(row)
        parts, order = [], []
        for rows in by_objective.values():
            objective = self.objectives[int(runs[rows[0]])]
            contexts = self.model.last_contexts(objective.order, prompts[rows].cpu())
            parts.append(objective.of_laws(laws[rows], contexts))
            order += rows
        places = torch.tensor(order, device=laws.device).argsort()
        return torch.cat(parts)[places]

    def gradients(
        self, runs: Int[Tensor, "K"], prompts: Int[Tensor, "K m"]
    ) -> tuple[Float[Tensor, "K"], Float[Tensor, "K m V"]]:
        """Objective and its gradient in the one-hot prompt, charged forward and back."""
        rows = torch.nn.functional.one_hot(prompts, self.vocab).float()
        values, slopes = self.slopes(
            runs,
            prompts,
            rows,
            lambda some: self.model.continuation_log_probs_of_rows(some, self.horizon),
        )
        return values, slopes.double().cpu()

    def slopes(
        self,
        runs: Int[Tensor, "K"],
        prompts: Int[Tensor, "K m"],
        inputs: Tensor,
        laws_of: Callable[[Tensor], Tensor],
    ) -> tuple[Float[Tensor, "K"], Tensor]:
        """Objective and gradient in any inputs, a part at a time; `prompts` set the contexts."""
        n_nodes = tree_size(self.vocab, self.horizon)
        require(
            n_nodes <= NODES_IN_ONE_PASS,
            f"a horizon of {self.horizon} makes a tree of {n_nodes:,} tokens: expected at most "
            f"{NODES_IN_ONE_PASS} to differentiate through",
        )
        size = max(1, min(len(inputs), tokens_at_once(self.model) // (2 * (self.price + 1))))
        values, slopes, at = [], [], 0
        while at < len(inputs):
            part = slice(at, at + size)
            some = inputs[part].detach().requires_grad_()
            try:
                with self.model.attempt():
                    value = self.of_laws(runs[part], prompts[part], laws_of(some))
                    (slope,) = torch.autograd.grad(value.sum(), some)
            except RuntimeError as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
                size = (size + 1) // 2
                free_cached()
                continue
            values.append(value.detach().cpu())
            slopes.append(slope)
            at += len(some)
        for run in runs.tolist():
            spent = self.runs[run].spent
            spent.forward_tokens += self.price
            spent.backward_tokens += self.price
        return torch.cat(values), torch.cat(slopes)

    def record(self, run: int, candidates: int) -> None:
        """One line of a run's history: where it stands and what it has spent."""
        own = self.runs[run]
        own.history.append(
            Step(
                value=own.best,
                candidates=candidates,
                forward_tokens=own.spent.forward_tokens,
                backward_tokens=own.spent.backward_tokens,
                seconds=time.perf_counter() - self.started,
            )
        )
        watcher = watcher_now()
        if watcher is not None and own.prompt is not None:
            value = torch.tensor([own.best], dtype=torch.float64)
            tried = sum(step.candidates for step in own.history)
            watcher(Candidates(own.prompt[None].cpu(), value, tried))


class DirectSearch(ABC):
    """A method that asks the model itself: a search over a field of runs, and what it asks."""

    @property
    def needs(self) -> Needs:
        return Needs(continuations=True, targets=True)

    @abstractmethod
    def tokens(self, problem: Problem) -> float:
        """Model tokens that a run takes, about."""

    @abstractmethod
    def search(self, field: Field, progress: Progress | None) -> None:
        """Offer prompts to the runs of a field until all have stopped."""

    def forecast(self, problem: Problem, together: int) -> Work:
        return work_of_search(problem, float(self.tokens(problem)), self)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        field = Field(problems)
        with phase("search"):
            self.search(field, progress)
        return [run.answer() for run in field.runs]
