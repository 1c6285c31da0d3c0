"""How good prompts are on the model itself, alone and among all, and what finding that out asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from posteer.core import Int, Progress, phase
from posteer.core.limits import RANKED_TOKENS
from posteer.evaluation import (
    Evaluation,
    PromptLandscape,
    expected_utilities,
    landscapes,
    tokens_of_landscape,
    tokens_of_value,
)
from posteer.goals.utilities import Goal
from posteer.methods.cautions import of_judgement
from posteer.methods.protocol import key_of
from posteer.models.meter import Metered
from posteer.models.protocol import Can, Model
from posteer.models.shares import Share, share_along
from posteer.results import Judged
from posteer.tokens.conditions import AllowedPrompts


@dataclass(frozen=True, eq=False)
class Judge:
    """Judges prompts of one length on a model, through a meter of its own: no run is charged.

    With `rank` None all prompts are tried where that is cheap: on an exact model, elsewhere for at
    most `RANKED_TOKENS` and for no more than is `left` of a budget.
    """

    model: Model
    length: int
    horizon: int
    allowed: AllowedPrompts | None = None
    rank: bool | None = None
    left: int | None = None

    def judge(
        self,
        goals: Sequence[Goal],
        prompts: Int[torch.Tensor, "B m"],
        seeds: Sequence[int],
        progress: Progress | None = None,
    ) -> tuple[list[Judged], int]:
        """Each prompt under a goal of its own, and the model tokens that judging one takes; what
        ranking takes is shared by all of them."""
        meter = Metered(self.model)
        price = tokens_of_landscape(meter, self.length, self.horizon, self.allowed)
        own = tokens_of_value(meter, self.length, self.horizon)
        ranks = self._ranks(price, own)
        distinct = {key_of(goal): goal for goal in goals}
        among: dict[Any, PromptLandscape | None] = dict.fromkeys(distinct)
        with phase("rank"):
            if ranks:
                some = list(distinct.values())
                shape = (self.length, self.horizon)
                found = landscapes(meter, some, *shape, progress, self.allowed)
                among = dict(zip(distinct, found, strict=True))
        ranking = meter.queries.total
        with phase("judge"):
            values = expected_utilities(meter, goals, prompts, self.horizon, seeds=seeds)
        before = meter.queries.total
        judged = [
            judged_among(
                self.model.can,
                value,
                among[key_of(goal)],
                None if ranks else price,
                share_along(meter, prompt, self.horizon),
            )
            for goal, value, prompt in zip(goals, values, prompts, strict=True)
        ]
        shares = (meter.queries.total - before) // len(goals)
        return judged, ranking + own + shares

    def _ranks(self, price: int | None, own: int) -> bool:
        if self.rank is not None or Can.EXACT in self.model.can:
            return self.rank is not False
        most = RANKED_TOKENS if self.left is None else min(RANKED_TOKENS, self.left - own)
        return price is not None and price <= most


def judged_among(
    can: Can,
    judged: Evaluation,
    among: PromptLandscape | None,
    unasked: int | None = None,
    share: Share | None = None,
) -> Judged:
    """One prompt's value and its place among all; or how many tokens that would have asked."""
    value = float(judged.expected_utility[0])
    optimum = None if among is None else among.optimum
    return Judged(
        expected_utility=value,
        standard_error=float(judged.standard_error[0]),
        rank=None if among is None else among.rank(value),
        optimum=optimum,
        best_prompt=None if among is None else among.best_prompt.tolist(),
        bound=optimum if Can.EXACT in can else None,
        warnings=tuple(of_judgement(float(judged.standard_error[0]), judged.exact, share)),
        alphabet_share=share,
        exact=judged.exact,
        n_prompts=None if among is None else among.n_prompts,
        unasked=unasked,
    )
