"""Which first residues make a language model of antibodies believe in a species?

    pip install iglm                    # non-commercial licence; its own code reads its weights
    python studies/antibodies.py [--length 6] [--residues ACDEFGHIKLMNPQRSTVWY] [--species mouse]

IgLM (Shuai, Ruffolo and Gray 2023) reads a tag for the chain and one for the species before a
sequence. The model behind one tag is a persona; the mixture of all of them infers the species from
the residues. Sought are first residues after which the mixture goes on as one species does: the
utility of the next residues is the posterior probability of that species, given them alone. `auto`
on the mixture is set beside beam, coordinate and random search at no fewer tokens than its own, and
beside gcg on the persona of the wanted species, for the mixture has no gradients; all prompts are
judged on the mixture. A token is counted once for each persona that reads it.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from running import Options, positive, run
from tables import heading, row

import posteer
from posteer.core.errors import require

SPECIES = ("human", "mouse", "rabbit", "camel")
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
RIVALS = ("beam", "coordinate", "random")


def personas_of(residues: str) -> tuple[list[Any], Any]:
    """IgLM-S after each species tag, over some residues; and their mixture."""
    require(importlib.util.find_spec("iglm") is not None, "it needs iglm: pip install iglm")
    theirs = importlib.import_module("iglm").IgLM("IgLM-S")
    network = theirs.model.cpu().eval()
    ids = theirs.tokenizer.convert_tokens_to_ids
    models = [
        posteer.wrap(
            network,
            tokenizer=theirs.tokenizer,
            alphabet=",".join(residues),
            text=ids(["[HEAVY]", f"[{species.upper()}]"]),
            order=0,
            name=species,
        )
        for species in SPECIES
    ]
    return models, posteer.personas(models)


def belief_in(models: list[Any], wanted: int) -> Callable[[tuple[int, ...]], float]:
    """Of a continuation: the posterior probability of a species, by what it says alone."""

    def worth(continuation: tuple[int, ...]) -> float:
        tokens = torch.tensor([continuation])
        logs = [
            float(model.log_predictive(tokens)[0, :-1].gather(1, tokens.T).sum())
            for model in models
        ]
        top = max(logs)
        return math.exp(logs[wanted] - top) / sum(math.exp(one - top) for one in logs)

    worth.__name__ = f"belief in {models[wanted].name}"
    return worth


def main(arguments: list[str] | None = None) -> None:
    """Print one row for each species: J of what each method finds, and its model tokens."""
    options = Options(__doc__)
    options.add_argument("--length", type=positive, default=6)
    options.add_argument("--horizon", type=positive, default=2)
    options.add_argument("--residues", default=RESIDUES)
    options.add_argument("--species", default=",".join(SPECIES))
    asked = options.parse_args(arguments)
    for name in asked.species.split(","):
        require(name in SPECIES, f"species '{name}': expected some of {', '.join(SPECIES)}")
    models, mixture = personas_of(asked.residues)
    columns = ["species", "auto", *RIVALS, "gcg on the persona"]
    print("\n".join(heading(row(*columns))), flush=True)
    for species in asked.species.split(","):
        at = SPECIES.index(species)
        goal = belief_in(models, at)
        problem = {"length": asked.length, "horizon": asked.horizon, "rank": False}
        first = posteer.elicit(mixture, goal, **problem)
        tokens = _tokens(first)
        found = [_cell(first)]
        for method in RIVALS:
            again = posteer.elicit(mixture, goal, **problem, method=method, max_model_tokens=tokens)
            found.append(_cell(again))
        alone = posteer.elicit(models[at], goal, **problem, method="gcg", max_model_tokens=tokens)
        judged = posteer.evaluate(mixture, goal, alone.prompt, horizon=asked.horizon, rank=False)
        found.append(f"{judged.expected_utility:.3f} ({_tokens(alone):,})")
        print(row(species, *found), flush=True)


def _tokens(found: Any) -> int:
    return int(found.cost["forward_tokens"] + found.cost["backward_tokens"])


def _cell(found: Any) -> str:
    return f"{found.expected_utility:.3f} {found.to_json()['prompt_text']} ({_tokens(found):,})"


if __name__ == "__main__":
    run(main)
