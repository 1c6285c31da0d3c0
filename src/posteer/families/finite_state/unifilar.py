"""Latents whose state is known from what was read: kernels of any order, context trees.

`emission[l, s]` is the law of the next token in state `s`, `next_state[s, v]` where token `v`
leads, the same for all latents. A k-Markov kernel has a state for every context of up to k tokens;
while fewer than k are read its tokens are uniform, as the first tokens of the paper's training data
are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.families.finite_state.machines import StateLatents, drawn_of
from posteer.families.finite_state.values import require_room, values_of_states
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import ContextSpace


@dataclass(frozen=True)
class UnifilarFamily:
    """Machines over a vocabulary whose tokens say their state."""

    vocab_size: int
    n_states: int
    order: int = 0

    @property
    def name(self) -> str:
        return "unifilar"

    @property
    def space(self) -> ContextSpace:
        """The contexts that prompt kernels are over: the last token."""
        return ContextSpace(self.vocab_size, 1)


@dataclass(frozen=True, eq=False)
class UnifilarReading:
    """The state of each history, the same for all latents, and how likely each makes it."""

    latents: UnifilarLatents
    log_likelihood: Float[Tensor, "B L"]
    states: Int[Tensor, "B"]

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        return self.latents.emission[:, self.states].transpose(0, 1).log()

    def select(self, rows: Int[Tensor, "K"]) -> UnifilarReading:
        return replace(self, log_likelihood=self.log_likelihood[rows], states=self.states[rows])


@dataclass(frozen=True, eq=False)
class UnifilarLatents(ReadingLatents):
    """L machines that share their states; all start in state 0."""

    emission: Float[Tensor, "L S V"]
    next_state: Int[Tensor, "S V"]

    @property
    def family(self) -> UnifilarFamily:
        return UnifilarFamily(self.emission.shape[2], self.emission.shape[1])

    def __len__(self) -> int:
        return len(self.emission)

    @property
    def width(self) -> int:
        return len(self) * (1 + self.emission.shape[2])

    def start(self, batch: int) -> UnifilarReading:
        silent = self.emission.new_zeros(batch, len(self))
        return UnifilarReading(self, silent, torch.zeros(batch, dtype=torch.long))

    def observe(self, reading: UnifilarReading, tokens: Int[Tensor, "B"]) -> UnifilarReading:
        news = self.emission[:, reading.states, tokens].T.log()
        states = self.next_state[reading.states, tokens]
        return UnifilarReading(self, reading.log_likelihood + news, states)

    def values(self, utility: Utility, horizon: int) -> Float[Tensor, "C L S"]:
        """The mean utility of what follows each state, by what the utility has read before."""

        def back(token: int, value: Tensor) -> Tensor:
            return self.emission[:, :, token] * value[..., self.next_state[:, token]]

        ones = torch.ones_like(self.emission[..., 0])
        return values_of_states(utility, self.family.vocab_size, horizon, back, ones)

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        values = self.values(utility, horizon)

        def mean(reading: UnifilarReading, contexts: Int[Tensor, "B"]) -> Float[Tensor, "B L"]:
            return values[contexts, :, reading.states]

        return mean

    def pick(self, rows: Int[Tensor, "K"]) -> UnifilarLatents:
        return UnifilarLatents(self.emission[rows], self.next_state)

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        device, n = generator.device, len(self)
        state = self.read(torch.tensor([head], dtype=torch.long)).states.expand(n).to(device)
        tokens = torch.zeros(n, length, dtype=torch.long, device=device)
        each, emission = torch.arange(n, device=device), self.emission.to(device)
        next_state = self.next_state.to(device)
        for place in range(length):
            tokens[:, place] = drawn_of(emission[each, state], generator)
            state = next_state[state, tokens[:, place]]
        return tokens

    def tensors(self) -> dict[str, Tensor]:
        return {"emission": self.emission, "next_state": self.next_state}

    def as_machines(self) -> StateLatents:
        """The same as operators, which are mostly zeros."""
        n, n_states, vocab = self.emission.shape
        operators = self.emission.new_zeros(n, n_states, vocab, n_states)
        rows, tokens = torch.meshgrid(torch.arange(n_states), torch.arange(vocab), indexing="ij")
        operators[:, rows, tokens, self.next_state] = self.emission
        initial = self.emission.new_zeros(n, n_states)
        initial[:, 0] = 1.0
        return StateLatents(initial, operators)


def from_kernels(kernels: list[Tensor]) -> UnifilarLatents:
    """Markov kernels of one vocabulary, their orders read off their rows, as one set of latents."""
    vocab = kernels[0].shape[1]
    orders = [round(math.log(len(kernel), vocab)) for kernel in kernels]
    deepest = max(orders)
    first = [(vocab**depth - 1) // (vocab - 1) for depth in range(deepest + 2)]
    require_room(len(kernels) * first[-1] * vocab, "kernels")
    next_state = torch.zeros(first[-1], vocab, dtype=torch.long)
    emission = torch.empty(len(kernels), first[-1], vocab, dtype=torch.float64)
    for depth in range(deepest + 1):
        contexts = torch.arange(vocab**depth)
        rows = first[depth] + contexts
        longer = contexts[:, None] * vocab + torch.arange(vocab)
        at_most = min(depth + 1, deepest)
        next_state[rows] = first[at_most] + longer % vocab**at_most
        for row, (kernel, order) in enumerate(zip(kernels, orders, strict=True)):
            known = kernel[contexts % vocab**order] if depth >= order else 1 / vocab
            emission[row, rows] = torch.as_tensor(known, dtype=torch.float64)
    return UnifilarLatents(emission, next_state)
