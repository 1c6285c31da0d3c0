"""Does posterior steering work on a language model that is no filter?

    python studies/language_models.py prepare --work DIR [--texts coin,letters]
    python studies/language_models.py run --work DIR [--texts ..] [--part short|long] [--out FILE]
    python studies/language_models.py [show] [--figures DIR]

SmolLM2-135M-Instruct over a few of its tokens after a text (`pip install 'posteer[llm]'`). `prepare`
draws one bank a text and J of every prompt, kept in DIR; `run` answers every cell on the model and
ranks it among all prompts; `show` prints the tables of docs/LANGUAGE_MODELS.md from the records and,
asked for, draws its figures. A bank serves all utilities and lengths of its text; tokens of a run
are those that verifying asks of the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from places import RECORDS
from running import Options, read_records, run
from safetensors.torch import load_file, save_file
from torch import Tensor

import posteer
from posteer.banks import LatentBank
from posteer.banks.sampling import sample
from posteer.core.errors import require
from posteer.core.shapes import Float
from posteer.goals.objectives import objective_of
from posteer.goals.utilities import open_goal
from posteer.models.continuations import shared_laws
from posteer.models.registry import open_model
from posteer.tokens.contexts import ContextSpace, all_sequences

HORIZON = 4
ROLLOUTS, LENGTH = 256, 48
"""Of each bank."""

TOKENS = 400
"""That a run may ask of the model."""

UTILITIES = (
    "dyck",
    "frequency(0)",
    "frequency(0.5)",
    "frequency(1)",
    "reverse-xent(tau-0.2)",
    "reverse-xent(tau-0.8)",
    "reverse-xent(sym-0.2)",
    "reverse-xent(sym-0.8)",
)
"""Brackets; a share of the second token; coins; chains that repeat or alternate."""

WIDER = ("dyck", "frequency(0)", "frequency(0.5)", "frequency(1)")
"""Those that more than two tokens have too."""


@dataclass(frozen=True)
class Setting:
    """A text, the tokens that follow it, and the lengths at which all prompts are ranked."""

    text: str
    alphabet: tuple[str, ...]
    lengths: tuple[int, ...] = (6, 10)

    @property
    def vocab_size(self) -> int:
        return len(self.alphabet)

    @property
    def utilities(self) -> tuple[str, ...]:
        return UTILITIES if self.vocab_size == 2 else WIDER

    def open(self) -> Any:
        return open_model("smollm2", "cpu", alphabet=list(self.alphabet), text=self.text)


SETTINGS = {
    "coin": Setting("A coin was tossed many times. The results:", (" H", " T")),
    "letters": Setting("Here is a random sequence of letters:", (" A", " B")),
    "bits": Setting("Here are some random bits:", ("0", "1")),
    "market": Setting("Each day the price of the stock went:", (" up", " down")),
    "abc": Setting("Here is a random sequence of letters:", (" A", " B", " C"), (5,)),
    "dna": Setting("The gene begins with the bases:", (" A", " C", " G", " T"), (4,)),
}


def prepare(name: str, work: Path) -> None:
    """The bank of a text and the laws of all continuations of all prompts, unless they are there."""
    setting = SETTINGS[name]
    model = setting.open()
    bank = bank_of(name, work, model)
    print(f"{name}: a bank of {len(bank)} latents for {bank.tokens:,} model tokens", flush=True)
    for length in setting.lengths:
        path = work / f"{name}-{length}.safetensors"
        if path.exists():
            continue
        prompts = all_sequences(setting.vocab_size, length)
        groups = prompts.split(64)
        laws = [shared_laws(model, some, HORIZON) for some in groups]
        save_file({"log_laws": torch.cat(laws)}, path)
        print(f"{name}: {len(prompts):,} prompts of {length} tokens", flush=True)


def bank_of(name: str, work: Path, model: Any) -> LatentBank:
    """Drawn once, and kept."""
    out = work / f"{name}.bank.safetensors"
    return sample(model, rollouts=ROLLOUTS, length=LENGTH, tuned=True, out=out)


def all_values(name: str, length: int, utility: str, work: Path) -> Float[Tensor, "K"]:
    """J of every prompt."""
    setting = SETTINGS[name]
    laws = load_file(work / f"{name}-{length}.safetensors")["log_laws"]
    goal = open_goal(utility, ContextSpace(setting.vocab_size, 1))
    prompts = all_sequences(setting.vocab_size, length)
    last = ContextSpace(setting.vocab_size, goal.order).suffix(prompts)
    return objective_of(goal, setting.vocab_size, HORIZON).of_laws(laws, last)


def main() -> None:
    options = Options(__doc__)
    options.add_argument("do", nargs="?", default="show", choices=("prepare", "run", "show"))
    options.add_argument("--work", type=Path)
    options.add_argument("--texts", default=",".join(SETTINGS))
    given = options.parse_args()
    names = given.texts.split(",")
    for name in names:
        require(name in SETTINGS, f"text '{name}': expected some of {', '.join(SETTINGS)}")
    given.work.mkdir(parents=True, exist_ok=True)
    for name in names:
        prepare(name, given.work)


if __name__ == "__main__":
    run(main)
