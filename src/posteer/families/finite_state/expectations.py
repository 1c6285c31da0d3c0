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
    """How likely sequences were, and of each machine the law of its first state given all it read
    and how often it is expected to have emitted `v` on the way from `s` to `t`."""

    log_likelihood: Float[Tensor, "*N"]
    first: Float[Tensor, "M S"]
    moves: Float[Tensor, "M S V S"]


def expected_moves(tables: Tables, sequences: Int[Tensor, "M T"]) -> Expected:
    """The E-step, a machine for each sequence."""
    parts = []
    for rows in _at_once(tables, sequences.shape[1], len(sequences)):
        reading = _Reading(tables.pick(rows), sequences[rows], torch.arange(len(rows)))
        parts.append(reading.expected(torch.ones_like(reading.log_likelihood)))
    return Expected(
        torch.cat([part.log_likelihood for part in parts]),
        torch.cat([part.first for part in parts]),
        torch.cat([part.moves for part in parts]),
    )


def expected_shares(
    tables: Tables, log_weights: Float[Tensor, "K J"], sequences: Int[Tensor, "R T"]
) -> tuple[Expected, Float[Tensor, "K J R"]]:
    """The E-step of K mixtures of J machines each, one after another in `tables`: what each machine
    did, sequences counted by the share that is its own, and those shares. The likelihoods are
    those of the whole mixtures, `[K R]`."""
    whole, shares = [], []
    first, moves = torch.zeros_like(tables.initial), torch.zeros_like(tables.operators)
    for rows in _at_once(tables, sequences.shape[1], len(sequences), len(tables)):
        reading = _everyone(tables, sequences[rows])
        joint = reading.log_likelihood.view(*log_weights.shape, -1) + log_weights[..., None]
        whole.append(joint.logsumexp(1))
        shares.append(joint.softmax(1))
        part = reading.expected(shares[-1].flatten())
        first, moves = first + part.first, moves + part.moves
    return Expected(torch.cat(whole, -1), first, moves), torch.cat(shares, -1)


def log_likelihoods(tables: Tables, sequences: Int[Tensor, "M T"]) -> Float[Tensor, "M"]:
    """`log p` of each sequence under the machine of its own; `-inf` where it is impossible."""
    parts = [
        _Reading(tables.pick(rows), sequences[rows], torch.arange(len(rows))).log_likelihood
        for rows in _at_once(tables, sequences.shape[1], len(sequences))
    ]
    return torch.cat(parts)


def all_log_likelihoods(tables: Tables, sequences: Int[Tensor, "R T"]) -> Float[Tensor, "R M"]:
    """`log p` of each sequence under each machine."""
    parts = [
        _everyone(tables, sequences[rows]).log_likelihood.view(len(tables), -1)
        for rows in _at_once(tables, sequences.shape[1], len(sequences), len(tables))
    ]
    return torch.cat(parts, 1).mT


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


def word_length(n_tokens: int, vocab_size: int, n_readers: int, n_machines: int) -> int:
    """Tokens of a word: reading then takes least work, the making of words and what a step takes
    whatever the number of readers included."""
    most = max(1, int(math.log(4096, vocab_size)))
    step = 1 + 500 / n_readers
    making = 2 * n_machines / n_readers
    return min(range(1, most + 1), key=lambda b: step * n_tokens / b + making * vocab_size**b)


def _at_once(
    tables: Tables, n_tokens: int, n_sequences: int, readers: int = 1
) -> tuple[Tensor, ...]:
    """Which sequences are read at once, where so many machines read each."""
    n_states, vocab = tables.operators.shape[1:3]
    shared = readers > 1
    machines = readers if shared else n_sequences
    length = word_length(n_tokens, vocab, n_sequences * readers, machines)
    numbers = readers * (n_tokens // length + 1) * n_states
    if not shared:
        numbers += 3 * vocab**length * n_states**2
    return torch.arange(n_sequences).split(max(1, NUMBERS_AT_ONCE // numbers))


def _everyone(tables: Tables, sequences: Int[Tensor, "R T"]) -> _Reading:
    """Each machine reads each sequence."""
    n = len(sequences)
    owners = torch.arange(len(tables)).repeat_interleave(n)
    return _Reading(tables, sequences.repeat(len(tables), 1), owners)


class _Reading:
    """Beliefs before each word of N sequences, and how likely each word was; a short first word
    takes the rest. `owners` says which machine reads which sequence."""

    def __init__(
        self, tables: Tables, sequences: Int[Tensor, "N T"], owners: Int[Tensor, "N"]
    ) -> None:
        n, n_tokens = sequences.shape
        self.tables, self.owners, vocab = tables, owners, tables.operators.shape[2]
        self.length = word_length(n_tokens, vocab, n, len(tables))
        self.words = _words(tables.operators, self.length)
        rest = n_tokens % self.length
        parts = [sequences[:, None, :rest]] if rest else []
        if n_tokens > rest:
            parts.append(sequences[:, rest:].unflatten(1, (-1, self.length)))
        self.steps = [(part.shape[2], at) for part in parts for at in _numbers(part, owners, vocab)]
        belief = tables.initial[owners]
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

    def flat(self, length: int) -> Float[Tensor, "W S S"]:
        """The words of a length of all machines, one after another."""
        return self.words[length - 1].flatten(0, 1)

    def expected(self, counted: Float[Tensor, "N"]) -> Expected:
        """What the machines did, each sequence counted so much."""
        gradients = [torch.zeros_like(table) for table in self.words]
        ahead = counted[:, None].expand(-1, self.tables.initial.shape[1])
        passed = zip(self.steps, self.beliefs, self.scales, strict=True)
        for (length, at), belief, scale in reversed(list(passed)):
            share = ahead / torch.where(scale > 0, scale, 1.0)
            moved = belief[:, :, None] * share[:, None]
            gradients[length - 1].flatten(0, 1).index_add_(0, at, moved)
            ahead = torch.bmm(self.flat(length).index_select(0, at), share[..., None])[..., 0]
        moves = self.tables.operators * _down_to_tokens(self.words, gradients).transpose(1, 2)
        first = torch.zeros_like(self.tables.initial).index_add_(0, self.owners, ahead)
        return Expected(self.log_likelihood, self.tables.initial * first, moves)


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


def _numbers(
    words: Int[Tensor, "N n b"], owners: Int[Tensor, "N"], vocab: int
) -> tuple[Int[Tensor, "N"], ...]:
    """Where each word of its reader is among the words of all machines, word after word."""
    length = words.shape[2]
    powers = vocab ** torch.arange(length - 1, -1, -1)
    return (owners[:, None] * vocab**length + (words.long() * powers).sum(2)).unbind(1)
