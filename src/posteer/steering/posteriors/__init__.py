"""Expected utilities of hard prompts from a fixed bank of latents, without the model."""

from posteer.latents.hard_prompts import HardScores
from posteer.steering.posteriors.base import HardPromptPosterior, scores_of_prompts
from posteer.steering.posteriors.choice import (
    ESTIMATORS,
    Automatic,
    Chosen,
    Estimators,
    PosteriorScorer,
)
from posteer.steering.posteriors.conjugate_fit import ConjugateFit
from posteer.steering.posteriors.importance_sampled import ImportanceSampled
from posteer.steering.posteriors.tempered_smc import TemperedSMC

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
