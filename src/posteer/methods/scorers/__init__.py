"""Expected utilities of hard prompts from a fixed bank of latents: estimators by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posteer.core.registry import Registry
from posteer.methods.scorers.posterior import HardPromptPosterior

SCORERS: Registry[Callable[[Any], HardPromptPosterior]] = Registry(
    "estimator",
    "scorers",
    {
        "importance": "posteer.methods.scorers.choice:importance",
        "psis": "posteer.methods.scorers.choice:psis",
        "conjugate": "posteer.methods.scorers.choice:conjugate",
        "smc": "posteer.methods.scorers.choice:smc",
    },
)
"""Each makes an estimator for the `Estimators` of a bank, which keep what they share."""
