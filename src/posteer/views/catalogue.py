"""What there is to choose from, in words: methods, utilities, their settings, an example each."""

from __future__ import annotations

from typing import Any

from posteer.core.registry import Registry
from posteer.core.spec import settings_of
from posteer.goals.utilities import UTILITIES
from posteer.methods.registry import METHODS

METHOD_WORDS = {
    "auto": (
        "chooses a method by what is known of the model and the goal, and says why",
        "posteer elicit --model urn --length 50 --method auto --verify 8",
    ),
    "classes": (
        "the best kind of prompt for a bank of latents: prompts with the same counts are one kind",
        "posteer elicit --model urn --length 50 --method 'classes(samples=2000)'",
    ),
    "classes-analytic": (
        "classes with latents drawn from a known prior",
        "posteer elicit --model exact:urn --length 20 --method 'classes-analytic(samples=500)'",
    ),
    "bounds": (
        "the best prompt with a proof, where the prior has finitely many latents",
        "posteer elicit --model 'exact:coins(0.2,0.7)' --length 8 --method 'bounds(gap=0.01)'",
    ),
    "climb": (
        "changes a prompt token by token while a bank of latents says that it gets better",
        "posteer elicit --model urn --length 8 --method 'climb(samples=500,width=8)'",
    ),
    "climb-analytic": (
        "climb with latents drawn from a known prior",
        "posteer elicit --model exact:mess3 --length 5 --utility 'frequency(1,token=0)' "
        "--method 'climb-analytic(width=8)'",
    ),
    "ppt": (
        "the paper's method: ascends in a law of prompts, utilities of latents sampled",
        "posteer elicit --model urn --length 6 --method 'ppt(samples=500,steps=50)'",
    ),
    "ppt-rb": (
        "the paper's method with exact mean utilities of latents",
        "posteer elicit --model urn --length 6 --method 'ppt-rb(samples=500,steps=50)'",
    ),
    "ppt-analytic": (
        "ppt with latents drawn from a known prior",
        "posteer elicit --length 6 --method 'ppt-analytic(samples=500,steps=50)'",
    ),
    "ppt-rb-analytic": (
        "ppt-rb with latents drawn from a known prior",
        "posteer elicit --length 6 --method 'ppt-rb-analytic(samples=500,tilt=geometric)'",
    ),
    "gcg": (
        "substitutes tokens by gradients of the model itself (greedy coordinate gradient)",
        "posteer elicit --model urn --length 6 --method 'gcg(steps=20)'",
    ),
    "coordinate": (
        "substitutes one token after the other, asking the model about each",
        "posteer elicit --model exact:urn --length 6 --method 'coordinate(restarts=3)'",
    ),
    "random": (
        "asks the model about random prompts",
        "posteer elicit --model exact:urn --length 6 --method 'random(prompts=20)'",
    ),
    "beam": (
        "grows prompts from the left and keeps the best beginnings",
        "posteer elicit --model exact:urn --length 6 --method 'beam(width=4)'",
    ),
    "exhaustive": (
        "asks the model about every prompt",
        "posteer elicit --model exact:urn --length 6 --method exhaustive",
    ),
    "simplex-pt": (
        "a soft prefix: mixtures of tokens instead of tokens, by gradient",
        "posteer elicit --model beta-bernoulli --length 4 --method 'simplex-pt(steps=20)'",
    ),
    "real-pt": (
        "a soft prefix of any real weights of tokens, by gradient",
        "posteer elicit --model beta-bernoulli --length 4 --method 'real-pt(steps=20)'",
    ),
    "soft-pt": (
        "a soft prefix of any embeddings, by gradient",
        "posteer elicit --model beta-bernoulli --length 4 --method 'soft-pt(steps=20)'",
    ),
}
"""What each method does, and a command that runs it."""

UTILITY_WORDS = {
    "dyck": (
        "1 if the continuation is balanced brackets, 0 being ( and 1 being ), else 0",
        "posteer elicit --utility dyck --length 6",
    ),
    "frequency": (
        "minus the squared distance of a token's share in the continuation from the target",
        "posteer elicit --utility 'frequency(0.3,token=1)' --length 6",
    ),
    "reverse-xent": (
        "the log-probability of the continuation under a target law of tokens",
        "posteer elicit --utility 'reverse-xent(sym-0.1)' --length 6",
    ),
    "forward-xent": (
        "how well the model's continuations cover a target law: for searches on the model",
        "posteer elicit --utility 'forward-xent(tau-0.2)' --method beam --length 6",
    ),
}

TARGET = (
    "tau-P: each token is 1 with probability P (two tokens); sym-P: repeats the token before it "
    "with probability P; dir-SEED: a random law; a table, as in [[0.9,0.1],[0.2,0.8]]: row c is "
    "the law after token c"
)

SETTING_WORDS = {
    "bank-seed": "seed of the rollouts that latents are read off",
    "buffer": "best prompts that are kept and gone on from",
    "candidate-score": "how the prompts that an ascent ends in are compared: own-context (each "
    "with the mean utility after its own last tokens), own-kernel or optimum-context",
    "candidates": "substitutions tried in a step; 0: all",
    "device": "where the ascent runs: cpu or cuda",
    "estimator": "how latents are weighed: auto, importance, psis, conjugate or smc",
    "gap": "stop once the prompt is proven to be within so much of the best",
    "keep": "candidates that are kept for --verify",
    "limit": "up to so many prompts, or kinds of prompts, all are tried",
    "nodes": "most ends of prompts that are looked at for a proof",
    "prompts": "how many random prompts",
    "rate": "how far a step of the ascent goes",
    "restarts": "how many random starts",
    "rollout-length": "tokens of each rollout; by default 2000, or what the time allows",
    "rounds": "most rounds of a climb",
    "samples": "latents of the bank; by default all that are shipped, or 5000",
    "seconds": "time for drawing a bank of a model whose speed is not known",
    "steps": "most steps",
    "swaps": "tokens that are substituted at a time",
    "target": TARGET,
    "tilt": "how a law of prompts weighs latents: linear (the paper's) or geometric",
    "token": "the token whose share is meant",
    "top-k": "substitutions that a gradient proposes at each place",
    "tuned": "1: order and smoothing of latents by what predicts held-out rollouts best",
    "unvisited": "what fills a row that no rollout reached: donor, uniform, predictive, dirichlet",
    "verify": "candidates that the model itself is asked about",
    "width": "beginnings of prompts, or prompts, that are kept at a time",
}
"""What a setting in the brackets after a name means."""

MEANT_BY = {
    ("bounds", "seconds"): "time for the proof",
    ("frequency", "target"): "the share that is wanted, from 0 to 1",
    ("gcg", "steps"): "most steps; 0: twice the length of the prompt, at least 10",
}
"""Where a setting means something else than elsewhere."""


YOUR_OWN = "./file.py:function is a utility too: any Python function of a tuple of tokens"


def methods_in_words(names: list[str]) -> list[dict[str, Any]]:
    """Methods: the name of each, what it does, its settings, an example."""
    return [_entry(METHODS, name, METHOD_WORDS) for name in names]


def utilities_in_words(names: list[str]) -> list[dict[str, Any]]:
    """The same of utilities, over two tokens."""
    return [_entry(UTILITIES, name, UTILITY_WORDS, 2) for name in names]


def _entry(
    registry: Registry[Any], name: str, words: dict[str, tuple[str, str]], *rest: Any
) -> dict[str, Any]:
    """A thing by name; one that a package offers speaks for itself, by its docstring."""
    make = registry[name]
    own = (make.__doc__ or "").strip().partition("\n")[0]
    about, example = words.get(name, (own, ""))
    return {
        "name": name,
        "about": about,
        "settings": [
            {
                "name": setting,
                "default": None if default is ... else default,
                "required": default is ...,
                "about": MEANT_BY.get((name, setting), SETTING_WORDS.get(setting, "")),
            }
            for setting, default in settings_of(make, name, *rest).items()
        ],
        "example": example,
    }
