"""One call from the name of a model to a bank of its latents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posteer.banks.drawn import LatentBank
from posteer.banks.parts import checked_path
from posteer.banks.plans import SIZES, DrawPlan, fitted_family, seconds_of
from posteer.banks.shipped import shipped_bank
from posteer.banks.sizing import draw, is_sized, most_of, speaks, to_tune
from posteer.core import require
from posteer.core.device import undisturbed
from posteer.core.files import path_of
from posteer.core.limits import DRAW_SECONDS, MOST_LATENTS, MOST_SEED, MOST_TOKENS
from posteer.core.showing import Watch, watched
from posteer.core.spec import shown, within
from posteer.core.userfiles import leaving
from posteer.families.protocol import Family
from posteer.families.registry import open_family
from posteer.models.meter import Metered
from posteer.models.protocol import Model
from posteer.models.registry import open_model
from posteer.tokens.prompts import parse_context

UNVISITED = DrawPlan().unvisited

Drawer = Callable[[Model, DrawPlan, Path | None, int | None], LatentBank]
"""Draws a plan of a model into a file, in chunks of so many rollouts."""


def asked_family(model: Model, asked: str | Any | None) -> str:
    """What is asked of a model's latents, as it is kept; empty if that is what it says anyway."""
    if asked is None:
        return ""
    given = isinstance(asked, str) and bool(asked.strip())
    require(given, f"family {shown(asked)}: expected such as hmm(states=3)")
    found = open_family(asked, model.vocab_size, model.prior)
    return "" if found == model.family else str(getattr(found, "text", asked))


def tunes(model: Model) -> bool:
    """Whether latents of a model are chosen by what predicts it best: of Markov kernels, where it
    is no declared filter."""
    plan = DrawPlan(free=SIZES)
    return is_sized(model, plan) and to_tune(model, plan).tuned


def family_drawn(model: Model, asked: str | None) -> Family:
    """What the latents of a draw will be."""
    return fitted_family(model, asked_family(model, asked))


@undisturbed()
@watched
def sample(
    model: str | Model | Any,
    *,
    rollouts: int | Any | None = None,
    length: int | Any | None = None,
    seconds: float | Any = DRAW_SECONDS,
    seed: int | Any = 0,
    context: str | Sequence[int] | Any = (),
    unvisited: str | Any = UNVISITED,
    family: str | Any | None = None,
    keep_tokens: bool = False,
    tuned: bool | None = None,
    out: str | Path | Any | None = None,
    chunk: int | Any | None = None,
    device: str | Any = "auto",
    alphabet: str | Sequence[str | int] | Any = None,
    text: str | Any = "",
    progress: Watch = None,
    drawn_by: Drawer | None = None,
) -> LatentBank:
    """Draw a model's own latent prior, or its posterior after `context`, by rolling it out.

    A size that is not given is the paper's, 5,000 rollouts of 2,000 tokens, or what the model can
    read; of a model whose speed is not known, as much of that as `seconds` allow.

    With `out`, the same call goes on where an interrupted one stopped, and returns what is there if
    it is whole. Without it, the bank shipped with a model is returned if these are its
    settings. Either is then `reused`. A file of a model that predicts otherwise now is refused.

    `family` says what the latents are believed to be, where the model does not or says otherwise:
    `markov(order=2)`, `hmm(states=3)`, `hmm` (states by held-out likelihood), or `atoms`, those of
    the model's own finite prior. With `tuned` it is Markov kernels of the order, and smoothed as,
    predicts held-out rollouts best, whatever the utility; by default so for a language model
    where nothing else is said. `alphabet` and `text` as in a request.

    >>> bank = sample("exact:urn", rollouts=100, length=50)
    >>> tuple(bank.kernels.shape), bank.tokens
    ((100, 2, 2), 4900)

    Args:
        model: a name such as `urn` or `exact:urn`, a folder, `./file.py:name`, or an object.
        rollouts: how many latents are drawn, each off a text that the model writes itself.
        length: how many tokens such a text has.
        seconds: time to draw for, where a size is not given and the model's speed is not known.
        seed: seed of the draw.
        context: tokens that the model has read before: latents of its posterior after them.
        unvisited: what a row that a rollout never reached is filled with: donor, uniform,
            predictive or dirichlet.
        family: what the latents are: `markov(order=2)`, `hmm(states=3)`, `hmm` or `atoms`.
        keep_tokens: keep the rollouts themselves in the bank.
        tuned: choose order and smoothing by what predicts held-out rollouts best.
        out: file of the bank.
        chunk: rollouts at a time; as many as the memory takes by default.
        device: where a network runs: auto, cpu or cuda.
        alphabet: tokens that a language model is steered over; of any other model their names.
        text: what a language model reads before everything.
        progress: True for a progress bar, or a function of (what, steps done, steps at most).
        drawn_by: who draws ranges of the rollouts into `out`, other processes say; by default here.
    """
    sizes: dict[str, Any] = {}
    if rollouts is not None:
        sizes["n_samples"] = within(rollouts, "rollouts", 2, MOST_LATENTS)
    if length is not None:
        sizes["rollout_length"] = within(length, "length", 1, MOST_TOKENS)
    require(isinstance(unvisited, str), f"unvisited {shown(unvisited)}: expected such as donor")
    opened = open_model(model, device, alphabet=alphabet, text=text)
    plan = DrawPlan(
        **sizes,
        free=tuple(size for size in SIZES if size not in sizes),
        seconds=seconds_of(seconds),
        seed=within(seed, "seed", -MOST_SEED, MOST_SEED),
        context=parse_context(context, opened.vocabulary),
        unvisited=unvisited,
        keep_tokens=keep_tokens,
        family=asked_family(opened, family),
    )
    require(tuned in (None, True, False), f"tuned {shown(tuned)}: expected yes, no or nothing")
    if tuned is None:
        unsaid = bool(plan.free) and family is None and unvisited == UNVISITED
        tuned = unsaid and speaks(opened) and tunes(opened)
    if tuned:
        require(family is None, "tuned latents have the order that predicts best: give no family")
        plan = to_tune(opened, plan)
    chunk = None if chunk is None else within(chunk, "chunk", 1, MOST_LATENTS)
    if out is None and plan == DrawPlan():
        shipped = shipped_bank(opened.fingerprint)
        if shipped is not None:
            return replace(shipped, reused=True)
    most_of(opened, plan).check(opened)
    opened.conditioned(plan.context)  # exact Bayes refuses what it cannot have read
    where = None if out is None else checked_path(path_of(out, "out"))
    with leaving(opened.name):
        if drawn_by is not None:
            return drawn_by(opened, plan, where, chunk)
        return draw(Metered(opened), plan, where, chunk=chunk, progress=progress)
