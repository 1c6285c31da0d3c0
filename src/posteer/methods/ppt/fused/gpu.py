"""Ascents on a GPU: launches of the kernel of gpu_step.py, and what it reads and leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posteer.core.shapes import Bool, Float
from posteer.families.markov.tilt import PromptKernel
from posteer.methods.ppt.ascent import AscentSettings
from posteer.methods.ppt.estimator import TiltedRuns
from posteer.methods.ppt.fused.gpu_step import climb
from posteer.methods.ppt.fused.inputs import averaged

BLOCK, WARPS = 128, 4
STEPS_AT_ONCE = 250
"""Of a launch, after which the host looks which runs have ended."""
ENDED = 2


class GpuClimb:
    """The runs of a batch, part of the way up."""

    steps_at_once = STEPS_AT_ONCE

    def __init__(
        self,
        runs: TiltedRuns,
        prompt: PromptKernel,
        settings: AscentSettings,
        factor: Float[Tensor, "B"],
        first_contexts: Bool[Tensor, "B C"] | None,
    ) -> None:
        n, contexts, tokens = prompt.transitions.shape
        asked, device = averaged(runs), runs.device
        self.block, self.warps = BLOCK, WARPS
        self._device, self._steps = device, runs.n_transitions
        self._sizes = (contexts, tokens, asked.worth.shape[2], asked.horizon)
        self._tables, self._starts = prompt.transitions.clone(), prompt.initial.clone()
        every = torch.ones(n, contexts, dtype=torch.bool)
        inside = every if first_contexts is None else first_contexts
        moments = torch.zeros(n, 3, tokens, dtype=torch.float64, device=device)
        moments[:, 0] = prompt.transitions[:, 0].log()
        fixed = (settings.learning_rate, settings.floor, settings.tolerance, 1.0, 1.0)
        pairs = zip(asked.near.tolist(), factor.tolist(), strict=True)
        reals = [[-torch.inf, near, times, *fixed] for near, times in pairs]
        whole = [[0, 0, 0, settings.patience, settings.max_steps]] * n
        self._whole = torch.tensor(whole, dtype=torch.int32, device=device)
        none = torch.zeros(1, dtype=torch.float64, device=device)
        logs, first, means = runs.logs, runs.first_likelihood, asked.means
        if logs is not None:
            first = logs.first
        keys = asked.keys[:, 0] | asked.keys[:, 1] << 32
        self._state = (
            self._tables,
            self._starts,
            inside.double().to(device),
            moments,
            torch.tensor(reals, dtype=torch.float64, device=device),
            self._whole,
            runs.latents.contiguous(),
            none if logs is None else logs.kernels.contiguous(),
            none if first is None else first.contiguous(),
            none if means is None else means.contiguous(),
            asked.worth.to(device) if means is None else none,
            keys.to(device),
        )
        self._geometric = logs is not None
        self._has_first, self._n_latents = first is not None, runs.latents.shape[-1]
        self._ended = [0] * n

    def advance(
        self, runs: Sequence[int], n_steps: int
    ) -> tuple[list[int], list[list[float]], list[list[float]]]:
        """Climb for some steps: how many each run took, their surrogates and sample sizes."""
        contexts, tokens, words, horizon = self._sizes
        before = self._whole[:, 0].clone()
        active = torch.tensor(runs, dtype=torch.int32, device=self._device)
        shape = (2, len(runs), n_steps)
        surrogates, sizes = torch.empty(shape, dtype=torch.float64, device=self._device)
        climb[(len(runs),)](
            *self._state,
            active,
            surrogates,
            sizes,
            self._n_latents,
            n_steps,
            C=contexts,
            V=tokens,
            K=words,
            STEPS=self._steps,
            HIGHEST=self._steps.bit_length() - 1,
            HORIZON=horizon,
            HAS_FIRST=self._has_first,
            GEOMETRIC=self._geometric,
            SCORES=contexts * tokens + (contexts if self._geometric and self._has_first else 0),
            BLOCK=self.block,
            num_warps=self.warps,
        )
        taken = (self._whole[:, 0] - before)[active.long()].tolist()
        self._ended = self._whole[:, ENDED].tolist()
        return taken, surrogates.tolist(), sizes.tolist()

    def ended(self, run: int) -> int:
        return self._ended[run]

    @property
    def prompts(self) -> PromptKernel:
        return PromptKernel(self._tables.cpu(), self._starts.cpu())
