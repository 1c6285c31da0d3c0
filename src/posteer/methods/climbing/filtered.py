"""J of hard prompts by the filter of a known prior: exact, and dearer than latents only where
continuations outnumber them."""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.families.protocol import Prior
from posteer.goals.objectives import objective_of
from posteer.goals.utilities import Goal
from posteer.methods.scorers.protocol import HardScores
from posteer.models.continuations import shared_laws
from posteer.models.exact import ExactModel
from posteer.models.meter import Metered


class FilterScore:
    """Scores prompts behind whatever context the prior has read."""

    def __init__(self, prior: Prior, goal: Goal, horizon: int) -> None:
        self._model = Metered(ExactModel(prior))
        self._goal, self._horizon = goal, horizon
        self._objective = objective_of(goal, self._model.vocab_size, horizon)

    def __call__(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """The value of each prompt; `-inf` if no latent can emit it."""
        at_once = max(1, NUMBERS_AT_ONCE // self._model.vocab_size**self._horizon)
        return torch.cat([self._values(some) for some in prompts.split(at_once)])

    def _values(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        values = torch.full((len(prompts),), -torch.inf, dtype=torch.float64)
        possible = ~self._model.impossible(prompts)
        if bool(possible.any()):
            kept = prompts[possible]
            laws = shared_laws(self._model, kept, self._horizon)
            contexts = self._model.last_contexts(self._goal.order, kept)
            values[possible] = self._objective.of_laws(laws, contexts)
        return values

    def scores(self, prompts: Int[Tensor, "K m"]) -> HardScores:
        """The same, with nothing in doubt."""
        values = self(prompts)
        return HardScores.of(values, torch.zeros_like(values))
