"""Hidden Markov models drawn at random: a prior over their parameters as many draws of it."""

from __future__ import annotations

import numpy as np
import torch

from posteer.core import Spec, number, require
from posteer.core.limits import MOST_SEED
from posteer.core.randomness import numpy_stream
from posteer.core.spec import within
from posteer.families.atoms.named import MOST_STATES
from posteer.families.atoms.prior import MOST_ATOMS, AtomPrior
from posteer.families.finite_state.machines import StateLatents
from posteer.families.finite_state.values import require_room

LEAST_CONCENTRATION, MOST_CONCENTRATION = 1e-2, 1e6
"""Below, rows are single tokens; above, they are uniform."""


def random_hmm(spec: Spec) -> AtomPrior:
    """`random-hmm(states=3,vocab=3,n=1000,concentration=1,seed=0)`: n hidden Markov models, start
    law, moves and emissions of each drawn row by row from a symmetric Dirichlet."""
    given = spec.take(states=3, vocab=3, n=1000, concentration=1.0, seed=0)
    states = within(given["states"], "random-hmm: states", 1, MOST_STATES)
    vocab = within(given["vocab"], "random-hmm: vocab", 2, MOST_STATES)
    n = within(given["n"], "random-hmm: n", 1, MOST_ATOMS)
    seed = within(given["seed"], "random-hmm: seed", -MOST_SEED, MOST_SEED)
    peaked = concentration_of(given["concentration"], "random-hmm")
    size = n * states * vocab * states
    require_room(size, "random-hmm")
    stream = numpy_stream(seed, "random-hmm")

    def rows(*shape: int) -> torch.Tensor:
        return torch.from_numpy(dirichlet_rows(stream, shape, peaked))

    initial, moves, emits = rows(n, states), rows(n, states, states), rows(n, states, vocab)
    operators = emits[..., None] * moves[:, :, None]
    text = f"random-hmm(states={states},vocab={vocab},n={n},concentration={peaked},seed={seed})"
    return AtomPrior.of(StateLatents(initial, operators), None, text)


def concentration_of(given: object, what: str) -> float:
    """The concentration of a symmetric Dirichlet, or a refusal."""
    found = number(given, f"{what}: concentration")
    good = LEAST_CONCENTRATION <= found <= MOST_CONCENTRATION
    require(
        good,
        f"{what}: concentration {found:g}: expected {LEAST_CONCENTRATION:g} to "
        f"{MOST_CONCENTRATION:g}",
    )
    return found


def dirichlet_rows(
    stream: np.random.Generator, shape: tuple[int, ...], concentration: float
) -> np.ndarray:
    """Laws along the last axis, drawn from a symmetric Dirichlet."""
    *rows, width = shape
    found = stream.dirichlet(np.full(width, concentration), size=tuple(rows))
    return found / found.sum(-1, keepdims=True)
