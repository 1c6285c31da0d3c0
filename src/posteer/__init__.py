"""posteer: elicit behaviour from sequence models by steering their latent posterior."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from posteer.version import __version__ as __version__

if TYPE_CHECKING:
    from posteer.comparison import compare
    from posteer.elicitation import Elicitation, elicit, elicit_many
    from posteer.errors import InputError
    from posteer.evaluation import estimate_from_bank, expected_utility, landscape
    from posteer.experiments.sweep.results import load_results
    from posteer.latents import LatentBank, load_bank, sample
    from posteer.latents.checks import check_filter
    from posteer.models import load, open_model
    from posteer.processes import open_process
    from posteer.utilities import open_utility

# Names resolve on first use, so that `import posteer` (and `posteer --help`) does not load torch.
_HOMES = {
    "Elicitation": "posteer.elicitation",
    "elicit": "posteer.elicitation",
    "elicit_many": "posteer.elicitation",
    "InputError": "posteer.errors",
    "estimate_from_bank": "posteer.evaluation",
    "expected_utility": "posteer.evaluation",
    "landscape": "posteer.evaluation",
    "compare": "posteer.comparison",
    "LatentBank": "posteer.latents",
    "load_bank": "posteer.latents",
    "load_results": "posteer.experiments.sweep.results",
    "sample": "posteer.latents",
    "check_filter": "posteer.latents.checks",
    "load": "posteer.models",
    "open_model": "posteer.models",
    "open_process": "posteer.processes",
    "open_utility": "posteer.utilities",
}

__all__ = [
    "Elicitation",
    "InputError",
    "LatentBank",
    "check_filter",
    "compare",
    "elicit",
    "elicit_many",
    "estimate_from_bank",
    "expected_utility",
    "landscape",
    "load",
    "load_bank",
    "load_results",
    "open_model",
    "open_process",
    "open_utility",
    "sample",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'posteer' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
