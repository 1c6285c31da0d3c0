"""What kernels read of a batch of runs, and which batches they serve."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.goals.protocol import Utility
from posteer.methods.ppt.estimator import ExactMeans, Runs, SingleRollouts, TiltedRuns
from posteer.tokens.contexts import ContextSpace, all_sequences

MOST_CONTINUATIONS = 2**16
"""From all contexts together: so many are looked up, more are left to torch."""
MOST_CONTEXTS = {"cpu": 256, "cuda": 4}
"""Kernels for a GPU keep whole matrices in registers."""

RUNNING, STUCK, AT_LIMIT, DIVERGED, LEFT_TO_TORCH = range(5)
"""How a run stands."""


def can_be_fused(runs: Runs) -> bool:
    """Markov latents, exact means or continuations few enough to be looked up, contexts few enough
    for caches or registers."""
    if not isinstance(runs, TiltedRuns) or runs.n_transitions < 1:
        return False
    space, source = runs.space, runs.source
    if space.n_contexts > MOST_CONTEXTS[runs.device.type]:
        return False
    if isinstance(source, SingleRollouts):
        return space.n_contexts * space.vocab_size**source.horizon <= MOST_CONTINUATIONS
    return isinstance(source, ExactMeans)


@dataclass(frozen=True, eq=False)
class Averaged:
    """What is averaged over latents: known means, or what continuations are `worth`, which are
    drawn under each run's key. `near` is about what they average to: sums are taken beyond it."""

    near: Float[Tensor, "B"]
    means: Float[Tensor, "B C L"] | None
    worth: Float[Tensor, "B C K"]
    keys: Int[Tensor, "B 2"]
    horizon: int


def averaged(runs: TiltedRuns) -> Averaged:
    """A batch's source, as kernels read it."""
    source = runs.source
    if isinstance(source, SingleRollouts):
        worth = _worths(source)
        return Averaged(_middle(worth), None, worth, source.keys.cpu(), source.horizon)
    assert isinstance(source, ExactMeans)
    n = len(runs)
    none = torch.zeros(n, 0, 0, dtype=torch.float64), torch.zeros(n, 2, dtype=torch.long)
    return Averaged(_middle(source.means), source.means, *none, 0)


def _middle(values: Float[Tensor, "B C K"]) -> Float[Tensor, "B"]:
    middle = values.mean((1, 2))
    return torch.where(middle.isfinite(), middle, 0.0)


def _worths(source: SingleRollouts) -> Float[Tensor, "B C K"]:
    """What each continuation is worth from each context, to each run."""
    known: dict[int, Tensor] = {}
    for utility in source.utilities:
        if id(utility) not in known:
            known[id(utility)] = _worth(source.space, utility, source.horizon)
    return torch.stack([known[id(utility)] for utility in source.utilities])


def _worth(space: ContextSpace, utility: Utility, horizon: int) -> Float[Tensor, "C K"]:
    words = all_sequences(space.vocab_size, horizon)
    shape = (space.n_contexts, len(words))
    read = torch.arange(space.n_contexts) % space.vocab_size**utility.order
    return utility(words.expand(*shape, -1), read[:, None].expand(shape)).double()
