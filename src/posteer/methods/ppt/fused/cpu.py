"""Ascents on the CPU by compiled kernels: a run to a thread, its latents in lanes.

Runs are independent, so threads never wait for each other within a call, each run's latents stay
in the cache of its core, and no result depends on how many threads there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from posteer.core.shapes import Bool, Float
from posteer.families.markov.tilt import PromptKernel
from posteer.methods.ppt.ascent import AscentSettings
from posteer.methods.ppt.estimator import TiltedRuns
from posteer.methods.ppt.fused.inputs import averaged
from posteer.methods.ppt.fused.lanes import LANES
from posteer.methods.ppt.fused.steps import ENDED, advance_geometric, advance_linear

NUMBERS_IN_A_CALL = 2**24
"""Of latents, read by one call for a run: it lasts a tenth of a second or so."""


class CpuClimb:
    """The runs of a batch, part of the way up."""

    def __init__(
        self,
        runs: TiltedRuns,
        prompt: PromptKernel,
        settings: AscentSettings,
        factor: Float[Tensor, "B"],
        first_contexts: Bool[Tensor, "B C"] | None,
    ) -> None:
        n, contexts, tokens = prompt.transitions.shape
        n_latents, logs, asked = runs.latents.shape[-1], runs.logs, averaged(runs)
        fixed = (settings.learning_rate, settings.floor, settings.tolerance)
        pairs = zip(asked.near.tolist(), factor.tolist(), strict=True)
        sizes = (runs.n_transitions, n_latents, asked.horizon, 0, 0)
        every = torch.ones(n, contexts, dtype=torch.bool)
        self._tables = prompt.transitions.numpy().copy()
        self._starts = prompt.initial.numpy().copy()
        self._whole = np.array([[0, *sizes, settings.patience, settings.max_steps]] * n)
        self._state = (
            self._tables,
            self._starts,
            (every if first_contexts is None else first_contexts).numpy(),
            np.zeros((n, 3, tokens)),
            self._tables.copy(),
            self._starts.copy(),
            np.array([[-np.inf, near, times, *fixed] for near, times in pairs]),
            self._whole,
        )
        self._averaged = (
            _blocks(asked.means, n, 2, 0.0),
            asked.worth.numpy(),
            asked.keys.numpy(),
        )
        kernels = _blocks(runs.latents, n, 3, 1 / tokens)
        beside = (
            (_blocks(runs.first_likelihood, n, 2, 0.0),)
            if logs is None
            else (_blocks(logs.kernels, n, 3, 0.0), _blocks(logs.first, n, 2, 0.0))
        )
        self._latents = (kernels, *beside)
        self._advance = advance_linear if logs is None else advance_geometric
        self.steps_at_once = max(1, NUMBERS_IN_A_CALL // (n_latents * contexts * tokens))

    def advance(
        self, runs: Sequence[int], n_steps: int
    ) -> tuple[list[int], list[list[float]], list[list[float]]]:
        """Climb for some steps: how many each run took, their surrogates and sample sizes."""
        surrogates, sizes = np.empty((2, len(runs), n_steps))

        def climb(row: int) -> int:
            state, latents, asked = (
                tuple(array[runs[row]] for array in arrays)
                for arrays in (self._state, self._latents, self._averaged)
            )
            return self._advance(state, *latents, asked, surrogates[row], sizes[row])

        threads = min(torch.get_num_threads(), len(runs))
        if threads == 1:
            taken = [climb(row) for row in range(len(runs))]
        else:
            with ThreadPoolExecutor(threads) as pool:
                taken = list(pool.map(climb, range(len(runs))))
        return taken, surrogates.tolist(), sizes.tolist()

    def ended(self, run: int) -> int:
        return int(self._whole[run, ENDED])

    @property
    def prompts(self) -> PromptKernel:
        return PromptKernel(torch.from_numpy(self._tables), torch.from_numpy(self._starts))


def _blocks(
    values: Float[Tensor, "B *C L"] | None, n_runs: int, n_axes: int, padding: float
) -> np.ndarray:
    """`[B, ..., L]` as `[B, blocks, ..., LANES]`; no blocks where there are no values."""
    if values is None:
        return np.zeros((n_runs, 0, *[0] * n_axes))
    missing = -values.shape[-1] % LANES
    padded = torch.nn.functional.pad(values, (0, missing), value=padding)
    return padded.unflatten(-1, (-1, LANES)).movedim(-2, 1).contiguous().numpy()
