"""posteer: elicit behaviour from sequence models by steering their latent posterior."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from posteer.core.version import __version__ as __version__

if TYPE_CHECKING:
    from posteer.api.compare import compare
    from posteer.api.elicit import elicit, elicit_many
    from posteer.banks import LatentBank, load_bank, sample
    from posteer.banks.checks.report import check_filter
    from posteer.core.errors import InputError
    from posteer.evaluation import estimate_from_bank, expected_utility, landscape
    from posteer.families.markov.priors import open_process
    from posteer.goals.utilities import open_utility
    from posteer.models import load, open_model
    from posteer.results import Elicitation
    from posteer.sweeps.results import load_results

# Names resolve on first use, so that `import posteer` (and `posteer --help`) does not load torch.
_HOMES = {
    "Elicitation": "posteer.results",
    "elicit": "posteer.api.elicit",
    "elicit_many": "posteer.api.elicit",
    "InputError": "posteer.core.errors",
    "estimate_from_bank": "posteer.evaluation",
    "expected_utility": "posteer.evaluation",
    "landscape": "posteer.evaluation",
    "compare": "posteer.api.compare",
    "LatentBank": "posteer.banks",
    "load_bank": "posteer.banks",
    "load_results": "posteer.sweeps.results",
    "sample": "posteer.banks",
    "check_filter": "posteer.banks.checks.report",
    "load": "posteer.models",
    "open_model": "posteer.models",
    "open_process": "posteer.families.markov.priors",
    "open_utility": "posteer.goals.utilities",
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
