"""Banks kept between calls, of models whose speed is not known: those take minutes to draw.

One is found by the model's fingerprint and by how it was drawn, and used only if the model still
predicts what it did then. What cannot be kept is drawn again next time.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from posteer.banks.drawn import LatentBank, load_bank
from posteer.banks.plans import DrawPlan, key_of, plan_of
from posteer.banks.probes import require_laws
from posteer.core.caches import cache_folder
from posteer.core.errors import InputError, require
from posteer.models.protocol import Model

MOST_KEPT = 64
"""Banks: of more, those that were not used for longest are removed."""


def place_of(model: Model, plan: DrawPlan) -> Path | None:
    """The file of a bank whose free sizes may be any; None where nothing is kept."""
    folder = cache_folder()
    if folder is None:
        return None
    any_sizes = plan.of_sizes(dict.fromkeys(plan.free, 0))
    facts = f"{key_of(model.fingerprint, any_sizes)} {plan.free} {plan.seconds}"
    name = hashlib.sha256(facts.encode()).hexdigest()[:32]
    return folder / "banks" / f"{name}.safetensors"


def is_kept(model: Model, plan: DrawPlan) -> bool:
    """Whether there is a bank, of the same model or of one that was called the same."""
    place = place_of(model, plan)
    return place is not None and place.is_file()


def earlier_bank(model: Model, plan: DrawPlan, budget: int | None = None) -> LatentBank | None:
    """The bank of an earlier call; None where there is none that is whole, or the model predicts
    otherwise now, which it is asked about within a budget."""
    place = place_of(model, plan)
    if place is None or not place.is_file():
        return None
    try:
        bank = load_bank(place)
        made = plan_of(bank)
        wanted = plan.of_sizes({size: getattr(made, size) for size in plan.free})
        require(bank.names(model) and made == wanted, f"{place}: another draw")
        require_laws(bank.probe, model, plan.context, "drawn anew", budget)
    except (InputError, OSError):
        return None
    with suppress(OSError):
        os.utime(place)
    return replace(bank, reused=True)


def keep(bank: LatentBank, model: Model, plan: DrawPlan) -> None:
    """Write the bank for later calls, if that can be."""
    place = place_of(model, plan)
    if place is None:
        return
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        bank.save(place)
        _tidy(place.parent)


def _tidy(folder: Path) -> None:
    files = sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
    for path in files[:-MOST_KEPT]:
        path.unlink()
