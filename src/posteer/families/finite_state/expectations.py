"""What hidden Markov models are expected to have done, given what they emitted (Baum and Welch).

Each of M machines reads a sequence of its own. Expected moves are the operators times the gradient
of the log-likelihood in them; tokens are read a word at a time, each word being one product of
operators that is worked out once, so that a long sequence takes a fraction of the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Float, Int
from posteer.core.limits import NUMBERS_AT_ONCE


@dataclass(frozen=True, eq=False)
class Tables:
    """Start laws and operators of M machines of the same number of states."""

    initial: Float[Tensor, "M S"]
    operators: Float[Tensor, "M S V S"]

    def __len__(self) -> int:
        return len(self.initial)

    def pick(self, rows: Tensor) -> Tables:
        """Some of them, repeats allowed."""
        return Tables(self.initial[rows], self.operators[rows])

    @staticmethod
    def join(parts: list[Tables]) -> Tables:
        """All machines of all parts."""
        return Tables(
            torch.cat([part.initial for part in parts]),
            torch.cat([part.operators for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Expected:
    """The likelihood of each machine's sequence, the law of its first state given all of it, and
    how often it is expected to have emitted `v` on the way from `s` to `t`."""

    log_likelihood: Float[Tensor, "M"]
    first: Float[Tensor, "M S"]
    moves: Float[Tensor, "M S V S"]


def expected_moves(tables: Tables, sequences: Int[Tensor, "M T"]) -> Expected:
    """The E-step, a machine for each sequence."""
    parts = [
        _expected(tables.pick(rows), sequences[rows]) for rows in _at_once(tables, sequences.shape)
    ]
    return Expected(
        torch.cat([part.log_likelihood for part in parts]),
        torch.cat([part.first for part in parts]),
        torch.cat([part.moves for part in parts]),
    )


def log_likelihoods(tables: Tables, sequences: Int[Tensor, "M T"]) -> Float[Tensor, "M"]:
    """`log p` of each sequence under the machine of its own; `-inf` where it is impossible."""
    parts = [
        _Forward(tables.pick(rows), sequences[rows]).log_likelihood
        for rows in _at_once(tables, sequences.shape)
    ]
    return torch.cat(parts)


def improved(
    tables: Tables,
    expected: Expected,
    centre: Float[Tensor, "M S V S"] | None = None,
    pull: float = 0.0,
) -> Tables:
    """The M-step: rows in proportion to expected moves, and to `pull` moves more as a row of the
    centre makes them. Rows that are never left stay as they are."""
    moves = expected.moves if centre is None else expected.moves + pull * centre
    total = moves.sum((2, 3), keepdim=True)
    rows = torch.where(total > 0, moves / total.clamp(min=1e-300), tables.operators)
    started = expected.first.sum(-1, keepdim=True)
    known = (started > 0) & started.isfinite()
    return Tables(torch.where(known, expected.first / started, tables.initial), rows)


def word_length(n_tokens: int, vocab_size: int, n_machines: int) -> int:
    """Tokens of a word: a sequence then takes least work, the making of words and what a step takes
    whatever the number of machines included."""
    most = max(1, int(math.log(4096, vocab_size)))
    step = 1 + 500 / n_machines
    return min(range(1, most + 1), key=lambda b: step * n_tokens / b + 2 * vocab_size**b)


def _at_once(tables: Tables, shape: torch.Size) -> tuple[Tensor, ...]:
    _, n_states, vocab, _ = tables.operators.shape
    length = word_length(shape[1], vocab, shape[0])
    numbers = (shape[1] // length + 1) * n_states + 3 * vocab**length * n_states**2
    return torch.arange(len(tables)).split(max(1, NUMBERS_AT_ONCE // numbers))


class _Forward:
    """Beliefs before each word, and how likely each word was; a short first word takes the rest."""

    def __init__(self, tables: Tables, sequences: Int[Tensor, "M T"]) -> None:
        n, n_tokens = sequences.shape
        self.tables, vocab = tables, tables.operators.shape[2]
        self.length = word_length(n_tokens, vocab, n)
        self.words = _words(tables.operators, self.length)
        rest = n_tokens % self.length
        parts = [sequences[:, :rest]] if rest else []
        parts += sequences[:, rest:].split(self.length, 1) if n_tokens > rest else []
        self.steps = [(part.shape[1], _numbers(part, vocab)) for part in parts]
        belief = tables.initial
        self.beliefs, self.scales = [], []
        for length, at in self.steps:
            self.beliefs.append(belief)
            moved = torch.bmm(belief[:, None], self.flat(length).index_select(0, at))[:, 0]
            chance = moved.sum(-1, keepdim=True)
            belief = moved / torch.where(chance > 0, chance, 1.0)
            self.scales.append(chance)
        self.log_likelihood = (
            torch.cat(self.scales, 1).log().sum(1) if self.steps else tables.initial.new_zeros(n)
        )

    def flat(self, length: int) -> Float[Tensor, "N S S"]:
        """The words of a length of all machines, one after another."""
        return self.words[length - 1].flatten(0, 1)


def _expected(tables: Tables, sequences: Int[Tensor, "M T"]) -> Expected:
    forward = _Forward(tables, sequences)
    gradients = [torch.zeros_like(table) for table in forward.words]
    ahead = torch.ones_like(tables.initial)
    passed = zip(forward.steps, forward.beliefs, forward.scales, strict=True)
    for (length, at), belief, scale in reversed(list(passed)):
        share = ahead / torch.where(scale > 0, scale, 1.0)
        moved = belief[:, :, None] * share[:, None]
        gradients[length - 1].flatten(0, 1).index_add_(0, at, moved)
        ahead = torch.bmm(forward.flat(length).index_select(0, at), share[..., None])[..., 0]
    single = _down_to_tokens(forward.words, gradients)
    moves = tables.operators * single.transpose(1, 2)
    return Expected(forward.log_likelihood, tables.initial * ahead, moves)


def _words(operators: Float[Tensor, "M S V S"], length: int) -> list[Float[Tensor, "M W S S"]]:
    """Products of operators for every word of 1, 2, .. tokens, the first token counting most."""
    single = operators.transpose(1, 2).contiguous()
    words = [single]
    for _ in range(length - 1):
        words.append((single[:, :, None] @ words[-1][:, None]).flatten(1, 2))
    return words


def _down_to_tokens(words: list[Tensor], gradients: list[Tensor]) -> Float[Tensor, "M V S S"]:
    """From the gradient in words to that in their first token and in the word that is left."""
    single = words[0]
    firsts = torch.zeros_like(single)
    left = gradients[-1]
    for level in range(len(words) - 1, 0, -1):
        by_first = left.unflatten(1, (single.shape[1], -1))
        firsts += (by_first @ words[level - 1][:, None].mT).sum(2)
        left = gradients[level - 1] + (single[:, :, None].mT @ by_first).sum(1)
    return firsts + left


def _numbers(tokens: Int[Tensor, "M n"], vocab: int) -> Int[Tensor, "M"]:
    """Where the word of each machine is among the words of all of them."""
    powers = vocab ** torch.arange(tokens.shape[1] - 1, -1, -1)
    first = torch.arange(len(tokens)) * vocab ** tokens.shape[1]
    return first + (tokens.long() * powers).sum(1)
