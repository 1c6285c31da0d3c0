"""L hidden Markov models at once: a start law, and one operator for each token.

`operators[l, s, v, t]` is the probability to emit `v` and go from state `s` to `t`; over (v, t)
they sum to one. The law of a prompt is a product of operators, the belief after it the normalised
row `start T_y1 .. T_ym`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, integer, require
from posteer.core.spec import within
from posteer.families.finite_state.fit import choose_states, fit_each
from posteer.families.finite_state.values import require_room, values_of_states
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.families.tallies import TokenTally, WholeRollouts, sound_tokens
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace, sound_rows

MOST_FITTED = 64
"""Of machines that are fitted."""
MOST_TRIED = 4
"""States up to which their number is found out where none is named."""
TREATMENTS = ("donor", "uniform")


@dataclass(frozen=True)
class StateFamily(WholeRollouts):
    """Hidden Markov models over a vocabulary with so many states."""

    vocab_size: int
    n_states: int
    order: int = 0

    @property
    def name(self) -> str:
        return "hmm"

    @property
    def space(self) -> ContextSpace:
        """The contexts that prompt kernels are over: the last token."""
        return ContextSpace(self.vocab_size, 1)

    @property
    def text(self) -> str:
        """From which `open_family` makes it again."""
        return f"hmm(states={self.n_states})"

    @property
    def treatments(self) -> tuple[str, ...]:
        """What fills in for what a rollout never met: other rollouts, or all alike."""
        return TREATMENTS

    @property
    def numbers(self) -> int:
        """Of one latent."""
        return self.n_states * self.vocab_size * self.n_states

    def facts(self) -> dict[str, Any]:
        """What its files say of it besides vocabulary and order."""
        return {"n_states": self.n_states}

    def tally(self, n: int, context: tuple[int, ...], device: torch.device) -> TokenTally:
        return TokenTally(self.vocab_size)

    def fit_after(
        self,
        context: tuple[int, ...],
        counts: Int[Tensor, "L T"],
        treatment: str,
        stream: np.random.Generator,
    ) -> StateLatents:
        """A machine for each rollout, by Baum and Welch."""
        uniform = treatment == "uniform"
        read = behind(counts, context)
        found = fit_each(read, self.vocab_size, self.n_states, stream, uniform=uniform)
        return StateLatents(found.initial, found.operators).after(context)

    def latents_of(self, tensors: dict[str, Tensor]) -> StateLatents:
        """Latents from the tensors of a bank, refused where they are none."""
        latents = state_latents(tensors["start"], tensors["operators"])
        found = (latents.family.vocab_size, latents.family.n_states)
        expected = (self.vocab_size, self.n_states)
        require(found == expected, f"tokens and states {found}: expected {expected}")
        sound_tokens(tensors, len(latents), self.vocab_size)
        return latents


@dataclass(frozen=True)
class ChosenStates(WholeRollouts):
    """Hidden Markov models of as many states as rollouts ask for, at most so many."""

    vocab_size: int
    most: int = MOST_TRIED
    order: int = 0

    @property
    def name(self) -> str:
        return "hmm"

    @property
    def text(self) -> str:
        return f"hmm(most={self.most})"

    @property
    def treatments(self) -> tuple[str, ...]:
        return TREATMENTS

    @property
    def numbers(self) -> int:
        return self.of(self.most).numbers

    def of(self, n_states: int) -> StateFamily:
        """Once their number is known."""
        return StateFamily(self.vocab_size, n_states)

    def tally(self, n: int, context: tuple[int, ...], device: torch.device) -> TokenTally:
        return TokenTally(self.vocab_size)

    def fit_after(
        self,
        context: tuple[int, ...],
        counts: Int[Tensor, "L T"],
        treatment: str,
        stream: np.random.Generator,
    ) -> StateLatents:
        n_states, _ = choose_states(behind(counts, context), self.vocab_size, self.most, stream)
        return self.of(n_states).fit_after(context, counts, treatment, stream)

    def latents_of(self, tensors: dict[str, Tensor]) -> StateLatents:
        return self.of(tensors["start"].shape[1]).latents_of(tensors)


def behind(rollouts: Int[Tensor, "L T"], context: tuple[int, ...]) -> Int[Tensor, "L N"]:
    """Rollouts with the context that they continue."""
    read = torch.tensor(context, dtype=torch.long).expand(len(rollouts), -1)
    return torch.cat([read, rollouts.long()], 1)


def from_facts(facts: Mapping[str, Any]) -> StateFamily:
    """The family that a bank's file names."""
    return StateFamily(facts["vocab_size"], facts["n_states"])


def asked_for(spec: Spec, vocab_size: int, prior: object) -> StateFamily | ChosenStates:
    """`hmm(states=3)`; `hmm` and `hmm(most=6)` find out how many, by held-out likelihood."""
    given = spec.take(("states",), states=None, most=None)
    if given["states"] is None:
        most = MOST_TRIED if given["most"] is None else integer(given["most"], "hmm: most")
        return ChosenStates(vocab_size, within(most, "hmm: most", 1, MOST_FITTED))
    require(given["most"] is None, "hmm: states and most exclude each other")
    n_states = integer(given["states"], "hmm: states")
    return StateFamily(vocab_size, within(n_states, "hmm: states", 1, MOST_FITTED))


@dataclass(frozen=True, eq=False)
class StateReading:
    """`belief[b, l]` is the law of latent l's state after history b, `log_likelihood` its scale."""

    latents: StateLatents
    log_likelihood: Float[Tensor, "B L"]
    belief: Float[Tensor, "B L S"]

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        return torch.einsum("bls,lsv->blv", self.belief, self.latents.emission).log()

    def select(self, rows: Int[Tensor, "K"]) -> StateReading:
        return replace(self, log_likelihood=self.log_likelihood[rows], belief=self.belief[rows])


@dataclass(frozen=True, eq=False)
class StateLatents(ReadingLatents):
    """L hidden Markov models with the same number of states."""

    initial: Float[Tensor, "L S"]
    operators: Float[Tensor, "L S V S"]

    @property
    def family(self) -> StateFamily:
        return StateFamily(self.operators.shape[2], self.operators.shape[1])

    def __len__(self) -> int:
        return len(self.initial)

    @property
    def width(self) -> int:
        return self.initial.numel() + len(self) * self.operators.shape[2]

    @property
    def emission(self) -> Float[Tensor, "L S V"]:
        """The next-token law of each state."""
        return self.operators.sum(-1)

    def start(self, batch: int) -> StateReading:
        silent = self.initial.new_zeros(batch, len(self))
        return StateReading(self, silent, self.initial.expand(batch, -1, -1))

    def observe(self, reading: StateReading, tokens: Int[Tensor, "B"]) -> StateReading:
        moved = torch.empty_like(reading.belief, memory_format=torch.contiguous_format)
        for token in tokens.unique().tolist():
            rows = (tokens == token).nonzero()[:, 0]
            moved[rows] = torch.einsum(
                "bls,lst->blt", reading.belief[rows], self.operators[:, :, token]
            )
        chance = moved.sum(-1)
        possible = chance > 0
        scale = torch.where(possible, chance, 1.0)
        # What no state can emit leaves no belief; whatever follows has likelihood 0 all the same.
        belief = torch.where(possible[..., None], moved / scale[..., None], reading.belief)
        news = torch.where(possible, scale.log(), -math.inf)
        return StateReading(self, reading.log_likelihood + news, belief)

    def values(self, utility: Utility, horizon: int) -> Float[Tensor, "C L S"]:
        """The mean utility of what follows each state, by what the utility has read before."""

        def back(token: int, value: Tensor) -> Tensor:
            return torch.einsum("lst,...lt->...ls", self.operators[:, :, token], value)

        ones = torch.ones_like(self.initial)
        return values_of_states(utility, self.family.vocab_size, horizon, back, ones)

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        values = self.values(utility, horizon)

        def mean(reading: StateReading, contexts: Int[Tensor, "B"]) -> Float[Tensor, "B L"]:
            return (reading.belief * values[contexts]).sum(-1)

        return mean

    def pick(self, rows: Int[Tensor, "K"]) -> StateLatents:
        return StateLatents(self.initial[rows], self.operators[rows])

    def as_machines(self) -> StateLatents:
        return self

    def after(self, tokens: tuple[int, ...]) -> StateLatents:
        """The same machines where a history has left them."""
        reading = self.read(torch.tensor([tokens], dtype=torch.long))
        return StateLatents(reading.belief[0], self.operators)

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        own, device = self.after(head), generator.device
        n_states, vocab = self.family.n_states, self.family.vocab_size
        state = drawn_of(own.initial.to(device), generator)
        tokens = torch.zeros(len(self), length, dtype=torch.long, device=device)
        each, operators = torch.arange(len(self), device=device), own.operators.to(device)
        for place in range(length):
            move = drawn_of(operators[each, state].reshape(-1, vocab * n_states), generator)
            tokens[:, place], state = move // n_states, move % n_states
        return tokens

    def tensors(self) -> dict[str, Tensor]:
        return {"start": self.initial, "operators": self.operators}


def drawn_of(law: Float[Tensor, "L K"], generator: torch.Generator) -> Int[Tensor, "L"]:
    """A draw of each law."""
    uniform = torch.rand(len(law), 1, dtype=law.dtype, generator=generator, device=law.device)
    return (uniform >= law.cumsum(-1)[:, :-1]).sum(-1)


def state_latents(initial: Tensor, operators: Tensor, what: str = "hmm") -> StateLatents:
    """Validated machines: laws that sum to one, and no state that is never reached."""
    shape = tuple(operators.shape)
    fits = operators.ndim == 4 and shape[1] == shape[3] and tuple(initial.shape) == shape[:2]
    require(
        fits and min(shape) >= 1 and shape[2] >= 2,
        f"{what}: operators of shape {shape} and a start of {tuple(initial.shape)}: expected "
        "states x tokens (2 or more) x states, and a start for each state",
    )
    start = sound_rows(initial, f"{what}: start")
    whole = sound_rows(operators.flatten(2), f"{what}: operators of a state").unflatten(
        2, shape[2:]
    )
    lost = (~reachable(start, whole)).nonzero().tolist()
    require(
        not lost, f"{what}: state {lost[0][-1] if lost else 0} cannot be reached from the start"
    )
    return StateLatents(start, whole)


def reachable(initial: Float[Tensor, "L S"], operators: Float[Tensor, "L S V S"]) -> Tensor:
    """The states that some history leads to, or that are there at the start."""
    steps = (operators.sum(2) > 0).double()
    met = initial > 0
    for _ in range(initial.shape[1]):
        more = met | (torch.einsum("ls,lst->lt", met.double(), steps) > 0)
        if bool((more == met).all()):
            break
        met = more
    return met


def padded(machines: list[StateLatents]) -> StateLatents:
    """Machines of different sizes side by side; states that are added are never reached."""
    size = max(one.family.n_states for one in machines)
    require_room(
        size * size * sum(len(one) * one.family.vocab_size for one in machines),
        "hidden Markov models",
    )
    starts, operators = [], []
    for one in machines:
        n, own, vocab = len(one), one.family.n_states, one.family.vocab_size
        start = one.initial.new_zeros(n, size)
        start[:, :own] = one.initial
        whole = one.operators.new_zeros(n, size, vocab, size)
        whole[:, :own, :, :own] = one.operators
        rest = torch.arange(own, size)
        whole[:, rest, :, rest] = 1 / vocab
        starts.append(start)
        operators.append(whole)
    return StateLatents(torch.cat(starts), torch.cat(operators))
