"""How good prompts are on a model: J, alone and among all."""

from posteer.evaluation.ranking import PromptLandscape, landscape, landscapes, tokens_of_landscape
from posteer.evaluation.values import (
    Evaluation,
    check_prompts,
    estimate_from_bank,
    expected_utilities,
    expected_utility,
    log_probs_of,
    rows_of,
    tokens_of_value,
)

__all__ = [
    "Evaluation",
    "PromptLandscape",
    "check_prompts",
    "estimate_from_bank",
    "expected_utilities",
    "expected_utility",
    "landscape",
    "landscapes",
    "log_probs_of",
    "rows_of",
    "tokens_of_landscape",
    "tokens_of_value",
]
