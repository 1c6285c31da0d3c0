"""What studies/language_models.py asks: texts, the tokens after them, utilities."""

from __future__ import annotations

from dataclasses import dataclass

HORIZON = 4
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
    held_out: bool = False
    """Whether nothing was ever chosen by looking at it."""

    @property
    def vocab_size(self) -> int:
        return len(self.alphabet)

    @property
    def utilities(self) -> tuple[str, ...]:
        return UTILITIES if self.vocab_size == 2 else WIDER

    @property
    def depth(self) -> int:
        """Lengths of histories whose laws are kept, from 0 on."""
        return max(self.lengths) + HORIZON


SETTINGS = {
    "coin": Setting("A coin was tossed many times. The results:", (" H", " T")),
    "letters": Setting("Here is a random sequence of letters:", (" A", " B")),
    "bits": Setting("Here are some random bits:", ("0", "1")),
    "market": Setting("Each day the price of the stock went:", (" up", " down")),
    "abc": Setting("Here is a random sequence of letters:", (" A", " B", " C"), (5,)),
    "dna": Setting("The gene begins with the bases:", (" A", " C", " G", " T"), (4,)),
    "weather": Setting(
        "The weather of the last weeks, day by day:", (" rain", " sun"), held_out=True
    ),
    "games": Setting(
        "The results of the team's games this season:", (" win", " loss"), held_out=True
    ),
}
