"""Records: what was asked, what was answered, how good it is; and their JSON.

A record nests its parts. Keys of JSON and columns of a data frame come from their fields.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from statistics import fmean, stdev
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from torch import Tensor

from posteer.banks.checks.departure import Departure
from posteer.banks.drawn import LatentBank
from posteer.core.errors import require
from posteer.core.files import path_of
from posteer.core.keeping import made, told
from posteer.core.sealing import read_sealed, write_sealed
from posteer.core.showing import Shown
from posteer.methods.answers import Answer
from posteer.methods.cautions import Caution
from posteer.methods.protocol import Drawn
from posteer.models.shares import Share
from posteer.tokens.prompts import show_prompt
from posteer.tokens.vocabularies import Vocabulary

FORMAT = "posteer-result-1"
HIDDEN = {
    *("exact", "n_prompts", "unasked", "candidates", "queries", "bank_tokens"),
    *("vocabulary", "alphabet_share", "read_off"),
}
"""Fields that machines are not shown as they are."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What was asked, by name; `context` is what the model had read, `allowed` the conditions. A
    language model had read `text` before all and was steered over the tokens of `alphabet`."""

    model: str
    utility: str
    horizon: int
    length: int
    method: str
    seed: int
    context: list[int] = field(default_factory=list)
    allowed: str | None = None
    text: str = ""
    vocabulary: Vocabulary = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How good a prompt is on the model itself, alone and among all allowed prompts of its length.

    `standard_error` is that of `expected_utility`: 0 when it is exact. `rank`, `optimum` and the
    `best_prompt`, which has it, are None where not all prompts were tried: they are too many, or it
    would have asked `unasked` tokens of a model that is not exact. `bound` is a proven upper bound
    of J over allowed prompts on an exact model. `warnings` say what there is to doubt, of it and of
    the search. `alphabet_share` is what the tokens that a language model is steered over hold of
    its laws, along the prompt and its likeliest continuation.
    """

    expected_utility: float
    standard_error: float
    rank: int | None
    optimum: float | None
    bound: float | None
    best_prompt: list[int] | None = None
    warnings: tuple[Caution, ...] = ()
    alphabet_share: Share | None = None
    exact: bool = field(repr=False)
    n_prompts: int | None = field(repr=False)
    unasked: int | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Elicitation(Shown):
    """What was asked, the hard prompt found, its exact utility, and how far to trust the search.

    Fields of its parts can be read off the record itself: `found.prompt`, `found.rank`. `drawn` is
    the bank that was rolled out for it, if any: `found.bank`.
    """

    asked: Question
    answer: Answer
    judged: Judged
    seconds: float
    drawn: Drawn = field(default_factory=Drawn, repr=False)
    judging_tokens: int = 0
    phases: dict[str, float] = field(default_factory=dict, repr=False)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for part in (self.asked, self.answer, self.judged):
                if name in {entry.name for entry in fields(part)}:
                    return getattr(part, name)
        raise AttributeError(f"a record has no '{name}'")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_names(self.asked, self.answer, self.judged)]

    @property
    def prompt(self) -> list[int]:
        tokens: list[int] = self.answer.prompt.tolist()
        return tokens

    @property
    def bank(self) -> LatentBank | None:
        """The bank that was drawn for this run: to be saved, or given to the next."""
        return self.drawn.bank

    @property
    def departure(self) -> Departure | None:
        """How far the model is from a filter over the latents that were drawn."""
        return self.drawn.departure

    @property
    def cost(self) -> dict[str, int]:
        """Model tokens by what they were for. The first two and `drawn_tokens` are bounded by the
        budget: a search with its verification, and a bank drawn just now. `bank_tokens` is what the
        bank cost, whenever it was drawn; `judging_tokens` what J of the prompt took, and its rank.
        """
        return {
            **asdict(self.answer.queries),
            "bank_tokens": self.answer.bank_tokens,
            "drawn_tokens": self.drawn.tokens,
            "judging_tokens": self.judging_tokens,
        }

    def to_json(self) -> dict[str, Any]:
        """The keys promised to machines; figures JSON cannot hold (nan, infinities) are null."""
        parts = {**_public(self.asked), **_public(self.answer), **_public(self.judged)}
        parts |= _in_words(self.prompt, self.asked.vocabulary, self.judged)
        return {
            **parts,
            "drawn": plain(self.drawn.facts()),
            "cost": self.cost,
            "seconds": self.seconds,
        }

    def save(self, path: Path | str) -> None:
        """Write all of it but a bank that was drawn, which is saved by `found.bank.save`."""
        whole = told(self, without=[LatentBank])
        write_sealed(path_of(path, "result"), {"format": FORMAT, "record": whole})


def _names(*parts: Any) -> list[str]:
    """What can be read off a record by way of its parts."""
    return [entry.name for part in parts for entry in fields(part)]


def _in_words(prompt: list[int], known: Vocabulary, judged: Judged) -> dict[str, Any]:
    """The prompt as it is shown, the names of tokens where they have any, and what they hold."""
    share = judged.alphabet_share
    return {
        "alphabet": list(known.names) or None,
        "prompt_text": show_prompt(prompt, known),
        "alphabet_share": None if share is None else asdict(share),
    }


def load_result(path: Path | str | Any) -> Elicitation:
    """A record that was saved: checked, and the same but for a bank that was drawn.

    >>> from tempfile import TemporaryDirectory
    >>> from posteer import elicit
    >>> with TemporaryDirectory() as folder:
    ...     found = elicit("exact:urn", "dyck", length=4, method="exhaustive")
    ...     found.save(Path(folder) / "found.json")
    ...     load_result(Path(folder) / "found.json").prompt
    [0, 1, 0, 1]
    """
    where = path_of(path, "result")
    facts = read_sealed(where)
    require(facts.get("format") == FORMAT, f"{where}: no result of `save`")
    found: Elicitation = made(Elicitation, facts.get("record"), str(where))
    return found


@dataclass(frozen=True, kw_only=True)
class Judgement(Shown):
    """How good a given prompt is, alone and among all prompts of its length."""

    model: str
    utility: str
    horizon: int
    prompt: list[int]
    context: list[int] = field(default_factory=list)
    judged: Judged
    judging_tokens: int = 0
    text: str = ""
    vocabulary: Vocabulary = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in {entry.name for entry in fields(self.judged)}:
            return getattr(self.judged, name)
        raise AttributeError(f"a record has no '{name}'")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_names(self.judged)]

    def to_json(self) -> dict[str, Any]:
        """The keys promised to machines."""
        own = _public(self)
        own |= own.pop("judged")
        return own | _in_words(self.prompt, self.vocabulary, self.judged)


def _public(part: Any) -> dict[str, Any]:
    """The fields of a part that machines are shown."""
    shown = (entry.name for entry in fields(part) if entry.name not in HIDDEN)
    return {name: plain(getattr(part, name)) for name in shown if not name.endswith("history")}


def plain(value: Any) -> Any:
    """A value as JSON holds it."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return _public(value)
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def columns(kind: type, prefix: str = "") -> dict[str, type]:
    """The columns that a part of a record has in a data frame, and what they hold.

    Parts within it are spread out: `certificate.count` is the column `certificate_count`.

    >>> {name: kind.__name__ for name, kind in list(columns(Judged).items())[:3]}
    {'expected_utility': 'float', 'standard_error': 'float', 'rank': 'int'}
    """
    found: dict[str, type] = {}
    for name, hint in get_type_hints(kind).items():
        if name in HIDDEN or name.endswith("history"):
            continue
        several = get_origin(hint) is tuple  # is shown as text
        own = str if several else next((a for a in get_args(hint) if a is not NoneType), hint)
        if is_dataclass(own):
            found |= columns(own, f"{prefix}{name}_")
        else:
            known = (float, int, bool)
            found[prefix + name] = own if own in known else str
    return found


TOLD = ("warnings", "reasons")
"""Lists whose entries have a kind and figures."""


def flat(result: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What `to_json` gave, as one row: parts spread out, lists of reasons and warnings as text."""
    row: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, dict):
            row |= flat(value, f"{prefix}{name}_")
        elif name in TOLD and isinstance(value, list):
            row[prefix + name] = ",".join(one.get("because") or one["kind"] for one in value)
        else:
            row[prefix + name] = value
    return row


@dataclass(frozen=True)
class MethodSummary:
    """One method over all seeds. Tokens are forward and backward together, per run."""

    method: str
    runs: list[Elicitation]

    @property
    def values(self) -> list[float]:
        return [run.judged.expected_utility for run in self.runs]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def standard_error(self) -> float:
        n = len(self.values)
        return stdev(self.values) / math.sqrt(n) if n > 1 else math.nan

    @property
    def best(self) -> Elicitation:
        return max(self.runs, key=lambda run: run.judged.expected_utility)

    @property
    def mean_rank(self) -> float | None:
        ranks = [run.judged.rank for run in self.runs if run.judged.rank is not None]
        return fmean(ranks) if len(ranks) == len(self.runs) else None

    @property
    def tokens(self) -> float:
        return fmean(run.answer.queries.total for run in self.runs)

    @property
    def bank_tokens(self) -> int:
        return max(run.answer.bank_tokens for run in self.runs)

    @property
    def seconds(self) -> float:
        return fmean(run.seconds for run in self.runs)

    @property
    def warnings(self) -> dict[str, int]:
        """Of what runs warn, and how many do."""
        return dict(Counter(one.kind.value for run in self.runs for one in run.judged.warnings))

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "mean": self.mean,
            "standard_error": self.standard_error,
            "best": self.best.judged.expected_utility,
            "best_prompt": self.best.prompt,
            "mean_rank": self.mean_rank,
            "model_tokens": self.tokens,
            "bank_tokens": self.bank_tokens,
            "seconds": self.seconds,
            "warnings": self.warnings,
            "runs": [run.to_json() for run in self.runs],
        }


@dataclass(frozen=True)
class Comparison(Shown):
    """All methods on one problem. A bank's cost is shared by `amortised_over` utilities. Methods
    that need what the problem has not are `refused`, with what that is."""

    methods: list[MethodSummary]
    amortised_over: int
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def optimum(self) -> float | None:
        found = (run.judged.optimum for method in self.methods for run in method.runs)
        return next((optimum for optimum in found if optimum is not None), None)

    def break_even(self) -> dict[str, dict[str, int]]:
        """For each method with a bank and each that asks the model directly: after how many
        utilities, one run each, the bank has cost less."""
        direct = [m for m in self.methods if m.bank_tokens == 0 and m.tokens > 0]
        return {
            banked.method: {
                other.method: math.ceil(banked.bank_tokens / (other.tokens - banked.tokens))
                for other in direct
                if other.tokens > banked.tokens
            }
            for banked in self.methods
            if banked.bank_tokens > 0
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "methods": [summary.to_json() for summary in self.methods],
            "optimum": self.optimum,
            "amortised_over": self.amortised_over,
            "break_even": self.break_even(),
            "refused": self.refused,
        }


def trajectory(run: Elicitation, amortised_over: int) -> tuple[list[float], list[float]]:
    """Model tokens spent against the best value so far, a bank's share before the first step."""
    answer = run.answer
    start = answer.bank_tokens / amortised_over
    steps = [step for step in answer.history if math.isfinite(step.value)]
    if answer.surrogate is not None or len(steps) < 2:  # one answer at the end
        return [start + answer.queries.total], [run.judged.expected_utility]
    tokens = [start + step.forward_tokens + step.backward_tokens for step in steps]
    return tokens, [step.value for step in steps]
