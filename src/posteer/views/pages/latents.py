"""Latents of a sweep's models for a picture: of a bank that is at hand, or of a known prior.

No model is opened but an exact one by its prior's name, no code is run and no path that a record
names is read: banks are those of the package and of the sweep's own folder, verified.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posteer.banks.drawn import LatentBank, draw_analytic, load_bank
from posteer.banks.shipped import FOLDER, shipped_bank
from posteer.core.errors import InputError
from posteer.core.files import sha256
from posteer.families.markov.family import kernels_of, markov_space
from posteer.models import Model, open_model
from posteer.sweeps.results import Row

SHOWN = 1000
"""Latents of a picture: draws are independent, so the first are as good as any."""
MOST_ENTRIES = 16
"""Of a latent's table; larger ones have no picture."""


def latents_of(rows: Sequence[Row], folder: Path | None) -> dict[str, Any]:
    """By model, its latents or the reason why there are none."""
    shipped = {sha256(path): path for path in sorted(FOLDER.glob("*.safetensors"))}
    own = list(_banks_in(folder))
    found: dict[str, Any] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        hashes = {row["bank"] for row in rows if row["model"] == model and row.get("bank")}
        named = next((shipped[one] for one in sorted(hashes) if one in shipped), None)
        kept = next((bank for bank in own if bank.origin.model == model), None)
        try:
            found[model] = _picture(model, named, kept)
        except InputError as error:
            found[model] = {"why": f"{error}"}
    return found


def _picture(model: str, shipped: Path | None, kept: LatentBank | None) -> Mapping[str, Any]:
    if shipped is not None:
        return _packed(load_bank(shipped), "the bank that the model ships with")
    if kept is not None:
        return _packed(kept, "the bank that was drawn for this sweep")
    if _names_no_file(model):
        exact = open_model(model, "cpu")
        space = markov_space(exact.family, model)
        if exact.prior is not None and space.n_contexts * space.vocab_size <= MOST_ENTRIES:
            bank = draw_analytic(exact.prior, SHOWN, seed=0)
            return _packed(bank, "its known prior", drawn=True)
        return _too_large(space.n_contexts, space.vocab_size)
    return {"why": "No bank of this model is in the package or in the sweep's folder."}


def bank_at_hand(model: Model, most: int = SHOWN) -> LatentBank:
    """Kernels of a model that is open: of the bank it ships with, else draws of its known prior;
    what has none is refused."""
    space = markov_space(model.family, model.name)
    shipped = shipped_bank(model.fingerprint)
    if shipped is not None:
        return shipped
    if model.prior is None:
        raise InputError("no bank of this model is in the package, and its prior is not known")
    if space.n_contexts * space.vocab_size > MOST_ENTRIES:
        raise InputError(_too_large(space.n_contexts, space.vocab_size)["why"])
    return draw_analytic(model.prior, most, seed=0)


def picture_of(bank: LatentBank, most: int = SHOWN) -> dict[str, Any]:
    """The first latents of a bank that is at hand."""
    drawn = bank.origin.source == "analytic"
    source = "its known prior" if drawn else "the bank that the model ships with"
    return _packed(bank, source, drawn, most)


def _names_no_file(model: str) -> bool:
    """An exact model whose settings are numbers: `exact:markov(vocab=3,order=1)`."""
    found = re.fullmatch(r"exact:[a-z0-9-]+(?:\((.*)\))?", model)
    settings = "" if found is None else re.sub(r"[a-z_-]+=", "", found[1] or "")
    return found is not None and re.fullmatch(r"[\[\]\d.,\s+-]*", settings) is not None


def _too_large(contexts: int, vocab: int) -> dict[str, Any]:
    return {"why": f"A latent is a table of {contexts} by {vocab}: too large for a picture."}


def _packed(
    bank: LatentBank, source: str, drawn: bool = False, most: int = SHOWN
) -> dict[str, Any]:
    kernels = kernels_of(bank.latents)[:most]
    contexts, vocab = kernels.shape[1:]
    if contexts * vocab > MOST_ENTRIES:
        return _too_large(contexts, vocab)
    order = bank.latents.family.order
    data = kernels.float().contiguous().numpy().astype("<f4").tobytes()
    return {
        "source": source,
        "of": None if drawn else len(bank),
        "shown": len(kernels),
        "vocab": vocab,
        "order": order,
        "kernels": base64.b64encode(data).decode(),
    }


def _banks_in(folder: Path | None) -> Iterator[LatentBank]:
    """Whole banks of a sweep's folder that are of priors."""
    for path in [] if folder is None else sorted((folder / "banks").glob("[!.]*.safetensors")):
        try:
            bank = load_bank(path)
        except InputError:
            continue  # the next sweep sets it aside
        if not bank.origin.context:
            yield bank
