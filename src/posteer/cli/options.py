"""What commands share, said once: options, and `--json`. torch is not needed to read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from posteer.core.errors import require
from posteer.core.spec import shown


def _whole(_kind: Any, tokens: Sequence[Token]) -> int:
    """Digits alone: nothing is rounded."""
    text = tokens[0].value.strip()
    whole = re.fullmatch(r"[+-]?[0-9]{1,40}", text) is not None
    require(whole, f"'{shown(text)}': expected a whole number of at most 40 digits")
    return int(text)


def _path(_kind: Any, tokens: Sequence[Token]) -> Path:
    """What a file can be called."""
    text = tokens[0].value
    require(bool(text) and "\0" not in text, f"'{shown(text)}': no file can be called so")
    return Path(text)


Whole = Annotated[int, Parameter(converter=_whole)]
WholeOrNone = Annotated[int | None, Parameter(converter=_whole)]
File = Annotated[Path, Parameter(converter=_path)]
FileOrNone = Annotated[Path | None, Parameter(converter=_path)]
"""Figures and names from a command line, as they are or refused."""

Model = Annotated[
    str,
    Parameter(
        help="urn, beta-bernoulli, ternary, second-order (trained), a model folder, exact:urn, "
        "exact:beta-bernoulli, exact:markov(vocab=3,order=2,concentration=0.5), "
        "exact:coins(0.2,0.7) or exact:mixture([[..],[..]],[[..],[..]]), ./file.py:name, hf:FOLDER "
        "(a language model) or smollm2."
    ),
]
UtilityName = Annotated[
    str,
    Parameter(
        help="dyck, frequency(0.3), reverse-xent(tau-0.2), reverse-xent(sym-0.1), "
        "reverse-xent(dir-4), reverse-xent([[..],[..]]), forward-xent(tau-0.2) (not for ppt) or "
        "./file.py:function. `posteer utilities` explains them."
    ),
]
Workers = Annotated[Whole, Parameter(help="Processes, or jobs of a cluster; more may join.")]
Executor = Annotated[
    str,
    Parameter(
        help="Where the work runs: local, shared(lease=60), slurm(partition=gpu,minutes=240), "
        "ray(address=auto), or one a package offers."
    ),
]
DrawSeconds = Annotated[
    float, Parameter(help="Time to draw for, where no size is given for a model of your own.")
]
Context = Annotated[
    str, Parameter(help="Tokens such as 0110 that the model has read before the prompt.")
]
Alphabet = Annotated[
    str | None,
    Parameter(
        help="Tokens that a language model is steered over, as text or #ids: ' H, T'; of any other "
        "model names for all its tokens: A,C,G,T."
    ),
]
OpeningText = Annotated[str, Parameter(help="Text that a language model reads before everything.")]
Device = Annotated[str, Parameter(help="Where a network runs: auto, cpu or cuda.")]
Rank = Annotated[
    bool | None,
    Parameter(
        negative="--no-rank",
        help="Rank the prompt among all; unless asked, only where that is exact or cheap.",
    ),
]
Horizon = Annotated[Whole, Parameter(help="Length of the continuations that are judged.")]
AsJson = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON object for machines.")
]
View = Annotated[
    str, Parameter(help="How to show it: panel, details, json, or one that is installed.")
]
Verbose = Annotated[
    bool, Parameter(negative="", help="All figures of the search: the same as --view details.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every search for prompts is asked."""

    model: Model = "exact:urn"
    utility: UtilityName = "dyck"
    length: Annotated[Whole, Parameter(help="Length of the prompt to find.")] = 6
    horizon: Horizon = 4
    context: Context = ""
    allowed: Annotated[
        str | None,
        Parameter(
            help="Conditions on the prompt: first=0;last=1;ban=11,000;count(1)<=10;position(3)=0|1."
        ),
    ] = None
    max_model_tokens: Annotated[
        WholeOrNone,
        Parameter(
            help="Most model tokens a run may ask for: bank, search and --verify together; judging "
            "what was found, and --rank, come on top."
        ),
    ] = None
    bank: Annotated[
        str | None,
        Parameter(
            help="File of latents from `posteer sample`, for classes, climb, ppt and ppt-rb."
        ),
    ] = None
    allow_mismatch: Annotated[
        bool,
        Parameter(negative="", help="Use a bank of another model, or drawn after other tokens."),
    ] = False
    rank: Rank = None
    device: Device = "auto"
    alphabet: Alphabet = None
    text: OpeningText = ""

    def given(self) -> dict[str, Any]:
        """The fields of a request by name."""
        return dict(vars(self))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskedToCompare(Asked):
    """The same of several methods, on a model that all of them can be asked about."""

    model: Model = "urn"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskedOnce(Asked):
    """What one search is asked besides."""

    method: Annotated[
        str,
        Parameter(
            help="auto, bounds, classes, classes-analytic, climb, climb-analytic, ppt, ppt-rb, "
            "ppt-analytic, ppt-rb-analytic, gcg, coordinate, beam, random, simplex-pt, real-pt, "
            "soft-pt or exhaustive. `posteer methods` explains them."
        ),
    ] = "auto"
    seed: Annotated[
        Whole, Parameter(help="Seed of the run; rollout banks are shared by all seeds.")
    ] = 0
    verify: Annotated[
        Whole, Parameter(help="Ask the model itself about so many of the best candidates.")
    ] = 0
    gap: Annotated[
        float | None,
        Parameter(help="Stop once the prompt is proven to be within so much of the best."),
    ] = None
    nodes: Annotated[WholeOrNone, Parameter(help="Most cases to look at for such a proof.")] = None
    save_bank: Annotated[
        str | None,
        Parameter(help="File for the bank that is drawn; the same command resumes the draw."),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of a network, where it differs from the preset's."""

    layers: Annotated[WholeOrNone, Parameter(help="Blocks of the transformer.")] = None
    width: Annotated[WholeOrNone, Parameter(help="Numbers that stand for a token.")] = None
    heads: Annotated[WholeOrNone, Parameter(help="Heads of attention in each block.")] = None
    feedforward: Annotated[
        WholeOrNone, Parameter(help="Width of the layer between those of attention.")
    ] = None
    positions: Annotated[
        str | None, Parameter(help="How it knows where a token stands: none or learned.")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How it is trained, where that differs."""

    batch: Annotated[WholeOrNone, Parameter(help="Sequences in a step.")] = None
    length: Annotated[WholeOrNone, Parameter(help="Tokens of a sequence.")] = None
    steps: Annotated[WholeOrNone, Parameter(help="Steps of training.")] = None
    warmup: Annotated[
        WholeOrNone, Parameter(help="Steps over which the learning rate rises to its peak.")
    ] = None
    peak_rate: Annotated[float | None, Parameter(help="The highest learning rate.")] = None
    final_rate: Annotated[
        float | None, Parameter(help="The learning rate that a cosine ends at.")
    ] = None
    accumulate: Annotated[
        WholeOrNone, Parameter(help="Parts that a step's batch is computed in, to save memory.")
    ] = None
    seed: Annotated[WholeOrNone, Parameter(help="Seed of weights and sequences.")] = None


def print_json(value: Any) -> None:
    """One line of strict JSON; torch is loaded by now."""
    from posteer.views.machine import print_json as say

    say(value)
