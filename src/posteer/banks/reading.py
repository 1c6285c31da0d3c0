"""What a model says along some histories: its own rollouts, and random tokens as prompts are.

A bank of a model that is no declared filter keeps these laws: they tell how far the model is from
the mixture over its latents, and correct that mixture where prompts are tried.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.banks.correction import Correction, along
from posteer.banks.drawn import LatentBank
from posteer.banks.plans import READ_RANDOM, READ_ROLLOUTS, READ_TOKENS
from posteer.banks.probes import Probe
from posteer.banks.tuning import mixture_log_laws
from posteer.core.progress import Progress
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Int
from posteer.families.markov.family import MarkovLatents
from posteer.models.meter import Metered

NEAR = 2
"""Tokens by which a history may be shorter than a prompt to tell of it."""

TOKENS_AT_ONCE = 1024
"""That a model reads before progress is told."""

MOST_READINGS = 1600
"""Histories that a correction is made of: its work grows with their third power."""


def histories_of(rollouts: Int[Tensor, "L R"], vocab_size: int, seed: int) -> Int[Tensor, "P T"]:
    """The beginnings of the first rollouts, then random tokens."""
    width = min(READ_TOKENS, rollouts.shape[1] - 1)  # a model may read no more
    own = rollouts[:READ_ROLLOUTS, :width].long()
    generator = torch_stream(seed, "read-histories")
    random = torch.randint(vocab_size, (READ_RANDOM, own.shape[1]), generator=generator)
    return torch.cat([own, random])


def read_laws(
    model: Metered,
    context: tuple[int, ...],
    histories: Int[Tensor, "P T"],
    progress: Progress | None = None,
) -> Probe:
    """The model's laws after every beginning of the histories, in batches that it takes."""
    before, known = torch.tensor(context, dtype=torch.long), len(context)
    laws: list[Tensor] = []
    width = known + histories.shape[1]
    for some in histories.split(max(1, min(model.batch_limit(width), TOKENS_AT_ONCE // width))):
        if progress is not None:
            progress("reading histories", sum(map(len, laws)), len(histories))
        whole = torch.cat([before.expand(len(some), -1), some], 1)
        laws.append(model.log_predictive(whole)[:, known:].double().exp().cpu())
        model.check_laws()
    return Probe(histories.to(torch.int32), torch.cat(laws))


def n_own(bank: LatentBank) -> int:
    """How many of a bank's first rollouts were read."""
    return 0 if bank.read is None else min(READ_ROLLOUTS, len(bank))


def correction_of(bank: LatentBank, length: int, horizon: int) -> Correction | None:
    """The mixture over a bank's latents, corrected by what was read at about the length of prompts;
    None of a bank that keeps no laws, or whose latents are no kernels."""
    latents = bank.latents
    if bank.read is None or not isinstance(latents, MarkovLatents):
        return None
    tokens = bank.read.tokens.long()
    width = tokens.shape[1]
    last = min(width, length + horizon - 1)
    first = max(1, min(length - NEAR, last - NEAR))
    log_laws = bank.read.laws.clamp(min=1e-30).log()
    readings = along(tokens, log_laws, range(first, last + 1))
    if len(readings) > MOST_READINGS:
        readings = readings.every(-(-len(readings) // MOST_READINGS))
    temper = bank.temper

    def mixture(histories: Tensor) -> Tensor:
        return mixture_log_laws(latents, histories, temper)

    return Correction(mixture, readings)
