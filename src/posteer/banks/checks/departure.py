"""How far a model is from a filter over its bank's latents, in nats per token.

On rollouts that no latent was read off, the model's law of the next token is compared with that of
the posterior mixture over latents, with a mixture that learns nothing from what it reads, and with
the best single latent; on random histories, as prompts are, with the mixture and with its
correction by what was read of the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.checks.statistics import Interval
from posteer.banks.correction import Correction, along
from posteer.banks.drawn import LatentBank
from posteer.banks.reading import n_own
from posteer.banks.tuning import mixture_log_laws
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.family import MarkovLatents
from posteer.models.protocol import Can, Model

HELD_OUT = 4
"""One history of so many judges the correction that the others make."""

SHORTEST = 4
"""Tokens of a history from which its law is judged."""

FEWEST = 32
"""Rollouts of a bank, of which half are left out."""

MOST_READINGS = 600
FORETOLD = (0.526, 0.421, 0.084)
"""The rank correlation of surrogate and J is about the first plus the second times the square root
of the share that the mixture explains on prompts, give or take the third: learned on 24 small
models and tested on 12 others (studies/correlations.py)."""

SIMULATED = 256
"""Rollouts of the latents that say what drift a filter would show."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Nats per token by which laws differ from the model's, with 95% intervals over histories.

    `mixture`, `unweighed` and `fixed` are on the model's own rollouts, of `entropy` nats a token;
    `on_prompts` and `corrected` on random histories, over which the model's law varies by
    `variation` about its mean. `drift` is how far the token frequencies of
    the halves of a rollout differ, `drift_of_filter` what rollouts of the latents show.
    `alphabet_share` is what the alphabet holds of the law of a language model.
    """

    rollouts: int
    length: int
    entropy: Interval
    mixture: Interval
    unweighed: Interval
    fixed: Interval
    on_prompts: Interval
    variation: Interval
    corrected: Interval
    drift: Interval
    drift_of_filter: Interval
    alphabet_share: float | None = None

    @property
    def explained_on_prompts(self) -> float:
        """The share of what prompts change in the model's law that the mixture has right."""
        return 1 - self.on_prompts.value / max(self.variation.value, 1e-12)

    @property
    def rank_correlation(self) -> Interval:
        """Of the bank's surrogate and J over prompts, foretold."""
        start, slope, off = FORETOLD
        value = start + slope * math.sqrt(max(0.0, self.explained_on_prompts))
        return Interval(value, value - 1.96 * off, min(1.0, value + 1.96 * off))

    @property
    def explained(self) -> float:
        """The share of what there is to learn from a history that the mixture learns."""
        there = self.unweighed.value
        return 1 - self.mixture.value / there if there > 0 else math.nan


def check_departure(model: Model | None, bank: LatentBank, seed: int = 0) -> Departure | None:
    """None of a bank that keeps no laws, or too few rollouts to leave some out. Only the share of
    an alphabet is asked of the model, where one is given."""
    read, latents = n_own(bank), bank.latents
    if bank.read is None or bank.sequences is None or not isinstance(latents, MarkovLatents):
        return None
    if len(bank) < FEWEST:
        return None
    own = min(read, len(bank) // 2)
    tokens, laws = bank.read.tokens.long(), bank.read.laws.clamp(min=1e-30)
    others = MarkovLatents(latents.space, latents.kernels[own:])
    first = max(latents.space.order, min(SHORTEST, tokens.shape[1] - 1))
    rollouts, along_rollouts = tokens[:own], laws[:own, first:]

    def gap(histories: Tensor, said: Tensor, temper: float) -> Interval:
        mixed = torch.stack(
            [
                mixture_log_laws(others, histories[:, :t], temper)
                for t in range(first, histories.shape[1] + 1)
            ],
            1,
        )
        return _interval(_divergence(said, mixed).mean(1))

    on_random = laws[read:, first:]
    alone = others.log_likelihood(bank.sequences[own:].long()).mean(0).argmax()
    single = MarkovLatents(latents.space, others.kernels[[int(alone)]])
    fixed = torch.stack(
        [mixture_log_laws(single, rollouts[:, :t], 1.0) for t in range(first, laws.shape[1])], 1
    )
    entropy = -(along_rollouts * along_rollouts.log()).sum(-1).mean(1)
    halves = _drift(bank.sequences.long(), latents.space.vocab_size)
    generator = torch_stream(seed, "drift-of-a-filter")
    simulated = latents.roll_out(bank.sequences.shape[1], generator)[:SIMULATED]
    return Departure(
        rollouts=own,
        length=tokens.shape[1],
        entropy=_interval(entropy),
        mixture=gap(rollouts, along_rollouts, bank.temper),
        unweighed=gap(rollouts, along_rollouts, 0.0),
        fixed=_interval(_divergence(along_rollouts, fixed).mean(1)),
        on_prompts=gap(tokens[read:], on_random, bank.temper),
        variation=_interval(_divergence(on_random, on_random.mean(0).log()).mean(1)),
        corrected=_corrected(bank, others, tokens, laws, first),
        drift=_interval(halves),
        drift_of_filter=_interval(_drift(simulated, latents.space.vocab_size)),
        alphabet_share=None if model is None else _share(model, tokens[read:]),
    )


def _corrected(
    bank: LatentBank,
    latents: MarkovLatents,
    tokens: Int[Tensor, "P T"],
    laws: Float[Tensor, "P T1 V"],
    first: int,
) -> Interval:
    """On every fourth random history, by what the others and the rollouts say."""
    at = torch.arange(len(tokens))
    judging = (at >= n_own(bank)) & (at % HELD_OUT == 0)
    lengths = range(first, tokens.shape[1] + 1)
    read = along(tokens[~judging], laws[~judging].log(), lengths)
    read = read.every(-(-len(read) // MOST_READINGS))
    temper = bank.temper
    found = Correction(lambda some: mixture_log_laws(latents, some, temper), read)
    judged, said = tokens[judging], laws[judging]
    each = [_divergence(said[:, t], found.log_laws(judged[:, :t])) for t in lengths]
    return _interval(torch.stack(each, 1).mean(1))


def _divergence(law: Float[Tensor, "*B V"], log_other: Float[Tensor, "*C V"]) -> Tensor:
    """Kullback and Leibler's, in nats."""
    return (law * (law.log() - log_other)).sum(-1)


def _drift(tokens: Int[Tensor, "L R"], vocab_size: int) -> Float[Tensor, "L"]:
    """Total variation between the token frequencies of the two halves of each rollout."""
    half = tokens.shape[1] // 2
    marks = torch.nn.functional.one_hot(tokens, vocab_size).double()
    return (marks[:, :half].mean(1) - marks[:, half : 2 * half].mean(1)).abs().sum(-1) / 2


def _share(model: Model, histories: Int[Tensor, "P T"]) -> float | None:
    if Can.SHARES not in model.can:
        return None
    return float(model.alphabet_share(histories[:8]).double().mean())


def _interval(values: Float[Tensor, "L"]) -> Interval:
    """The mean over histories and 95% of its normal approximation."""
    mean, error = float(values.mean()), float(values.std()) / len(values) ** 0.5
    return Interval(mean, mean - 1.96 * error, mean + 1.96 * error)
