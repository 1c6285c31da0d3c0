"""Calls of the Python interface with values that no one should give, from a seed."""

from pathlib import Path

import numpy as np
import torch
from hostile import DEEP, DIGITS, MODELS, UTILITIES
from hostile_ends import (
    HARMLESS,
    REFUSED,
    SILENT,
    TRACEBACKS,
    End,
    changed,
    contents,
    fuzz,
    traced,
    watched,
)

import posteer


class Kind:
    vocab_size, order = 2, 0

    def start(self, batch):
        raise SystemExit(0)

    def advance(self, state, tokens):
        return None


def raising(prompt):
    raise KeyError("no idea")


def leaving(prompt):
    raise SystemExit(0)


def nested(depth=5000):
    value = []
    for _ in range(depth):
        value = [value]
    return value


ODD = [None, True, False, 0, -1, 1, 2.5, float("nan"), float("inf"), 10**30, 10**5000, "", "\0",
       "x", b"01", [], [0.5], [True, False], [0.0, 1.0], ["0"], [[0, 1]], (), {}, {"a": 1}, set(),
       object(), Kind, Kind(), raising, leaving, np.int64(3), np.float64(2.0), np.array([0, 1]),
       np.array([0.5]), torch.tensor(3), torch.tensor([0, 1]), torch.tensor([0.5]),
       torch.device("cpu"), Path("nowhere"), Path("."), range(3), nested(), DEEP,
       DIGITS]  # fmt: skip
GOOD = {
    "model": MODELS["good"] + [posteer.open_model("exact:urn")],
    "utility": [*UTILITIES["good"], lambda y: sum(y)],
    "utilities": [["dyck"], ["frequency(0.3)", "dyck"]],
    "length": [2, 3, np.int64(4)],
    "horizon": [1, 2, np.int32(2)],
    "method": ["beam(width=2)", "random(prompts=2)", "exhaustive"],
    "methods": [["random(prompts=2)"]],
    "seed": [0, -3, np.int64(1)],
    "seeds": [[0, 1], range(2)],
    "bank": [None],
    "context": ["", (), "01", [0, 1], None, np.array([1, 0])],
    "allowed": [None, "first=0", lambda prompt: True],
    "max_model_tokens": [None, 500],
    "verify": [0, 2],
    "device": ["cpu", "auto", torch.device("cpu")],
    "prompt": ["0110", [0, 1, 1], np.array([0, 1, 0]), torch.tensor([1, 1, 0])],
    "prompts": ["0110", [0, 1, 1], ["011", "100"], torch.tensor([[1, 1, 0]])],
    "rollouts": [20],
    "seconds": [0.5, 1],
    "n_seeds": [1, 2],
    "unvisited": ["donor"],
    "family": ["hmm(states=2)", "markov(order=1)"],
    "chunk": [None, 7],
    "text": ["urn", "coins(0.2,0.7)", "markov(vocab=3)"],
    "name": ["beta-bernoulli"],
    "path": ["junk", "nowhere"],
}
"""Values that are taken, by what they are of."""

ASKED = ["horizon", "method", "seed", "bank", "context", "allowed", "max_model_tokens", "verify",
         "device"]  # fmt: skip
DOORS = {
    "elicit": (["model", "utility"], ["length", "method"], ASKED),
    "elicit_many": (["model", "utilities"], ["length", "method"], ["seeds", "context", "device"]),
    "evaluate": (["model", "utility", "prompt"], [], ["horizon", "seed", "context", "device"]),
    "compare": (["model", "utility"], ["length", "methods", "seeds=n_seeds"], ["horizon"]),
    "sample": (
        ["model"],
        ["rollouts", "length", "seconds"],
        ["seed", "context", "unvisited", "chunk", "family"],
    ),
    "expected_utility": (["model", "utility", "prompts", "horizon"], [], ["seed", "device"]),
    "landscape": (["model", "utility", "length", "horizon"], [], ["allowed", "device"]),
    "estimate_from_bank": (["bank", "utility", "prompts", "horizon"], [], []),
    "check_filter": (["model", "bank"], [], ["device"]),
    "Request": ([], ["model", "utility", "length"], ASKED),
    "open_model": (["model"], [], ["device"]),
    "open_process": (["text"], [], []),
    "load": (["name"], [], ["device"]),
    "load_bank": (["path"], [], []),
    "load_results": (["path"], [], []),
}
"""Plain arguments, those by name, and those that may be left out."""


def call(draw):
    """A door, and what it is given: none to two of it odd."""
    door = draw.choice(list(DOORS))
    plain, by_name, more = DOORS[door]
    chosen = plain + by_name + draw.sample(more, min(len(more), draw.randrange(3)))
    odd = set(draw.sample(chosen, min(len(chosen), draw.choice([0, 1, 1, 1, 2]))))
    values = {}
    for entry in chosen:
        name, _, kind = entry.partition("=")
        given = ODD + MODELS["bad"] * (name == "model") + UTILITIES["bad"] * (name == "utility")
        values[name] = draw.choice(given if entry in odd else GOOD[kind or name])
    return (
        door,
        [values[name] for name in plain],
        {n: v for n, v in values.items() if n not in plain},
    )


def end_of_call(door, plain, by_name):
    """How a call ends in this folder."""
    before = contents()
    try:
        with watched():
            found = getattr(posteer, door)(*plain, **by_name)
    except (posteer.InputError, OSError) as error:  # OSError: a path that names itself
        lines = str(error).count("\n")
        if lines:
            return End(TRACEBACKS, f"{lines + 1} lines: {error}")
        return changed(before, str(error)) or End(REFUSED)
    except BaseException as error:
        return traced(error)
    if found is None:
        return End(SILENT, "returned nothing")
    return changed(before) or End(HARMLESS)


def shown(value):
    try:
        return repr(value)[:80]
    except (RecursionError, ValueError):  # nested lists, numbers of thousands of digits
        return f"a {type(value).__name__}"


def fuzz_calls(n, seed):
    """How so many calls end."""

    def one(draw):
        door, plain, by_name = call(draw)
        end = end_of_call(door, plain, by_name)
        words = [door, *map(shown, plain), *(f"{k}={shown(v)}" for k, v in by_name.items())]
        return words, end

    return fuzz(n, seed, one)
