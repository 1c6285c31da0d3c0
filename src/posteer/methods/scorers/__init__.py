"""Expected utilities of hard prompts from a fixed bank of latents, without the model."""

from posteer.methods.scorers.choice import (
    ESTIMATORS,
    Automatic,
    Chosen,
    Estimators,
    PosteriorScorer,
)
from posteer.methods.scorers.conjugate import ConjugateFit
from posteer.methods.scorers.importance import ImportanceSampled
from posteer.methods.scorers.posterior import HardPromptPosterior, scores_of_prompts
from posteer.methods.scorers.protocol import HardScores
from posteer.methods.scorers.smc import TemperedSMC

__all__ = [
    "ESTIMATORS",
    "Automatic",
    "Chosen",
    "ConjugateFit",
    "Estimators",
    "HardPromptPosterior",
    "HardScores",
    "ImportanceSampled",
    "PosteriorScorer",
    "TemperedSMC",
    "scores_of_prompts",
]
