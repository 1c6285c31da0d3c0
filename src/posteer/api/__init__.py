"""The doors: elicit, evaluate, compare, sample, check."""

from typing import TYPE_CHECKING, Any

from posteer.api.comparing import compare
from posteer.api.eliciting import elicit, elicit_batch, elicit_many
from posteer.api.evaluating import evaluate
from posteer.banks.sampling import sample

if TYPE_CHECKING:
    from posteer.banks.checks.report import check_filter

__all__ = [
    "check_filter",
    "compare",
    "elicit",
    "elicit_batch",
    "elicit_many",
    "evaluate",
    "sample",
]


def __getattr__(name: str) -> Any:
    if name != "check_filter":
        raise AttributeError(f"module 'posteer.api' has no attribute '{name}'")
    from posteer.banks.checks.report import check_filter  # as much code as all other doors

    return check_filter
