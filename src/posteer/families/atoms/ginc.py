"""GINC: a uniform mixture of hidden Markov models whose states are (entity, property).

Xie, Raghunathan, Liang and Ma 2022, An explanation of in-context learning as implicit Bayesian
inference, appendix on the GINC dataset. A memory matrix holds a token for every entity and
property; property 0 is the delimiter, token 0, of every entity, all other tokens are drawn at
random. A state emits its token. Entities and properties move independently of each other: entities
stay with probability `stay` or more, by one matrix for all concepts; how properties follow each
other, and the start law, are what a concept is.
"""

from __future__ import annotations

from typing import Any

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

COLDEST, HOTTEST = 1e-3, 1e6


def ginc(spec: Spec) -> AtomPrior:
    """`ginc(vocab=20,concepts=5,entities=5,properties=5,temperature=0.1,start-temperature=10,
    stay=0.9,seed=0)`; the paper has 10 entities, 10 properties and 50, 100 or 150 tokens."""
    names: dict[str, Any] = {"temperature": 0.1, "start-temperature": 10.0, "stay": 0.9}
    given = spec.take((), vocab=20, concepts=5, entities=5, properties=5, seed=0, **names)
    vocab = within(given["vocab"], "ginc: vocab", 2, MOST_STATES)
    concepts = within(given["concepts"], "ginc: concepts", 1, MOST_ATOMS)
    entities = within(given["entities"], "ginc: entities", 1, MOST_STATES)
    properties = within(given["properties"], "ginc: properties", 2, MOST_STATES)
    seed = within(given["seed"], "ginc: seed", -MOST_SEED, MOST_SEED)
    cold, warm, stay = (number(given[name], f"ginc: {name}") for name in names)
    for name, found in (("temperature", cold), ("start-temperature", warm)):
        good = COLDEST <= found <= HOTTEST
        require(good, f"ginc: {name} {found:g}: expected {COLDEST:g} to {HOTTEST:g}")
    require(0 <= stay <= 1, f"ginc: stay {stay:g}: expected 0 to 1")
    states = entities * properties
    size = concepts * states * vocab * states
    require_room(size, "ginc")

    memory = memory_matrix(seed, vocab, entities, properties)
    mixed = of_permutations(numpy_stream(seed, "ginc-entities"), entities, cold)
    of_entities = stay * np.eye(entities) + (1 - stay) * mixed
    starts, operators = [], []
    emits = np.eye(vocab)[memory.ravel()]
    for concept in range(concepts):
        stream = numpy_stream(seed, "ginc-concept", concept)
        moves = np.kron(of_entities, of_permutations(stream, properties, cold))
        starts.append(softmax(stream.random(states) - 0.5, warm))
        operators.append(emits[:, :, None] * moves[:, None, :])
    machines = StateLatents(
        torch.from_numpy(np.stack(starts)), torch.from_numpy(np.stack(operators))
    )
    text = (
        f"ginc(vocab={vocab},concepts={concepts},entities={entities},properties={properties},"
        f"temperature={cold},start-temperature={warm},stay={stay},seed={seed})"
    )
    return AtomPrior.of(machines, None, text)


def memory_matrix(seed: int, vocab: int, entities: int, properties: int) -> np.ndarray:
    """The token of every entity and property; the first property is the delimiter."""
    memory = numpy_stream(seed, "ginc-memory").integers(1, vocab, size=(entities, properties))
    memory[:, 0] = 0
    return memory


def of_permutations(stream: np.random.Generator, n: int, temperature: float) -> np.ndarray:
    """A transition matrix: n random permutations, mixed by a softmax of uniform numbers."""
    weights = softmax(stream.random(n) - 0.5, temperature)
    mixed = np.zeros((n, n))
    for weight in weights:
        mixed[np.arange(n), stream.permutation(n)] += weight
    return mixed


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities in proportion to `exp(logit / temperature)`."""
    scaled = np.exp((logits - logits.max()) / temperature)
    return scaled / scaled.sum()
