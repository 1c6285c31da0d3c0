"""Prompts steered by hand: what a model does after one, and how good that is among all prompts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch

from posteer.core.device import undisturbed
from posteer.core.errors import require
from posteer.core.limits import RANKED_TOKENS
from posteer.core.weights import normalise, weighted_mean
from posteer.evaluation import PromptLandscape, landscape, tokens_of_landscape
from posteer.evaluation.values import check_prompts, require_numbers
from posteer.explorer.asked import Cell
from posteer.explorer.frames import figure, packed_weights
from posteer.families.markov.family import MarkovLatents
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import PromptKernel, latents_last, log_tilt
from posteer.families.protocol import FinitePrior
from posteer.goals.objectives import objective_of
from posteer.goals.utilities import Goal, open_goal, open_utility
from posteer.models.continuations import continuation_laws
from posteer.models.meter import Metered
from posteer.models.protocol import Can
from posteer.tokens.contexts import all_sequences

MOST_FIELDS = 32
"""Cells whose prompts are all known."""
MOST_LEAVES = 1024
"""Continuations that are shown one by one."""


class Hand:
    """Judges prompts, and remembers how all prompts of a cell stand."""

    def __init__(self) -> None:
        self._fields: OrderedDict[tuple[Any, ...], PromptLandscape | None] = OrderedDict()
        self._lock, self._counting = threading.Lock(), threading.Lock()

    @undisturbed()
    @torch.no_grad()
    def judged(self, cell: Cell, tokens: list[int]) -> dict[str, Any]:
        """The law of what follows a prompt as a tree, the utility of its leaves, J and the rank."""
        model, prompt = cell.model.model, torch.tensor([tokens])
        check_prompts(model, prompt)
        goal = open_goal(cell.utility, model)
        require(not bool(model.impossible(prompt).any()), "no latent can emit this prompt")
        laws = continuation_laws(model, prompt, cell.horizon)
        last = model.last_contexts(goal.order, prompt)
        value = objective_of(goal, model.vocab_size, cell.horizon).of_laws(laws, last)
        require_numbers(goal, value)
        shares = laws[0].exp().cpu()
        levels = [
            shares.reshape(model.vocab_size**depth, -1).sum(-1).tolist()
            for depth in range(1, cell.horizon + 1)
        ]
        known = self._known(cell)
        return {
            "J": figure(float(value[0])),
            "tree": [[figure(p) for p in level] for level in levels if len(level) <= MOST_LEAVES],
            "utilities": _utilities(goal, model.vocab_size, cell.horizon, last),
            "atoms": _atoms(cell, tokens),
            "rank": None if known is None else known.rank(float(value[0])),
            "prompts": None if known is None else known.n_prompts,
        }

    @undisturbed()
    @torch.no_grad()
    def field(self, cell: Cell) -> dict[str, Any]:
        """All prompts of a cell, best first, where trying them is cheap; else nothing is said."""
        with self._counting:  # one at a time, whoever asks
            if _key(cell) not in self._fields:
                self._learn(cell)
        known = self._known(cell)
        if known is None:
            return {"prompts": None}
        order = known.values.argsort(descending=True)[:MOST_LEAVES].tolist()
        return {
            "prompts": known.n_prompts,
            "values": [figure(float(known.values[row])) for row in order],
            "sizes": [known.sizes[row] for row in order],
            "optimum": figure(known.optimum),
            "best": known.best_prompt.tolist(),
        }

    @undisturbed()
    @torch.no_grad()
    def tilted(self, cell: Cell, rows: Any) -> dict[str, Any]:
        """How a law of prompts weighs the latents, and what they expect of it: the surrogate."""
        latents = cell.model.bank.latents
        assert isinstance(latents, MarkovLatents), "as bank_at_hand promises"
        space, steps = latents.space, cell.length - latents.space.order
        require(steps >= 1, f"length {cell.length}: expected more than the order {space.order}")
        shape = (space.n_contexts, space.vocab_size)
        table = _table(rows, shape)
        starts = torch.full((1, space.n_contexts), 1 / space.n_contexts, dtype=torch.float64)
        kernel = PromptKernel(table[None], starts)
        weights = log_tilt(space, kernel, latents_last(latents.kernels.double())[None], steps)[0]
        goal = open_utility(cell.utility, cell.model.model)
        told = {"weights": packed_weights(weights), "surrogate": None}
        if goal.order <= space.order:
            means = utility_of_kernels(goal, space, latents.kernels.double(), cell.horizon)
            mean = weighted_mean(weights, means @ kernel.final_context(space, steps)[0])
            told["surrogate"] = figure(float(mean.value))  # type: ignore[assignment]
        effective = 1 / normalise(weights).square().sum()
        return {**told, "ess": figure(float(effective) / len(weights))}

    def _learn(self, cell: Cell) -> None:
        model, shape = Metered(cell.model.model), (cell.length, cell.horizon)
        price = tokens_of_landscape(model, *shape)
        cheap = Can.EXACT in model.can or (price is not None and price <= RANKED_TOKENS)
        found = landscape(model, cell.utility, *shape, device=None) if cheap else None
        with self._lock:
            self._fields[_key(cell)] = found
            while len(self._fields) > MOST_FIELDS:
                self._fields.popitem(last=False)

    def _known(self, cell: Cell) -> PromptLandscape | None:
        with self._lock:
            return self._fields.get(_key(cell))


def _key(cell: Cell) -> tuple[Any, ...]:
    return cell.model.pick.id, cell.utility, cell.length, cell.horizon


def _table(rows: Any, shape: tuple[int, int]) -> torch.Tensor:
    good = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    good = good and [len(row) for row in rows] == [shape[1]] * shape[0]
    good = good and all(type(p) in (int, float) and 0 <= p <= 1 for row in rows for p in row)
    require(good, f"kernel: expected {shape[0]} rows of {shape[1]} probabilities")
    table = torch.tensor(rows, dtype=torch.float64).clamp(min=1e-6)
    return table / table.sum(-1, keepdim=True)


def _utilities(goal: Goal, vocab: int, horizon: int, last: torch.Tensor) -> list[Any] | None:
    """The utility of each continuation."""
    if not callable(goal) or vocab**horizon > MOST_LEAVES:
        return None
    every = all_sequences(vocab, horizon)
    return [figure(u) for u in goal(every, last.expand(len(every))).tolist()]


def _atoms(cell: Cell, tokens: list[int]) -> list[Any] | None:
    """Weights of all latents after a prompt, where they are few and known."""
    prior: object = cell.model.model.prior
    if cell.model.atoms is None or not isinstance(prior, FinitePrior):
        return None
    joint = prior.as_atoms().read(torch.tensor([tokens])).log_joint[0]
    return [figure(w) for w in normalise(joint).tolist()]
