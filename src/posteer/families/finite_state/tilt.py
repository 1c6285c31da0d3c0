"""What a prompt kernel makes of machines with states: the tilt, its score, the surrogate.

A kernel (A, rho) over contexts draws a prompt y: its first context by rho, then a token at a time
by A. With `F[c, s]` the joint law of its last context c, of latent l's state s and of l emitting y,

    W_l = E_y p_l(y) = sum_cs F[c, s],    N_l = E_y p_l(y) mu_l(y) = sum_cs F[c, s] mu_l(c, s)

and the surrogate `sum_l w_l N_l / sum_l w_l W_l` is a mean of J over prompts. F is carried forward
along the prompt, slopes backward, both in units of F's sum so that no length underflows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.families.finite_state.machines import StateLatents
from posteer.tokens.contexts import ContextSpace


@dataclass(frozen=True, eq=False)
class TiltedStates:
    """L machines of each of B runs under prompt kernels over contexts of a space.

    `first[b, c, l, s]` is the joint probability of a first context and the state after it,
    `moves[b, l, s, c, t]` that of the token that a context ends with, and a move from s to t.
    """

    space: ContextSpace
    first: Float[Tensor, "B C L S"]
    moves: Float[Tensor, "B L S C S"]
    n_transitions: int

    @classmethod
    def of(cls, space: ContextSpace, machines: list[StateLatents], length: int) -> TiltedStates:
        """For prompts of a length, by as many machines for each run."""
        require(
            1 <= space.order <= length,
            f"prompt kernels over {space.order} tokens: expected 1 to {length}",
        )
        contexts = torch.arange(space.n_contexts)
        tokens = space.decode(contexts)
        firsts = []
        for one in machines:
            reading = one.read(tokens)
            firsts.append(reading.log_likelihood.exp()[..., None] * reading.belief)
        last = contexts % space.vocab_size
        moves = torch.stack([one.operators[:, :, last] for one in machines])
        return cls(space, torch.stack(firsts), moves, length - space.order)

    def __len__(self) -> int:
        return len(self.first)

    def select(self, runs: Int[Tensor, "K"]) -> TiltedStates:
        """Some of the runs."""
        return replace(self, first=self.first[runs], moves=self.moves[runs])

    def under(
        self, transitions: Float[Tensor, "B C V"], initial: Float[Tensor, "B C"]
    ) -> StateTilt:
        """What kernels make of the machines."""
        edges = self.space.next_context.expand(len(transitions), -1, -1)
        matrix = transitions.new_zeros(*transitions.shape[:-1], self.space.n_contexts)
        matrix = matrix.scatter(-1, edges, transitions)
        scale, law = _scaled(initial[..., None, None] * self.first)
        laws, scales = [law], [scale]
        for _ in range(self.n_transitions):
            come = torch.einsum("bcd,bcls->bdls", matrix, laws[-1])
            scale, law = _scaled(torch.einsum("bdls,blsdt->bdlt", come, self.moves))
            laws.append(law)
            scales.append(scale)
        return StateTilt(self, matrix, laws, scales)


def _scaled(law: Float[Tensor, "B C L S"]) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B C L S"]]:
    """A law and its sum; what cannot be stays 0, and its sum too."""
    scale = law.sum((1, 3))
    unit = torch.where(scale > 0, scale, 1.0)
    return scale, law / unit[:, None, :, None]


@dataclass(frozen=True, eq=False)
class StateTilt:
    """Machines under prompt kernels: laws of (context, state) place by place, and their scales."""

    of: TiltedStates
    matrix: Float[Tensor, "B C C"]
    laws: list[Float[Tensor, "B C L S"]]
    scales: list[Float[Tensor, "B L"]]

    @cached_property
    def log_tilt(self) -> Float[Tensor, "B L"]:
        """log W of each machine."""
        return torch.stack(self.scales).log().sum(0)

    @property
    def last(self) -> Float[Tensor, "B C L S"]:
        """The tilted law of the last context and the state there, of each machine."""
        return self.laws[-1]

    def means(self, values: Float[Tensor, "B C L S"]) -> Float[Tensor, "B L"]:
        """`N / W`: the mean of values of (context, state) under the tilt."""
        return (self.last * values).sum((1, 3))

    def slopes(
        self, values: Float[Tensor, "B C L S"], weights: Float[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B C V"], Float[Tensor, "B C"]]:
        """`sum_l weights_l dN_l / W_l` in A and in rho, where N is made of the values."""
        ahead = weights[:, None, :, None] * values
        total = torch.zeros_like(self.matrix)
        for law, scale in zip(self.laws[-2::-1], self.scales[:0:-1], strict=True):
            unit = torch.where(scale > 0, scale, 1.0)[:, None, :, None]
            gone = torch.einsum("blsdt,bdlt->bdls", self.of.moves, ahead) / unit
            total += torch.einsum("bcls,bdls->bcd", law, gone)
            ahead = torch.einsum("bcd,bdls->bcls", self.matrix, gone)
        unit = torch.where(self.scales[0] > 0, self.scales[0], 1.0)[:, None, :, None]
        of_start = (self.of.first * ahead / unit).sum((2, 3))
        edges = self.of.space.next_context.expand(len(total), -1, -1)
        return total.gather(-1, edges), of_start

    def scores(self) -> Float[Tensor, "B L C V"]:
        """`d log W / dA` of each machine, one at a time: for looking at, not for ascents."""
        ones, found = torch.ones_like(self.last), []
        for latent in range(ones.shape[2]):
            only = torch.zeros_like(self.log_tilt)
            only[:, latent] = 1.0
            found.append(self.slopes(ones, only)[0])
        return torch.stack(found, 1)
