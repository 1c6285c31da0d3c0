"""How many classes of allowed prompts there are: those that J can tell apart."""

import random

import numpy as np
import torch
from oracles import context_number, kernel_probability, says, sequences
from posing import posed

from posteer.families.markov.prompt_classes import ClassProblem
from posteer.methods.answers import Scope
from posteer.methods.climbing.search import SearchSettings, search_classes
from posteer.methods.registry import open_method
from posteer.methods.scorers.protocol import HardScores
from posteer.tokens.conditions import parse_allowed
from posteer.tokens.contexts import ContextSpace


def random_conditions(draw, vocab, length):
    """Ends of up to three tokens, banned pairs and bounds on a count, some of them."""

    def word(most):
        return "".join(str(draw.randrange(vocab)) for _ in range(draw.randint(1, most)))

    kinds = {
        "first": f"first={word(3)}",
        "last": f"last={word(3)}",
        "ban": f"ban={word(1)}{word(1)}",
        "count": f"count({draw.randrange(vocab)})<={draw.randint(1, length)}",
        "place": f"position({draw.randint(1, length)})={draw.randrange(vocab)}",
    }
    return ";".join(kinds[kind] for kind in draw.sample(sorted(kinds), draw.randint(1, 3)))


def classes_by_hand(prompts, vocab, order, goal_order, seed):
    """Distinct transition counts and last tokens read; distinct J for latents and means drawn at
    random, which tell apart all that can be."""
    stream = np.random.default_rng(seed)
    kernels = stream.dirichlet([1.0] * vocab, size=(7, vocab**order))
    read = max(order, goal_order)
    means = stream.normal(size=(7, vocab**read))
    seen, values = set(), []
    for prompt in prompts:
        steps = [tuple(prompt[i - order : i + 1]) for i in range(order, len(prompt))]
        last = tuple(prompt[len(prompt) - read :])
        seen.add((tuple(sorted(steps)), last))
        weights = [kernel_probability(prompt, kernel, order, vocab, order) for kernel in kernels]
        values.append(np.average(means[:, context_number(last, vocab)], weights=weights))
    distinct = 1 + int((np.diff(np.sort(values)) > 1e-11).sum())
    assert distinct == len(seen)
    return distinct


def test_a_certificate_counts_the_classes_that_can_be_told_apart():
    """200 random conditions: the classes that J can tell, however far back conditions look."""
    draw, tried = random.Random(0), 0

    def scorer(counts, first, last):
        value = torch.zeros(len(counts), dtype=torch.float64)
        return HardScores.of(value, value, value + 1)

    while tried < 200:
        vocab, order = draw.choice([(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
        length, goal_order = draw.randint(order + 2, 8 if vocab == 2 else 5), draw.randint(0, 2)
        text = random_conditions(draw, vocab, length)
        prompts = [prompt for prompt in sequences(vocab, length) if says(text, prompt)]
        if not prompts:
            continue
        asked = ClassProblem(
            ContextSpace(vocab, order), length, goal_order, parse_allowed(text, vocab)
        )
        found = search_classes(asked, scorer, SearchSettings())
        by_class = found.scope == Scope.ALLOWED_CLASSES
        told = classes_by_hand(prompts, vocab, order, goal_order, tried)
        assert found.n_scored == (told if by_class else len(prompts)), (asked, text)
        tried += by_class


def test_the_kept_classes_are_distinct_to_the_utility():
    """Conditions that look at two tokens do not make two candidates of one class."""
    allowed = parse_allowed("first=01", 2)
    for search in ("", ",limit=0,steps=10"):
        method = open_method(f"classes-analytic(samples=50,estimator=importance,keep=5{search})")
        (answer,) = method.solve([posed("exact:beta-bernoulli", "dyck", 6, allowed=allowed)])
        assert sorted(answer.candidates.sum(-1).tolist()) == [1, 2, 3, 4, 5]
        assert search or answer.certificate.count == 5
