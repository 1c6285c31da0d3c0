"""Hidden Markov models read off what they emitted: one for each rollout, or a few for all.

A latent of a bank is the machine of one rollout. Rollouts of a trained mixture share a few
machines: those are its components, found by EM over which rollout is whose. Everything climbs at
once, rollouts times restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.families.finite_state.expectations import (
    Tables,
    all_log_likelihoods,
    expected_moves,
    expected_shares,
    improved,
    log_likelihoods,
)

RESTARTS = 3
"""Starts of each climb; most are left after `SHORT` steps on `SHORT_TOKENS` tokens."""
SHORT, LONG, SHORT_TOKENS = 15, 60, 512
ENOUGH = 0.05
"""Nats of a whole sequence: a climb that gains less in a step has arrived."""

PULL = 1.0
"""Moves that each state is given beyond what was read: what was never met is unlikely then, not
impossible."""

POOLED, COMPONENTS = 48, 4
"""Rollouts, and machines, of the mixture that climbs of single rollouts start from."""

LEAST_SHARE = 0.75
"""Of each rollout, what is fitted where the rest is to judge how many states there are."""
JUDGING = 96
"""Rollouts that judge."""


@dataclass(frozen=True, eq=False)
class Climbed:
    """Where climbs arrived; `history[k]` are the values before step k, `nan` for those that had
    arrived before."""

    tables: Tables
    value: Float[Tensor, "M"]
    history: list[Float[Tensor, "M"]]


def climb(
    tables: Tables,
    sequences: Int[Tensor, "M T"],
    *,
    steps: int = LONG,
    enough: float = ENOUGH,
    centre: Float[Tensor, "M S V S"] | None = None,
    pull: float = 0.0,
) -> Climbed:
    """Baum and Welch, a machine for each sequence, until a step gains less than `enough`.

    The value that never falls is the log-likelihood, plus `pull` times what the logarithms of a
    row are in the mean of the centre's: the density of Dirichlet rows around it.
    """
    initial, operators = tables.initial.clone(), tables.operators.clone()
    value = torch.full((len(tables),), -torch.inf, dtype=torch.float64)
    climbing, history = torch.arange(len(tables)), []
    for _ in range(steps):
        now = Tables(initial[climbing], operators[climbing])
        own = None if centre is None else centre[climbing]
        expected = expected_moves(now, sequences[climbing])
        reached = expected.log_likelihood + _pulled(now, own, pull)
        better = improved(now, expected, own, pull)
        initial[climbing], operators[climbing] = better.initial, better.operators
        goes_on = ~(reached - value[climbing] < enough)
        value[climbing] = reached
        history.append(torch.full_like(value, torch.nan).index_copy(0, climbing, reached))
        climbing = climbing[goes_on]
        if len(climbing) == 0:
            break
    return Climbed(Tables(initial, operators), value, history)


def _pulled(tables: Tables, centre: Tensor | None, pull: float) -> Float[Tensor, "M"]:
    if centre is None or pull == 0:
        return tables.initial.new_zeros(len(tables))
    return pull * torch.special.xlogy(centre, tables.operators).sum((1, 2, 3))


def fit_each(
    sequences: Int[Tensor, "R T"],
    vocab_size: int,
    n_states: int,
    stream: np.random.Generator,
    *,
    uniform: bool = False,
    restarts: int = RESTARTS,
) -> Tables:
    """A machine for each sequence, which starts with its stationary law: of a start that happened
    once a sequence tells next to nothing. What a sequence never met is filled in by what others
    like it did, or alike for all tokens and states where `uniform`."""
    n = len(sequences)
    chosen = torch.from_numpy(stream.permutation(n)[:POOLED])
    some = sequences[chosen][:, :SHORT_TOKENS]
    components = max(1, min(COMPONENTS, len(some) // 4))
    pooled = fit_mixture(some, vocab_size, n_states, components, stream)
    early = sequences[:, :SHORT_TOKENS]
    own = pooled.tables.pick(pooled.log_likelihoods(early).argmax(1))
    centre = _uniform(own.operators) if uniform else _softened(own.operators)
    more = [random_tables(early, vocab_size, n_states, stream) for _ in range(restarts - 1)]
    starts = Tables.join([own, *more])
    alike = centre.repeat(restarts, 1, 1, 1)
    short = climb(starts, early.repeat(restarts, 1), steps=SHORT, centre=alike, pull=PULL)
    best = short.value.view(restarts, n).argmax(0) * n + torch.arange(n)
    found = climb(short.tables.pick(best), sequences, centre=centre, pull=PULL).tables
    return Tables(stationary(found.operators), found.operators)


def random_tables(
    sequences: Int[Tensor, "M T"], vocab_size: int, n_states: int, stream: np.random.Generator
) -> Tables:
    """A start for each sequence: moves at random, emissions at random around its tokens'."""
    n = len(sequences)
    share = torch.nn.functional.one_hot(sequences.long(), vocab_size).double().mean(1) + 0.01
    noise = torch.from_numpy(stream.gamma(1.0, size=(n, n_states, vocab_size)))
    emits = _normal(share[:, None] * noise + 1e-6)
    moves = _normal(torch.from_numpy(stream.gamma(1.0, size=(n, n_states, n_states))) + 1e-6)
    initial = torch.full((n, n_states), 1 / n_states, dtype=torch.float64)
    return Tables(initial, emits[..., None] * moves[:, :, None])


def _normal(rows: Tensor) -> Tensor:
    return rows / rows.sum(-1, keepdim=True)


def _uniform(operators: Tensor) -> Tensor:
    return torch.full_like(operators, 1 / operators[0, 0].numel())


def _softened(operators: Tensor) -> Tensor:
    """With no zeros: what nobody met is unlikely."""
    return 0.98 * operators + 0.02 * _uniform(operators)


def stationary(operators: Float[Tensor, "M S V S"]) -> Float[Tensor, "M S"]:
    """The law of states that a long history leaves, averaged over its phases."""
    moves = operators.sum(2)
    n, size = len(moves), moves.shape[1]
    system = torch.cat(
        [moves.mT - torch.eye(size, dtype=moves.dtype), moves.new_ones(n, 1, size)], 1
    )
    target = moves.new_zeros(n, size + 1, 1)
    target[:, -1] = 1.0
    law = torch.linalg.lstsq(system, target, driver="gelsd").solution[..., 0].clamp(min=0.0)
    return law / law.sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class MachineMixture:
    """One of J machines emitted each sequence; `history` is the value before each step."""

    tables: Tables
    log_weights: Float[Tensor, "J"]
    history: list[float]

    def log_likelihoods(self, sequences: Int[Tensor, "R T"]) -> Float[Tensor, "R J"]:
        """Of each sequence under each machine."""
        return all_log_likelihoods(self.tables, sequences)

    def log_evidence(self, sequences: Int[Tensor, "R T"]) -> Float[Tensor, "R"]:
        """`log p` of each sequence, whichever machine emitted it."""
        return (self.log_likelihoods(sequences) + self.log_weights).logsumexp(-1)


def fit_mixture(
    sequences: Int[Tensor, "R T"],
    vocab_size: int,
    n_states: int,
    n_components: int,
    stream: np.random.Generator,
    *,
    restarts: int = RESTARTS,
    steps: int = LONG,
) -> MachineMixture:
    """`n_components` machines for all sequences, one for each: which, is found out."""
    starts = [
        random_tables(_whole(sequences), vocab_size, n_states, stream) for _ in range(restarts)
    ]
    one = _climb_mixtures(starts, sequences, steps)
    if n_components == 1:
        return one
    seeds = [_seeds(one.tables, sequences, n_components, stream) for _ in range(restarts)]
    return _climb_mixtures(seeds, sequences, steps)


def _whole(sequences: Int[Tensor, "R T"]) -> Int[Tensor, "1 N"]:
    return sequences.reshape(1, -1)


def _seeds(
    pooled: Tables, sequences: Int[Tensor, "R T"], n_components: int, stream: np.random.Generator
) -> Tables:
    """Machines of single sequences, each of one that those before it explain badly."""
    n = len(sequences)
    common = pooled.pick(torch.zeros(n, dtype=torch.long))
    centre = _softened(common.operators)
    own = climb(common, sequences, steps=4, centre=centre, pull=4 * PULL)
    reached = log_likelihoods(own.tables, sequences)
    chosen, lost = [int(stream.integers(n))], torch.full_like(reached, torch.inf)
    for _ in range(n_components - 1):
        last = own.tables.pick(torch.full((n,), chosen[-1]))
        lost = torch.minimum(lost, (reached - log_likelihoods(last, sequences)).clamp(min=0.0))
        law = lost.clamp(max=1e6) + 1e-9
        chosen.append(int(stream.choice(n, p=(law / law.sum()).numpy())))
    return own.tables.pick(torch.tensor(chosen))


def _climb_mixtures(
    starts: list[Tables], sequences: Int[Tensor, "R T"], steps: int
) -> MachineMixture:
    """The best of a few short climbs, climbed to the end."""
    size = len(starts[0])
    level = torch.full((size,), 1 / size, dtype=torch.float64).log()
    tables, weights = Tables.join(starts), level.repeat(len(starts), 1)
    history: list[Tensor] = []
    for step in range(steps):
        if step == SHORT and len(weights) > 1:
            best = int(history[-1].argmax())
            tables = tables.pick(torch.arange(best * size, (best + 1) * size))
            weights, history = weights[best : best + 1], [past[best : best + 1] for past in history]
        value, tables, weights = mixture_step(tables, weights, sequences)
        history.append(value)
        if len(history) > 1 and len(weights) == 1 and float(value - history[-2]) < ENOUGH:
            break
    best = int(history[-1].argmax())
    return MachineMixture(
        tables.pick(torch.arange(best * size, (best + 1) * size)),
        weights[best],
        [float(past[best]) for past in history],
    )


def mixture_step(
    tables: Tables, log_weights: Float[Tensor, "K J"], sequences: Int[Tensor, "R T"]
) -> tuple[Float[Tensor, "K"], Tables, Float[Tensor, "K J"]]:
    """One step of K mixtures, their machines one after another: the value before it, pull
    included, and what they are after it."""
    size = log_weights.shape[1]
    expected, shares = expected_shares(tables, log_weights, sequences)
    centre = _uniform(tables.operators)
    each = torch.full_like(tables.initial, 1 / tables.initial.shape[1])
    moves, first = expected.moves + PULL * centre, expected.first + PULL * each
    value = expected.log_likelihood.sum(1) + _density(tables, centre, each, log_weights)
    total = shares.sum(2) + PULL / size
    better = Tables(_normal(first), moves / moves.sum((2, 3), keepdim=True))
    return value, better, (total / total.sum(1, keepdim=True)).log()


def _density(tables: Tables, centre: Tensor, each: Tensor, log_weights: Tensor) -> Tensor:
    """What the pull adds to the value of each mixture."""
    kinds, size = log_weights.shape
    rows = torch.special.xlogy(centre, tables.operators).sum((1, 2, 3))
    starts = torch.special.xlogy(each, tables.initial).sum(1)
    return PULL * ((rows + starts).view(kinds, size).sum(1) + log_weights.sum(1) / size)


def choose_states(
    sequences: Int[Tensor, "R T"], vocab_size: int, most: int, stream: np.random.Generator
) -> tuple[int, dict[int, float]]:
    """How many states rollouts ask for, and the mean log-likelihood per token of their later part,
    each under the machine of its own earlier part: more states are taken only where they raise it
    by more than two standard errors."""
    some = sequences[:JUDGING]
    cut = max(1, int(LEAST_SHARE * some.shape[1]))
    chosen, tried = 1, {}
    best: Tensor | None = None
    for n_states in range(1, most + 1):
        fitted = fit_each(some[:, :cut], vocab_size, n_states, stream)
        later = log_likelihoods(fitted, some) - log_likelihoods(fitted, some[:, :cut])
        tried[n_states] = float(later.mean()) / max(1, some.shape[1] - cut)
        gain = later if best is None else later - best
        if best is None or float(gain.mean()) > 2 * float(gain.std()) / len(gain) ** 0.5:
            chosen, best = n_states, later
    return chosen, tried
