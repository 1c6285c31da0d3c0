"""Brute force: plain Python over every prompt and every continuation, sharing no code with src."""

from __future__ import annotations

import itertools
import math

import numpy as np


def sequences(vocab_size: int, length: int):
    return itertools.product(range(vocab_size), repeat=length)


def context_number(tokens, vocab_size: int) -> int:
    number = 0
    for token in tokens:
        number = number * vocab_size + token
    return number


def kernel_probability(tokens, kernel, order: int, vocab_size: int, start: int) -> float:
    """Probability of tokens[start:] under a kernel that reads the `order` tokens before each."""
    probability = 1.0
    for i in range(start, len(tokens)):
        context = context_number(tokens[i - order : i], vocab_size)
        probability *= kernel[context][tokens[i]]
    return probability


def prompt_law(transitions, initial, order: int, vocab_size: int, length: int):
    """(prompt, probability) for every prompt of a Markov prompt kernel."""
    for prompt in sequences(vocab_size, length):
        first = initial[context_number(prompt[:order], vocab_size)]
        yield prompt, first * kernel_probability(prompt, transitions, order, vocab_size, order)


def tilt(kernel, transitions, initial, order, vocab_size, length) -> float:
    return sum(
        weight * kernel_probability(prompt, kernel, order, vocab_size, order)
        for prompt, weight in prompt_law(transitions, initial, order, vocab_size, length)
    )


def final_context(transitions, initial, order, vocab_size, length) -> np.ndarray:
    law = np.zeros(vocab_size**order)
    for prompt, weight in prompt_law(transitions, initial, order, vocab_size, length):
        law[context_number(prompt[length - order :], vocab_size)] += weight
    return law


def mean_utility(value, kernel, context_tokens, order, vocab_size, horizon) -> float:
    """Mean of value(continuation) under a kernel started after `context_tokens`."""
    total = 0.0
    for continuation in sequences(vocab_size, horizon):
        tokens = tuple(context_tokens) + continuation
        probability = kernel_probability(tokens, kernel, order, vocab_size, len(context_tokens))
        total += probability * value(continuation)
    return total


def surrogate(kernels, transitions, initial, value_from, order, vocab_size, length, horizon):
    """J_tilt over a finite set of equally likely latents, from its definition."""
    nu = final_context(transitions, initial, order, vocab_size, length)
    weights, utilities = [], []
    for kernel in kernels:
        weights.append(tilt(kernel, transitions, initial, order, vocab_size, length))
        mu_bar = 0.0
        for tokens in sequences(vocab_size, order):
            value = value_from(tokens)
            mu = mean_utility(value, kernel, tokens, order, vocab_size, horizon)
            mu_bar += nu[context_number(tokens, vocab_size)] * mu
        utilities.append(mu_bar)
    return float(np.dot(weights, utilities) / np.sum(weights))


def dirichlet_sequence_probability(tokens, concentration, order: int, vocab_size: int) -> float:
    """Polya's urn: sequential predictive probabilities, the first `order` tokens uniform."""
    counts = np.array(concentration, dtype=float)
    probability = float(vocab_size) ** -min(order, len(tokens))
    for i in range(order, len(tokens)):
        row = counts[context_number(tokens[i - order : i], vocab_size)]
        probability *= row[tokens[i]] / row.sum()
        row[tokens[i]] += 1
    return probability


def is_dyck(continuation) -> bool:
    height = 0
    for token in continuation:
        if token > 1:
            return False
        height += 1 if token == 0 else -1
        if height < 0:
            return False
    return height == 0


LOG_FLOOR = math.log(1e-12)


def log_target(continuation, context_tokens, target, floor=LOG_FLOOR) -> float:
    """Reverse cross-entropy by reading the continuation one token at a time."""
    vocab_size, order = len(target[0]), len(context_tokens)
    history, total = list(context_tokens), 0.0
    for token in continuation:
        row = target[context_number(history[len(history) - order :], vocab_size)]
        total += max(math.log(row[token]) if row[token] > 0 else floor, floor)
        history.append(token)
    return total


def value_of(name, target=None, share=None):
    """The same utilities written out again: value(continuation) given the context tokens."""
    if name == "dyck":
        return lambda tokens: lambda y: float(is_dyck(y))
    if name == "frequency":
        return lambda tokens: lambda y: -((y.count(1) / len(y) - share) ** 2)
    order = round(math.log(len(target), len(target[0])))
    return lambda tokens: lambda y: log_target(y, tokens[len(tokens) - order :], target)


def says(text, prompt):
    """The text form read a second time, for vocabularies of up to ten symbols."""
    word = "".join(map(str, prompt))
    for part in filter(None, text.replace(" ", "").split(";")):
        if part.startswith("first="):
            ok = word.startswith(part[6:])
        elif part.startswith("last="):
            ok = word.endswith(part[5:])
        elif part.startswith("ban="):
            ok = not any(gram in word for gram in part[4:].replace("|", ",").split(","))
        elif part.startswith("position("):
            number, _, tokens = part[9:].partition(")=")
            at = int(number) - 1 if int(number) > 0 else int(number)
            ok = word[at] in tokens.replace("|", ",").split(",")
        else:
            token, _, rest = part[6:].partition(")")
            n = word.count(token)
            bound = int(rest.lstrip("<>="))
            ok = n <= bound if rest[0] == "<" else n >= bound if rest[0] == ">" else n == bound
        if not ok:
            return False
    return True


CONDITIONS = [
    (2, 6, "first=0;last=1;ban=11,000;count(1)<=3;position(3)=0|1"),
    (2, 6, "first=01; last=10"),
    (2, 5, "position(-1)=0;position(2)=1;count(0)>=2"),
    (2, 6, "count(1)=3;ban=0101"),
    (3, 5, "ban=00|11|22;count(2)>=1;count(0)<=2"),
    (3, 4, "position(1)=0,2;last=12"),
    (3, 4, ""),
]
