"""Greedy coordinate gradient (Zou et al. 2023), as the paper sets it and as the field knows it.

An iteration takes the gradient of the objective in the one-hot prompt, proposes substitutions that
it favours, evaluates them exactly and moves to the best. The paper's setting (the default) proposes
at each position the one token of largest gradient, if that is not the current one; accepts only
improvement; and stops when there is none. With `top-k`, `candidates`, `swaps` and `buffer` it is
the general algorithm: sampled substitutions among the top k tokens, several positions at a time,
from the best prompt of a buffer that starts at random and in which a better one replaces the worst.
A prompt whose proposals have all been tried is not tried again; when none is left, or the steps are
used up, the run ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, Progress, Spec, integer, require
from posteer.core.limits import MOST_OF_ANY
from posteer.core.randomness import torch_stream
from posteer.core.spec import within
from posteer.methods.answers import StopReason
from posteer.methods.direct.field import DirectSearch, Field
from posteer.methods.forecasting import rounds_of
from posteer.methods.protocol import Needs, Problem
from posteer.models.protocol import Can
from posteer.tokens.conditions import AllowedPrompts


@dataclass(frozen=True, kw_only=True)
class GreedyCoordinateGradient(DirectSearch):
    """`steps` 0 is the paper's max(10, 2 m); `candidates` 0 evaluates every proposal."""

    top_k: int = 1
    candidates: int = 0
    swaps: int = 1
    buffer: int = 1
    steps: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("top_k", 1),
            ("candidates", 0),
            ("swaps", 1),
            ("buffer", 1),
            ("steps", 0),
        ):
            within(getattr(self, name), f"gcg: {name.replace('_', '-')}", least, MOST_OF_ANY)
        require(
            self.swaps == 1 or self.candidates > 0,
            "gcg: swaps of several positions are sampled: give candidates too",
        )

    @property
    def needs(self) -> Needs:
        return Needs(model=Can.ONE_HOTS, continuations=True)

    def tokens(self, problem: Problem) -> float:
        choices = problem.length * (problem.vocab_size - 1)
        price = problem.model.tokens_of(problem.length, problem.horizon)
        return rounds_of(problem) * (2 + choices / 2) * price

    def search(self, field: Field, progress: Progress | None) -> None:
        buffers = self._start(field)
        streams = {
            run: torch_stream(field.runs[run].problem.seed, "gcg-candidates") for run in buffers
        }
        limit = self.steps or max(10, 2 * field.length)
        active = list(buffers)
        for step in range(1, limit + 1):
            for run in list(active):
                if not field.affordable(run, 1, 3 * field.price):  # a gradient and a candidate
                    field.runs[run].stop_reason = StopReason.BUDGET
                    active.remove(run)
            if not active:
                break
            prompts = torch.stack([buffers[run].best.prompt for run in active])
            _, slopes = field.gradients(torch.tensor(active), prompts)
            proposed = [
                self.propose(
                    prompt, slope, streams[run], field.affordable(run, 10**9), field.allowed
                )
                for run, prompt, slope in zip(active, prompts, slopes, strict=True)
            ]
            owners = [run for run, some in zip(active, proposed, strict=True) for _ in some[0]]
            values = field.values(
                torch.tensor(owners, dtype=torch.long), torch.cat([some for some, _ in proposed])
            )
            at = 0
            for run, (some, complete) in zip(list(active), proposed, strict=True):
                own = values[at : at + len(some)]
                at += len(some)
                buffer = buffers[run]
                buffer.best.exhausted = complete
                if len(own):
                    best = int(own.argmax())
                    buffer.offer(float(own[best]), some[best])
                    field.runs[run].offer(float(own[best]), some[best])
                field.record(run, len(some))
                if buffer.exhausted:
                    field.runs[run].stop_reason = StopReason.NO_IMPROVEMENT
                    active.remove(run)
            if progress is not None:
                progress("gcg", step, limit)

    def _start(self, field: Field) -> dict[int, _Buffer]:
        """Uniform prompts, as many as the buffer holds and the run can pay for."""
        runs = list(range(len(field.runs)))
        starts = field.random_prompts(runs, "gcg-start", self.buffer)
        paid = {run: field.affordable(run, self.buffer) for run in runs}
        owners = [run for run in runs for _ in range(paid[run])]
        prompts = torch.cat([starts[run, : paid[run]] for run in runs])
        values = field.values(torch.tensor(owners, dtype=torch.long), prompts)
        buffers = {run: _Buffer(self.buffer) for run in dict.fromkeys(owners)}
        for run, value, prompt in zip(owners, values.tolist(), prompts, strict=True):
            buffers[run].offer(value, prompt)
            field.runs[run].offer(value, prompt)
        for run in buffers:
            field.record(run, paid[run])
        return buffers

    def propose(
        self,
        prompt: Int[Tensor, "m"],
        slope: Float[Tensor, "m V"],
        stream: torch.Generator,
        most: int,
        allowed: AllowedPrompts | None = None,
    ) -> tuple[Int[Tensor, "K m"], bool]:
        """Distinct prompts that differ from this one, and whether they are all there are."""
        if allowed is not None:  # a token out of its place is never the best one
            slope = slope.masked_fill(~allowed.token_mask(len(prompt)), -torch.inf)
        own = slope.gather(1, prompt[:, None])
        gain = slope - own
        if self.top_k == 1:  # the paper's: the top token over all, the current one included
            best = slope.argmax(1)
            positions = (best != prompt).nonzero()[:, 0]
            tokens = best[positions]
        else:
            others = gain.scatter(1, prompt[:, None], -torch.inf)
            k = min(self.top_k, slope.shape[1] - 1)
            top = others.topk(k, 1).indices
            positions = torch.arange(len(prompt)).repeat_interleave(k)
            tokens = top.flatten()
        if allowed is not None:
            fits = gain[positions, tokens] > -torch.inf
            if self.swaps == 1:
                fits &= allowed.allows(_substituted(prompt, positions, tokens))
            positions, tokens = positions[fits], tokens[fits]
        if len(positions) == 0:
            return prompt.new_zeros(0, len(prompt)), True
        if self.swaps > 1:
            several = self._several(prompt, positions, tokens, stream, most)
            return several if allowed is None else several[allowed.allows(several)], False
        complete = not 0 < self.candidates < len(positions)
        if not complete:
            kept = torch.randperm(len(positions), generator=stream)[: self.candidates]
            positions, tokens = positions[kept], tokens[kept]
        order = gain[positions, tokens].argsort(descending=True, stable=True)[:most]
        changed = _substituted(prompt, positions[order], tokens[order])
        return changed, complete and len(order) == len(positions)

    def _several(
        self,
        prompt: Int[Tensor, "m"],
        positions: Int[Tensor, "P"],
        tokens: Int[Tensor, "P"],
        stream: torch.Generator,
        most: int,
    ) -> Int[Tensor, "K m"]:
        """Random substitutions at up to `swaps` positions at once, no prompt twice."""
        changed = prompt.repeat(min(self.candidates, most), 1)
        for row in changed:
            picked = torch.randint(
                len(positions), (min(self.swaps, len(prompt)),), generator=stream
            )
            row[positions[picked]] = tokens[picked]
        return changed.unique(dim=0)


def _substituted(
    prompt: Int[Tensor, "m"], positions: Int[Tensor, "P"], tokens: Int[Tensor, "P"]
) -> Int[Tensor, "P m"]:
    """The prompt with one token changed, one change to a row."""
    changed = prompt.repeat(len(positions), 1)
    changed[torch.arange(len(positions)), positions] = tokens
    return changed


@dataclass
class _Entry:
    value: float
    prompt: Tensor
    exhausted: bool = False


class _Buffer:
    """The best prompts of a run; the one to expand is the best not yet exhausted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: list[_Entry] = []

    @property
    def best(self) -> _Entry:
        return next(entry for entry in self.entries if not entry.exhausted)

    @property
    def exhausted(self) -> bool:
        return all(entry.exhausted for entry in self.entries)

    def offer(self, value: float, prompt: Tensor) -> None:
        """Take a new prompt in if there is room or it beats the worst."""
        if any(torch.equal(prompt, entry.prompt) for entry in self.entries):
            return
        if len(self.entries) == self.size and not value > self.entries[-1].value:
            return
        self.entries.append(_Entry(value, prompt.clone()))
        self.entries.sort(key=lambda entry: -entry.value)
        del self.entries[self.size :]


def from_spec(spec: Spec) -> GreedyCoordinateGradient:
    """`gcg`, or `gcg(top-k=16,candidates=128,swaps=2,buffer=8,steps=200)`."""
    defaults: dict[str, Any] = {"top-k": 1, "candidates": 0, "swaps": 1, "buffer": 1, "steps": 0}
    given = spec.take(**defaults)
    return GreedyCoordinateGradient(
        top_k=integer(given["top-k"], "top-k"),
        candidates=integer(given["candidates"], "candidates"),
        swaps=integer(given["swaps"], "swaps"),
        buffer=integer(given["buffer"], "buffer"),
        steps=integer(given["steps"], "steps"),
    )
