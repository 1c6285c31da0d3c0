"""What the end of a prompt says about all prompts that end so, for latents with states.

A node is a suffix w of prompts. Its first `memory` tokens are its context: they pin down what a
latent believes about its state, exactly where tokens tell the state, else up to what states they
leave open. For each latent j a node holds, for every belief vertex s that its context leaves open,
`chance[j, s]`, the probability of the rest of w, and `gain[j, s]`, that probability times the mean
utility of what follows. So whatever came before, latent j adds a mean over s of `gain` to the
numerator of J and one of `chance` to its denominator, times its own weight, which is not known but
whose odds against other latents are bounded over all that may have come before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import singledispatch

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.families.finite_state.machines import StateLatents
from posteer.families.finite_state.unifilar import UnifilarLatents
from posteer.goals.protocol import Utility
from posteer.tokens.contexts import all_sequences

MOST_CONTEXTS = 2187
"""Contexts up to which a memory is made longer where latents could remember for ever."""

MOST_KNOWN_CONTEXTS = 2**16
"""Contexts up to which tokens are looked through for whether they tell the state."""


MOST_STEPS = 2**26
"""Contexts x tokens x latents whose probabilities are held."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """Suffixes by their contexts; scales of single nodes do not matter."""

    contexts: Int[Tensor, "K"]
    chance: Float[Tensor, "K J S"]
    gain: Float[Tensor, "K J S"]

    def __len__(self) -> int:
        return len(self.contexts)

    def select(self, rows: Tensor) -> Nodes:
        return Nodes(self.contexts[rows], self.chance[rows], self.gain[rows])

    def scaled(self) -> Nodes:
        """Chances of at most one, so that long suffixes do not vanish."""
        scale = self.chance.amax((1, 2), keepdim=True).clamp(min=1e-300)
        return replace(self, chance=self.chance / scale, gain=self.gain / scale)


class Suffixes(ABC):
    """The suffixes of one utility and horizon."""

    memory: int
    vocab_size: int
    log_start: Float[Tensor, "C J"]
    """`log p_j` of each context, read first of all."""
    high: Float[Tensor, "C V J"]
    low: Float[Tensor, "C V J"]
    """The largest and the least that `log p_j` of a next token can be behind a context."""

    @abstractmethod
    def roots(self) -> Nodes:
        """The suffixes that are contexts, in order."""

    @abstractmethod
    def before(self, nodes: Nodes, token: int) -> Nodes:
        """Nodes with one more token in front."""

    @abstractmethod
    def most(self, nodes: Nodes, level: Float[Tensor, "K"], left: int) -> Float[Tensor, "K J"]:
        """The largest `gain - level * chance` that each latent can have where so many tokens came
        before the node; `-inf` where it cannot emit the context."""

    @abstractmethod
    def whole(self, nodes: Nodes) -> tuple[Float[Tensor, "K J"], Float[Tensor, "K J"]]:
        """Gain and chance of nodes that are whole prompts, by latent, each node to a scale."""

    def shifted(self, contexts: Int[Tensor, "K"], token: int) -> Int[Tensor, "K"]:
        """The context of a suffix with one more token in front."""
        return token * self.vocab_size ** (self.memory - 1) + contexts // self.vocab_size


class KnownStates(Suffixes):
    """Tokens tell the state: a context has one belief, and bounds of a step are the step."""

    def __init__(
        self, latents: UnifilarLatents, memory: int, state: int, utility: Utility, horizon: int
    ) -> None:
        self.memory, self.vocab_size = memory, latents.family.vocab_size
        n, vocab = self.vocab_size**memory, self.vocab_size
        words = all_sequences(vocab, memory)
        states = torch.full((n,), state)
        self.log_start = latents.emission.new_zeros(n, len(latents))
        for token in words.unbind(1):
            self.log_start = self.log_start + latents.emission[:, states, token].T.log()
            states = latents.next_state[states, token]
        self.states = states
        self.steps = latents.emission[:, states].permute(1, 2, 0)
        self.high = self.low = self.steps.log()
        values = latents.values(utility, horizon)
        ends = torch.arange(n) % vocab**utility.order
        self.means = values[ends, :, states]

    def roots(self) -> Nodes:
        n, n_latents = self.means.shape
        ones = self.means.new_ones(n, n_latents, 1)
        return Nodes(torch.arange(n), ones, self.means[..., None])

    def before(self, nodes: Nodes, token: int) -> Nodes:
        contexts = self.shifted(nodes.contexts, token)
        step = self.steps[contexts, nodes.contexts % self.vocab_size][..., None]
        return Nodes(contexts, step * nodes.chance, step * nodes.gain).scaled()

    def most(self, nodes: Nodes, level: Float[Tensor, "K"], left: int) -> Float[Tensor, "K J"]:
        return (nodes.gain - level[:, None, None] * nodes.chance)[..., 0]

    def whole(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        logs = self.log_start[nodes.contexts]
        mass = (logs - logs.amax(1, keepdim=True)).nan_to_num(nan=-torch.inf).exp()
        return mass * nodes.gain[..., 0], mass * nodes.chance[..., 0]


class HiddenStates(Suffixes):
    """A context leaves as many beliefs open as there are states: those of starting in each.

    What a latent believes before a suffix is narrowed further by `odds`: bounds of how much more
    likely one of its states can be than another after so many tokens.
    """

    def __init__(
        self, latents: StateLatents, memory: int, length: int, utility: Utility, horizon: int
    ) -> None:
        self.memory, self.vocab_size = memory, latents.family.vocab_size
        self.latents = latents
        contexts = self._grown(torch.ones_like(latents.initial)[None], memory)
        values = latents.values(utility, horizon)
        self.contexts = contexts
        self.gains = self._grown(values[:, None], memory, utility.order)
        longer = self._grown(torch.ones_like(latents.initial)[None], memory + 1)
        by_token = longer.unflatten(0, (-1, self.vocab_size))
        step = by_token / contexts[:, None]
        open_ = (contexts > 0)[:, None]
        self.high = step.masked_fill(~open_, 0.0).amax(-1).log()
        least = step.masked_fill(~open_, torch.inf).amin(-1)
        self.low = least.masked_fill(least.isinf(), 0.0).log()  # a context it cannot emit
        self.log_start = torch.einsum("ls,cls->cl", latents.initial, contexts).log()
        self.odds = odds_of_states(latents, length - memory)

    def _back(self, token: int, value: Float[Tensor, "K L S"]) -> Float[Tensor, "K L S"]:
        return torch.einsum("lst,klt->kls", self.latents.operators[:, :, token], value)

    def _grown(self, value: Tensor, length: int, order: int = 0) -> Float[Tensor, "C L S"]:
        """A quantity of every word of so many tokens; of its last `order` where it depends on
        them."""
        vocab = self.vocab_size
        if order:  # one row for each last context: read that backwards first
            ends = all_sequences(vocab, order)
            value = value[:, 0]
            for place in reversed(range(order)):
                grown = torch.empty_like(value)
                for token in range(vocab):
                    rows = ends[:, place] == token
                    grown[rows] = self._back(token, value[rows])
                value = grown
        else:
            value = value.flatten(0, value.ndim - 3)
        for _ in range(length - order):
            value = torch.cat([self._back(token, value) for token in range(vocab)])
        return value

    def roots(self) -> Nodes:
        return Nodes(torch.arange(len(self.contexts)), self.contexts, self.gains)

    def before(self, nodes: Nodes, token: int) -> Nodes:
        contexts = self.shifted(nodes.contexts, token)
        chance, gain = self._back(token, nodes.chance), self._back(token, nodes.gain)
        return Nodes(contexts, chance, gain).scaled()

    def most(self, nodes: Nodes, level: Float[Tensor, "K"], left: int) -> Float[Tensor, "K J"]:
        of_context = self.contexts[nodes.contexts]
        value = nodes.gain - level[:, None, None] * nodes.chance
        if self.odds is None:
            ratio = value / of_context
            return ratio.masked_fill(of_context <= 0, -torch.inf).amax(-1)
        return largest_ratio(value, of_context, self.odds[left])

    def whole(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        initial = self.latents.initial
        return (initial * nodes.gain).sum(-1), (initial * nodes.chance).sum(-1)


MOST_STATE_PAIRS = 256
"""Pairs of states of a latent up to which their odds are bounded."""

UNBOUNDED = 1e150
ROUNDING_UP = 1 + 1e-12


def odds_of_states(latents: StateLatents, length: int) -> Float[Tensor, "N L S S"] | None:
    """`odds[n, l, s, t]` bounds how many times more likely state s is than t after any n tokens;
    None where there are too many pairs."""
    n_states = latents.family.n_states
    if n_states**2 > MOST_STATE_PAIRS:
        return None
    start = latents.initial
    odds = [(start[:, :, None] / start[:, None, :]).nan_to_num(nan=0.0, posinf=UNBOUNDED)]
    for _ in range(length):
        best = torch.zeros_like(odds[0])
        for token in range(latents.family.vocab_size):
            into = latents.operators[:, :, token].transpose(1, 2)  # [l, t, s]: from s to t
            top = into[:, :, None].expand(-1, -1, n_states, -1).flatten(1, 2).transpose(0, 1)
            under = into[:, None].expand(-1, n_states, -1, -1).flatten(1, 2).transpose(0, 1)
            found = largest_ratio(top, under, odds[-1]).T.unflatten(1, (n_states, n_states))
            best = torch.maximum(best, found)
        some = (best * ROUNDING_UP).clamp(1 / UNBOUNDED, UNBOUNDED)
        odds.append(some.masked_fill(best <= 0, 0.0))
    return torch.stack(odds)


def largest_ratio(
    top: Float[Tensor, "K L S"], under: Float[Tensor, "K L S"], odds: Float[Tensor, "L S S"]
) -> Float[Tensor, "K L"]:
    """The largest `sum_s b_s top_s / sum_s b_s under_s` over all b whose pairs keep to the odds.

    With one state's b as the unit the others lie between bounds, and the best has those of the
    largest ratios at their upper one: tried for each unit, the least is a bound.
    """
    none = (top <= 0) & (under <= 0)
    ratio = torch.where(under > 0, top / under.clamp(min=1e-300), torch.inf)
    ratio = torch.where((under <= 0) & none, -torch.inf, ratio)
    order = ratio.argsort(-1, descending=True)
    tops, unders = top.gather(-1, order), under.gather(-1, order)
    high = odds.transpose(1, 2)  # [l, unit, s]
    low = torch.where(odds > 0, 1 / odds.clamp(min=1 / UNBOUNDED), UNBOUNDED)
    low = torch.minimum(low, high)
    pick = order[:, :, None].expand(-1, -1, odds.shape[1], -1)
    highs = high.expand(len(top), -1, -1, -1).gather(-1, pick)
    lows = low.expand(len(top), -1, -1, -1).gather(-1, pick)

    def summed(values: Tensor) -> Tensor:
        upper, lower = highs * values[:, :, None], lows * values[:, :, None]
        rest = lower[..., 1:].flip(-1).cumsum(-1).flip(-1)
        return upper.cumsum(-1) + torch.nn.functional.pad(rest, (0, 1))

    numerator, denominator = summed(tops), summed(unders)
    found = torch.where(denominator > 0, numerator / denominator.clamp(min=1e-300), -torch.inf)
    found = torch.where((denominator <= 0) & (numerator > 0), torch.inf, found)
    # a state that is never there is no unit, nor one that is always far less likely than another
    faint = (odds < UNBOUNDED**-0.5).any(-1)
    bound = found.amax(-1).masked_fill(faint, torch.inf).amin(-1)
    return torch.minimum(bound, ratio.amax(-1))


def synchronising(latents: UnifilarLatents) -> int | None:
    """How many tokens tell the state whatever it was; None where none few enough do."""
    reached = torch.arange(latents.family.n_states)[:, None]  # state after each word, from each
    vocab, length = latents.family.vocab_size, 0
    while True:
        if bool((reached == reached[:1]).all()):
            return length
        length += 1
        if vocab**length > MOST_KNOWN_CONTEXTS:
            return None
        reached = latents.next_state[reached].flatten(1)


@singledispatch
def suffixes_of(
    latents: object, read: tuple[int, ...], length: int, utility: Utility, horizon: int
) -> Suffixes | None:
    """The suffixes of prompts behind tokens that were read; None where latents offer no bounds."""
    return None


@suffixes_of.register
def _of_unifilar(
    latents: UnifilarLatents, read: tuple[int, ...], length: int, utility: Utility, horizon: int
) -> Suffixes | None:
    """None where tokens do not tell the state."""
    memory = synchronising(latents)
    if memory is None:
        return None
    memory = max(memory, utility.order, 1)
    vocab = latents.family.vocab_size
    if vocab ** (memory + 1) * len(latents) > MOST_STEPS:
        return None
    state = int(latents.read(torch.tensor([read], dtype=torch.long)).states[0])
    return KnownStates(latents, memory, state, utility, horizon) if memory < length else None


@suffixes_of.register
def _of_machines(
    latents: StateLatents, read: tuple[int, ...], length: int, utility: Utility, horizon: int
) -> Suffixes | None:
    """With a memory as long as can be held."""
    vocab, memory = latents.family.vocab_size, max(utility.order, 1)
    size = latents.initial.numel()
    while vocab ** (memory + 1) <= MOST_CONTEXTS and vocab ** (memory + 2) * size <= 2**24:
        memory += 1
    memory = min(memory, length - 1)
    if memory < max(utility.order, 1) or vocab ** (memory + 1) * size > MOST_STEPS:
        return None
    return HiddenStates(latents.after(read), memory, length, utility, horizon)
