"""posteer: elicit behaviour from sequence models by steering their latent posterior."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from posteer.api import compare as compare
    from posteer.api import elicit as elicit
    from posteer.api import elicit_batch as elicit_batch
    from posteer.api import elicit_many as elicit_many
    from posteer.api import evaluate as evaluate
    from posteer.banks import LatentBank as LatentBank
    from posteer.banks import load_bank as load_bank
    from posteer.banks import sample as sample
    from posteer.banks.checks.report import check_filter as check_filter
    from posteer.core.errors import InputError as InputError
    from posteer.evaluation import estimate_from_bank as estimate_from_bank
    from posteer.evaluation import expected_utility as expected_utility
    from posteer.evaluation import landscape as landscape
    from posteer.families.atoms.files import save_atoms as save_atoms
    from posteer.families.registry import open_process as open_process
    from posteer.goals.utilities import open_utility as open_utility
    from posteer.methods.protocol import Request as Request
    from posteer.models import load as load
    from posteer.models import open_model as open_model
    from posteer.models.personas import personas as personas
    from posteer.models.wrapped.wrapping import wrap as wrap
    from posteer.results import Elicitation as Elicitation
    from posteer.results import load_result as load_result
    from posteer.sweeps.results import load_results as load_results

# Names resolve on first use, so that `import posteer` (and `posteer --help`) does not load torch.
_HOMES = {
    "Elicitation": "posteer.results",
    "InputError": "posteer.core.errors",
    "LatentBank": "posteer.banks",
    "Request": "posteer.methods.protocol",
    "check_filter": "posteer.banks.checks.report",
    "compare": "posteer.api",
    "elicit": "posteer.api",
    "elicit_batch": "posteer.api",
    "elicit_many": "posteer.api",
    "estimate_from_bank": "posteer.evaluation",
    "evaluate": "posteer.api",
    "expected_utility": "posteer.evaluation",
    "landscape": "posteer.evaluation",
    "load": "posteer.models",
    "load_bank": "posteer.banks",
    "load_result": "posteer.results",
    "load_results": "posteer.sweeps.results",
    "open_model": "posteer.models",
    "open_process": "posteer.families.registry",
    "open_utility": "posteer.goals.utilities",
    "personas": "posteer.models.personas",
    "sample": "posteer.banks",
    "save_atoms": "posteer.families.atoms.files",
    "wrap": "posteer.models.wrapped.wrapping",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'posteer' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*_HOMES, *(name for name in globals() if name.startswith("__"))]
