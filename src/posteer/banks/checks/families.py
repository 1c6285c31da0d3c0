"""Which family explains rollouts best: held-out log-likelihood per token of each.

One half of the rollouts fits, the other judges. A family is its latents and a law of them: k-Markov
kernels with Dirichlet rows, or a mixture of such, fitted to the counts of one half; HMMs of so many
states, of which as many machines share the rollouts as that half supports; the atoms of a known
prior as they are. Whole rollouts of the other half are judged: what a family learns within one on
the way counts in its favour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.atoms.classified import classified_by
from posteer.families.finite_state.fit import fit_mixture
from posteer.families.markov.fit.expectation_maximisation import (
    RolloutCounts,
    expectation_maximisation,
    initial_mixture,
)
from posteer.families.protocol import FinitePrior
from posteer.tokens.contexts import ContextSpace, count_transitions

ORDERS, STATES = range(4), range(2, 5)
"""Of k-Markov kernels and of HMMs that are tried; as many states as the model says, if more."""
MOST_COMPARED = 8
LARGEST_TABLE = 2**12
"""Probabilities of a kernel up to which an order is tried, and of the operators of an HMM."""
COMPONENTS = (1, 2, 4, 8)
STEPS, LAST_STEPS, ENOUGH = 25, 60, 1e-3
"""Of a climb, of the last one of machines, which are slower, and nats of a rollout that end it."""
ROLLOUTS = 256


@dataclass(frozen=True)
class Explained:
    """Nats per token of a family, `error` its standard error over rollouts; `behind` is by how much
    the best one is ahead, with the standard error of that difference."""

    family: str
    components: int
    log_likelihood: float
    error: float
    behind: float
    behind_error: float

    @property
    def as_good(self) -> bool:
        """Whether the best is ahead by no more than two standard errors."""
        return self.behind <= 2 * self.behind_error


@dataclass(frozen=True)
class FamilyCheck:
    """All families that were tried, the best first; `rollouts` judged, as many fitted. Those that
    could not have emitted one of them are `impossible`."""

    rollouts: int
    length: int
    tried: list[Explained]
    impossible: list[str]

    @property
    def best(self) -> Explained:
        return self.tried[0]

    @property
    def rivals(self) -> list[Explained]:
        """Those that cannot be told from the best."""
        return [one for one in self.tried[1:] if one.as_good]


def check_families(
    rollouts: Int[Tensor, "L T"], vocab_size: int, prior: object, n_states: int, seed: int
) -> FamilyCheck:
    """Rollouts of a model whose prior, if known and finite, is tried as well; and HMMs of up to
    `n_states` states or four."""
    shuffled = torch.randperm(len(rollouts), generator=torch_stream(seed, "family-halves"))
    kept = rollouts[shuffled[:ROLLOUTS]].long()
    fitting, judging = kept[::2], kept[1::2]
    found: dict[str, tuple[int, Tensor]] = {}
    for order in ORDERS:
        if vocab_size ** (order + 1) <= LARGEST_TABLE and order < kept.shape[1]:
            found[f"markov(order={order})"] = _markov(order, vocab_size, fitting, judging, seed)
    for n in range(STATES.start, min(MOST_COMPARED, max(STATES.stop - 1, n_states)) + 1):
        if n * n * vocab_size <= LARGEST_TABLE:
            found[f"hmm(states={n})"] = _machines(n, vocab_size, fitting, judging, seed)
    if isinstance(prior, FinitePrior):
        own = classified_by(prior, "atoms").prior
        found["atoms"] = len(own.atoms), own.evidence(judging)
    return compared(found, kept.shape[1])


def compared(found: dict[str, tuple[int, Tensor]], length: int) -> FamilyCheck:
    """Families by the mean of what each gives the same rollouts, the best first."""
    possible = {name: one for name, one in found.items() if bool(one[1].isfinite().all())}
    ordered = sorted(possible.items(), key=lambda item: -float(item[1][1].mean()))
    best = ordered[0][1][1] / length
    tried: list[Explained] = []
    for name, (components, total) in ordered:
        own = total / length
        tried.append(
            Explained(name, components, *_mean(own), *(_mean(best - own) if tried else (0.0, 0.0)))
        )
    return FamilyCheck(len(best), length, tried, sorted(set(found) - set(possible)))


def _mean(values: Float[Tensor, "L"]) -> tuple[float, float]:
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error


def _markov(
    order: int, vocab_size: int, fitting: Tensor, judging: Tensor, seed: int
) -> tuple[int, Tensor]:
    """Dirichlet rows fitted to counts; the first tokens, which set the context, are uniform."""
    space = ContextSpace(vocab_size, order)
    counts = [RolloutCounts(count_transitions(space, part)) for part in (fitting, judging)]

    def judged(n: int, fitted: RolloutCounts, others: RolloutCounts) -> Tensor:
        stream = numpy_stream(seed, "family-kernels", order, n)
        start = initial_mixture(space, fitted, n, stream)
        found = expectation_maximisation(fitted, start, max_steps=STEPS, tolerance=ENOUGH)
        return others.log_densities(found.mixture).logsumexp(-1)

    half = [RolloutCounts(counts[0].counts[start::2]) for start in range(2)]
    n = _supported(lambda n: judged(n, *half), len(fitting))
    return n, judged(n, *counts) - order * math.log(vocab_size)


def _machines(
    n_states: int, vocab_size: int, fitting: Tensor, judging: Tensor, seed: int
) -> tuple[int, Tensor]:
    def judged(n: int, fitted: Tensor, others: Tensor, steps: int = STEPS) -> Tensor:
        stream = numpy_stream(seed, "family-machines", n_states, n)
        found = fit_mixture(fitted, vocab_size, n_states, n, stream, restarts=2, steps=steps)
        return found.log_evidence(others)

    n = _supported(lambda n: judged(n, fitting[::2], fitting[1::2]), len(fitting))
    return n, judged(n, fitting, judging, LAST_STEPS)


def _supported(judged: Callable[[int], Tensor], n_fitting: int) -> int:
    """How many components one half of the fitting rollouts likes best of those that the other half
    is fitted with: twice as many, while that is better by more than two standard errors."""
    chosen, best = 1, judged(1)
    for n in COMPONENTS[1:]:
        if n > n_fitting // 8:
            break
        found = judged(n)
        mean, error = _mean(found - best)
        if mean <= 2 * error:
            break
        chosen, best = n, found
    return chosen
