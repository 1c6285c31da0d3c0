"""One call from the name of a model to a bank of its latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posteer.banks.drawn import LatentBank
from posteer.banks.parts import checked_path
from posteer.banks.rollouts import DrawPlan, draw_bank
from posteer.banks.shipped import shipped_bank
from posteer.core import Progress, require
from posteer.core.limits import N_SAMPLES, ROLLOUT_LENGTH
from posteer.models.meter import Metered
from posteer.models.protocol import Model
from posteer.models.registry import open_model
from posteer.tokens.prompts import parse_context


def sample(
    model: str | Model | Any,
    *,
    rollouts: int = N_SAMPLES,
    length: int = ROLLOUT_LENGTH,
    seed: int = 0,
    context: str | Sequence[int] = (),
    unvisited: str = DrawPlan().unvisited,
    keep_tokens: bool = False,
    out: str | Path | None = None,
    chunk: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> LatentBank:
    """Draw a model's own latent prior, or its posterior after `context`, by rolling it out.

    With `out`, the same call goes on where an interrupted one stopped, and returns what is there if
    it is whole. Without it, the bank shipped with a model is returned if these are its
    settings. Either is then `reused`. A file of a model that predicts otherwise now is refused.

    >>> bank = sample("exact:urn", rollouts=100, length=50)
    >>> tuple(bank.kernels.shape), bank.tokens
    ((100, 2, 2), 4900)
    """
    opened = open_model(model, device)
    plan = DrawPlan(
        n_samples=rollouts,
        rollout_length=length,
        seed=seed,
        context=parse_context(context, opened.vocab_size),
        unvisited=unvisited,
        keep_tokens=keep_tokens,
    )
    require(chunk is None or chunk >= 1, f"chunk {chunk}: expected at least 1 rollout")
    if out is None and plan == DrawPlan():
        shipped = shipped_bank(opened.fingerprint)
        if shipped is not None:
            return replace(shipped, reused=True)
    where = None if out is None else checked_path(Path(out))
    return draw_bank(Metered(opened), plan, where, chunk=chunk, progress=progress)
