"""Greedy coordinate gradient (Zou et al. 2023), as the paper sets it and as the field knows it.

An iteration takes the gradient of the objective in the one-hot prompt, proposes substitutions that
it favours, evaluates them exactly and moves to the best. The paper's setting (the default) proposes
at each position the one token of largest gradient, if that is not the current one; accepts only
improvement; and stops when there is none. With `top-k`, `candidates`, `swaps` and `buffer` it is
the general algorithm: sampled substitutions among the top k tokens, several positions at a time,
from the best of a buffer of prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.errors import require
from posteer.problem import Answer, Problem, Progress
from posteer.randomness import torch_stream
from posteer.search.field import Field, grouped
from posteer.shapes import Float, Int
from posteer.spec import Spec, integer


@dataclass(frozen=True, kw_only=True)
class GreedyCoordinateGradient:
    """`steps` 0 is the paper's max(10, 2 m); `candidates` 0 evaluates every proposal."""

    top_k: int = 1
    candidates: int = 0
    swaps: int = 1
    buffer: int = 1
    steps: int = 0

    def __post_init__(self) -> None:
        for name, least in (("top_k", 1), ("candidates", 0), ("swaps", 1), ("buffer", 1)):
            value = getattr(self, name)
            require(value >= least, f"gcg: {name} {value}: expected at least {least}")
        require(self.steps >= 0, f"gcg: {self.steps} steps: expected at least 1")
        require(
            self.swaps == 1 or self.candidates > 0,
            "gcg: swaps of several positions are sampled: give candidates too",
        )

    def solve(self, problems: list[Problem], progress: Progress | None = None) -> list[Answer]:
        answers: dict[int, Answer] = {}
        for indices in grouped(problems):
            field = Field([problems[index] for index in indices], "gcg", gradients=True)
            self._search(field, progress)
            answers |= dict(zip(indices, (run.answer() for run in field.runs), strict=True))
        return [answers[index] for index in range(len(problems))]

    def _search(self, field: Field, progress: Progress | None) -> None:
        everyone = list(range(len(field.runs)))
        active = [run for run in everyone if field.affordable(run, 1)]
        if not active:
            return
        starts = field.random_prompts(active, "gcg-start")[:, 0]
        values = field.values(torch.tensor(active), starts)
        buffers: dict[int, list[tuple[float, Tensor]]] = {}
        for run, value, prompt in zip(active, values.tolist(), starts, strict=True):
            field.runs[run].offer(value, prompt)
            buffers[run] = [(value, prompt)]
            field.record(run, 1)
        streams = {
            run: torch_stream(field.runs[run].problem.seed, "gcg-candidates") for run in active
        }
        limit = self.steps or max(10, 2 * field.length)
        for step in range(1, limit + 1):
            for run in active:
                if not field.affordable(run, 1, 3 * field.price):  # a gradient and a candidate
                    field.runs[run].stop_reason = "budget"
            active = [run for run in active if field.affordable(run, 1, 3 * field.price)]
            if not active:
                break
            prompts = torch.stack([buffers[run][0][1] for run in active])
            _, slopes = field.gradients(torch.tensor(active), prompts)
            proposed = [
                self._propose(prompt, slope, streams[run], field.affordable(run, 10**9))
                for run, prompt, slope in zip(active, prompts, slopes, strict=True)
            ]
            owners = [run for run, some in zip(active, proposed, strict=True) for _ in some]
            values = field.values(torch.tensor(owners, dtype=torch.long), torch.cat(proposed))
            at, going = 0, []
            for run, some in zip(active, proposed, strict=True):
                own = values[at : at + len(some)]
                at += len(some)
                if self._accept(field, run, buffers[run], own, some):
                    going.append(run)
                else:
                    field.runs[run].stop_reason = "no-improvement"
                field.record(run, len(some))
            active = going
            if progress is not None:
                progress("gcg", step, limit)
            if not active:
                break

    def _propose(
        self,
        prompt: Int[Tensor, "m"],
        slope: Float[Tensor, "m V"],
        stream: torch.Generator,
        most: int,
    ) -> Int[Tensor, "K m"]:
        """Distinct prompts that differ from this one, the most promising first."""
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
        if self.candidates and self.swaps > 1:
            return self._several(prompt, positions, tokens, stream, most)
        if self.candidates and len(positions) > self.candidates:
            kept = torch.randperm(len(positions), generator=stream)[: self.candidates]
            positions, tokens = positions[kept], tokens[kept]
        order = gain[positions, tokens].argsort(descending=True, stable=True)[:most]
        changed = prompt.repeat(len(order), 1)
        changed[torch.arange(len(order)), positions[order]] = tokens[order]
        return changed

    def _several(
        self,
        prompt: Int[Tensor, "m"],
        positions: Int[Tensor, "P"],
        tokens: Int[Tensor, "P"],
        stream: torch.Generator,
        most: int,
    ) -> Int[Tensor, "K m"]:
        """Random substitutions at up to `swaps` positions at once, no prompt twice."""
        if len(positions) == 0:
            return prompt.new_zeros(0, len(prompt))
        changed = prompt.repeat(min(self.candidates, most), 1)
        for row in changed:
            picked = torch.randint(len(positions), (self.swaps,), generator=stream)
            row[positions[picked]] = tokens[picked]
        return changed.unique(dim=0)

    def _accept(
        self,
        field: Field,
        run: int,
        buffer: list[tuple[float, Tensor]],
        values: Float[Tensor, "K"],
        prompts: Int[Tensor, "K m"],
    ) -> bool:
        """Take the best candidate into the buffer if it belongs there; False ends the run."""
        if len(values) == 0:
            return False
        best = int(values.argmax())
        value, prompt = float(values[best]), prompts[best]
        if self.buffer == 1:
            if value <= buffer[0][0]:
                return False
            buffer[0] = (value, prompt.clone())
            field.runs[run].offer(value, prompt)
            return True
        known = any(torch.equal(prompt, other) for _, other in buffer)
        if not known and (len(buffer) < self.buffer or value > buffer[-1][0]):
            buffer.append((value, prompt.clone()))
            buffer.sort(key=lambda entry: -entry[0])
            del buffer[self.buffer :]
            field.runs[run].offer(value, prompt)
            return True
        return self.candidates > 0  # other candidates may be drawn next time


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
