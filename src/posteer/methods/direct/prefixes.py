"""Soft prefixes tuned by gradient through the frozen model (Genewein et al. 2025).

simplex-pt  each position a distribution over tokens (logits through a softmax)
real-pt     each position any real vector over the vocabulary
soft-pt     each position any embedding

What continuations are judged from where a goal reads the prompt's last tokens: the nearest hard
prompt's. Weights of the model are never touched: only the prefix is differentiated.

Adam's steps are as large for a gradient of rounding errors as for any other, so that two ascents
that differ in a last bit end at different prompts. On CPU they run in one thread: the order of sums
then does not depend on how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posteer.core import Float, Int, Progress, Spec, integer, number, require
from posteer.core.limits import MOST_OF_ANY
from posteer.core.randomness import torch_stream
from posteer.core.spec import within
from posteer.core.threads import one_thread
from posteer.methods.answers import Answer, StopReason
from posteer.methods.direct.field import Field
from posteer.methods.forecasting import work_of_search
from posteer.methods.protocol import Needs, Problem, Work
from posteer.models.protocol import Can

Kind = Literal["simplex", "real", "soft"]


@dataclass(frozen=True, kw_only=True)
class PrefixTuning:
    """Adam on the prefix; the best prefix met is kept, and the hard prompt nearest to it judged."""

    kind: Kind
    steps: int = 200
    rate: float

    def __post_init__(self) -> None:
        within(self.steps, f"{self.kind}-pt: steps", 1, MOST_OF_ANY)
        good = 0 < self.rate <= 1e3
        require(good, f"{self.kind}-pt: rate {self.rate}: must be positive and at most 1000")

    @property
    def needs(self) -> Needs:
        model = Can.EMBED if self.kind == "soft" else Can.ONE_HOTS
        return Needs(model=model | Can.EMBED, continuations=True, conditions=False)

    def forecast(self, problem: Problem, together: int) -> Work:
        price = problem.model.tokens_of(problem.length, problem.horizon)
        return work_of_search(problem, float((2 * self.steps + 1) * price), self)

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        with one_thread():
            return self._tune(Field(problems), progress)

    def _tune(self, field: Field, progress: Progress | None) -> list[Answer]:
        embeddings = field.model.embeddings()
        prefix = self._start(field, embeddings).requires_grad_()
        optimiser = torch.optim.Adam([prefix], lr=self.rate)
        n = len(field.runs)
        best = torch.full((n,), -torch.inf, dtype=torch.float64)
        kept = self._nearest(prefix.detach(), embeddings)
        diverged: set[int] = set()
        for step in range(1, self.steps + 1):
            # forward and back, and one prompt must be left for the judgement
            paid = [run for run in range(n) if field.runs[run].left >= 3 * field.price]
            active = [run for run in paid if run not in diverged]
            for run in set(range(n)) - set(paid) - diverged:
                field.runs[run].stop_reason = StopReason.BUDGET
            if not active:
                break
            rows = torch.tensor(active)
            hard = self._nearest(prefix.detach()[rows], embeddings)
            now, uphill = field.slopes(
                rows, hard, prefix.detach()[rows], lambda some: self._laws(field, some)
            )
            better = now > best[rows]
            best[rows[better]] = now[better]
            kept[rows[better]] = hard[better]
            steady = uphill.isfinite().flatten(1).all(1).cpu()
            for run in rows[~steady].tolist():
                field.runs[run].stop_reason = StopReason.DIVERGED
                diverged.add(run)
            slope = torch.zeros_like(prefix)
            slope[rows[steady]] = -uphill[steady]
            optimiser.zero_grad()
            prefix.grad = slope
            before = prefix.detach().clone()
            optimiser.step()
            idle = torch.ones(n, dtype=torch.bool)
            idle[rows[steady]] = False
            with torch.no_grad():
                prefix[idle] = before[idle]
            for run in active:
                field.runs[run].best = float(best[run])
                field.record(run, 1)
            if progress is not None:
                progress(f"{self.kind}-pt", step, self.steps)
        return self._judge(field, best, kept)

    def _judge(
        self, field: Field, soft: Float[Tensor, "B"], hard: Int[Tensor, "B m"]
    ) -> list[Answer]:
        for one in field.runs:
            one.best = -torch.inf  # a soft prefix's value is not the hard prompt's
        paid = [run for run in range(len(field.runs)) if field.affordable(run, 1)]
        values = field.values(torch.tensor(paid, dtype=torch.long), hard[paid])
        for run, value in zip(paid, values.tolist(), strict=True):
            field.runs[run].offer(value, hard[run])
            field.record(run, 1)
        return [
            one.answer(surrogate=float(value) if torch.isfinite(value) else None)
            for one, value in zip(field.runs, soft, strict=True)
        ]

    def _start(self, field: Field, embeddings: Float[Tensor, "V W"]) -> Tensor:
        """Near a uniform mixture (simplex, real) or near random tokens (soft), by seed."""
        parts = []
        for run in field.runs:
            generator = torch_stream(run.problem.seed, f"{self.kind}-start")
            if self.kind == "soft":
                tokens = torch.randint(field.vocab, (field.length,), generator=generator)
                parts.append(embeddings[tokens.to(embeddings.device)])
            else:
                shape = (field.length, field.vocab)
                noise = torch.randn(shape, dtype=torch.float32, generator=generator)
                parts.append(noise if self.kind == "simplex" else noise / 4 + 1 / field.vocab)
        return torch.stack(parts).to(embeddings)

    def _laws(self, field: Field, prefix: Tensor) -> Float[Tensor, "B Y"]:
        if self.kind == "soft":
            return field.model.continuation_log_probs_of_embeddings(prefix, field.horizon)
        rows = prefix.softmax(-1) if self.kind == "simplex" else prefix
        return field.model.continuation_log_probs_of_rows(rows, field.horizon)

    def _nearest(self, prefix: Tensor, embeddings: Float[Tensor, "V W"]) -> Int[Tensor, "B m"]:
        """The hard prompt at the smallest distance, position by position."""
        if self.kind == "soft":
            return torch.cdist(prefix, embeddings.expand(len(prefix), -1, -1)).argmin(-1).cpu()
        return prefix.argmax(-1).cpu()


RATES: dict[Kind, float] = {"simplex": 0.1, "real": 0.1, "soft": 0.02}
"""Of Adam, by what a prefix is made of."""


def from_spec(spec: Spec) -> PrefixTuning:
    """`simplex-pt`, `real-pt(steps=500)`, `soft-pt(rate=0.03)`."""
    kinds: dict[str, Kind] = {"simplex-pt": "simplex", "real-pt": "real", "soft-pt": "soft"}
    kind = kinds[spec.name]
    given = spec.take(steps=PrefixTuning.steps, rate=RATES[kind])
    return PrefixTuning(
        kind=kind,
        steps=integer(given["steps"], "steps"),
        rate=number(given["rate"], "rate"),
    )
