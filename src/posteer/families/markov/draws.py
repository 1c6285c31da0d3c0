"""Priors that are many draws: of chains, or of any other prior. Exact Bayes over them is exact."""

from __future__ import annotations

from typing import Any

import torch

from posteer.core import InputError, Spec, require
from posteer.core.limits import MOST_SEED
from posteer.core.randomness import numpy_stream
from posteer.core.spec import shown, within
from posteer.families.atoms.prior import MOST_ATOMS, AtomPrior
from posteer.families.atoms.random_machines import concentration_of, dirichlet_rows
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.finite_state.values import require_room
from posteer.families.markov.family import MarkovLatents
from posteer.families.markov.mixtures import MOST_KERNELS, FiniteMixture
from posteer.families.protocol import Latents
from posteer.families.reading import ReadingLatents
from posteer.families.registry import open_process
from posteer.tokens.contexts import ContextSpace


def chains(spec: Spec) -> FiniteMixture:
    """`chains(n=8,vocab=10,order=1,concentration=1,seed=0)`: n Markov chains, rows drawn from a
    symmetric Dirichlet, one of them chosen at random for each sequence.

    The task of Park et al. 2024 (Competition dynamics shape algorithmic phases of in-context
    learning): 10 states, concentration 1. Few chains are memorised, many are not,
    and a model infers the transitions from what it reads. They start a chain with its stationary
    law; here, as in every Markov prior, the first tokens are uniform.
    """
    given = spec.take(n=8, vocab=10, order=1, concentration=1.0, seed=0)
    n = within(given["n"], "chains: n", 1, MOST_KERNELS)
    vocab = within(given["vocab"], "chains: vocab", 2, 1000)
    order = within(given["order"], "chains: order", 0, 32)
    seed = within(given["seed"], "chains: seed", -MOST_SEED, MOST_SEED)
    peaked = concentration_of(given["concentration"], "chains")
    size = n * vocab ** (order + 1)
    require_room(size, "chains")
    space = ContextSpace(vocab, order)
    rows = dirichlet_rows(numpy_stream(seed, "chains"), (n, space.n_contexts, vocab), peaked)
    text = f"chains(n={n},vocab={vocab},order={order},concentration={peaked},seed={seed})"
    return FiniteMixture.of(space, torch.from_numpy(rows), text=text)


def draws(spec: Spec) -> AtomPrior | FiniteMixture:
    """`draws(urn,n=1000,seed=0)`: so many latents of a prior, equally likely, in its place. Kernels
    are still counted."""
    given = spec.take(("prior",), prior=..., n=1000, seed=0)
    text = given["prior"]
    require(isinstance(text, str), f"draws: {shown(text)}: expected a prior such as urn")
    n = within(given["n"], "draws: n", 1, MOST_ATOMS)
    seed = within(given["seed"], "draws: seed", -MOST_SEED, MOST_SEED)
    prior = open_process(text)
    order, vocab = prior.family.order, prior.family.vocab_size
    size = n * vocab ** (order + 1)
    require_room(size, "draws")
    latents = prior.sample(n, numpy_stream(seed, "draws"))
    whole = f"draws({prior.spec},n={n},seed={seed})"
    if isinstance(latents, MarkovLatents) and n <= MOST_KERNELS:
        return FiniteMixture.of(latents.space, latents.kernels.double(), text=whole)
    atoms = _readable(latents, text)
    return AtomPrior.of(atoms, None, whole, content=getattr(prior, "content", ""))


def _readable(latents: Latents | Any, text: str) -> ReadingLatents:
    if isinstance(latents, MarkovLatents):
        return from_kernels(list(latents.kernels.double()))
    if not isinstance(latents, ReadingLatents):
        raise InputError(f"draws: latents of {shown(text)} do not read token by token")
    return latents
