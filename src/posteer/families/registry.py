"""Priors by name, and families by the name that bank files give them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from posteer.core.device import undisturbed
from posteer.core.registry import Registry
from posteer.core.spec import Spec, parse_spec
from posteer.families.protocol import Family, Prior

PRIORS: Registry[Callable[[Spec], Prior]] = Registry(
    "process",
    "priors",
    {
        "beta-bernoulli": "posteer.families.markov.dirichlet:beta_bernoulli",
        "urn": "posteer.families.markov.dirichlet:urn",
        "markov": "posteer.families.markov.dirichlet:from_spec",
        "atoms": "posteer.families.atoms.named:atoms",
        "hmm": "posteer.families.atoms.named:hmm",
        "mess3": "posteer.families.atoms.named:mess3",
        "rrxor": "posteer.families.atoms.named:rrxor",
        "sticky": "posteer.families.atoms.named:sticky",
        "context-tree": "posteer.families.context_trees.prior:from_spec",
        "random-hmm": "posteer.families.atoms.random_machines:random_hmm",
        "ginc": "posteer.families.atoms.ginc:ginc",
        "coins": "posteer.families.markov.mixtures:coins",
        "mixture": "posteer.families.markov.mixtures:from_spec",
        "chains": "posteer.families.markov.draws:chains",
        "draws": "posteer.families.markov.draws:draws",
        "dirichlet-mixture": "posteer.families.markov.fit.dirichlet_mixture:from_spec",
    },
)
"""Each makes a prior of its specification; `exact:name(..)` is then a model."""

FAMILIES: Registry[Callable[[Mapping[str, Any]], Family]] = Registry(
    "family of latents",
    "families",
    {
        "markov": "posteer.families.markov.family:from_facts",
        "hmm": "posteer.families.finite_state.machines:from_facts",
        "atoms": "posteer.families.atoms.classified:from_facts",
    },
)
"""Each makes a family of what the file of a bank says about it."""

BELIEFS: Registry[Callable[[Spec, int, Prior | None], Family]] = Registry(
    "family of latents",
    "beliefs",
    {
        "markov": "posteer.families.markov.family:asked_for",
        "hmm": "posteer.families.finite_state.machines:asked_for",
        "atoms": "posteer.families.atoms.classified:asked_for",
    },
)
"""Each makes a family of what a user believes of a model: its specification, the vocabulary, and
the prior where that is known."""


@undisturbed()
def open_process(text: str | Any) -> Prior:
    """A prior by name: `urn`, `beta-bernoulli`, `markov(vocab=3,order=2)`, `coins(0.2,0.7)`.

    >>> open_process("markov(vocab=3,order=1)").spec
    'markov(vocab=3,order=1,concentration=0.5)'
    """
    spec = parse_spec(text)
    return PRIORS[spec.name](spec)


def open_family(text: str | Any, vocab_size: int, prior: Prior | None = None) -> Family:
    """A family by name: `markov(order=2)`, `hmm(states=3)`, `hmm`, or `atoms` of a known prior.

    >>> open_family("hmm(states=3)", 2).name
    'hmm'
    """
    spec = parse_spec(text)
    return BELIEFS[spec.name](spec, vocab_size, prior)


def fingerprint(prior: Prior) -> str:
    """SHA-256 of what a prior is.

    >>> fingerprint(open_process("urn")) == fingerprint(open_process("markov(order=1)"))
    True
    """
    content = getattr(prior, "content", "")  # of a file that its text names
    return hashlib.sha256(f"{prior.spec}{content}".encode()).hexdigest()
