"""The doors: elicit, evaluate, compare, sample, check."""

from posteer.api.comparing import compare
from posteer.api.eliciting import elicit, elicit_batch, elicit_many
from posteer.api.evaluating import evaluate
from posteer.banks.checks.report import check_filter
from posteer.banks.sampling import sample

__all__ = [
    "check_filter",
    "compare",
    "elicit",
    "elicit_batch",
    "elicit_many",
    "evaluate",
    "sample",
]
