"""The idealised Bayes-filtered transformer: the exact posterior predictive of a process."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.families.markov.priors import Process, fingerprint
from posteer.models.protocol import predict_by_advancing
from posteer.tokens.contexts import ContextSpace


@dataclass(frozen=True, eq=False)
class ExactState:
    """Sufficient statistics of a batch of histories; `read` counts tokens up to the order."""

    process: Process
    counts: Float[Tensor, "B C V"]
    contexts: Int[Tensor, "B"]
    read: int

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        space = self.process.space
        if self.read < space.order:  # the random first context of the process
            uniform = self.counts.new_full((len(self.counts), space.vocab_size), space.vocab_size)
            return -uniform.log()
        return self.process.predictive(self.counts, self.contexts).log()

    def select(self, rows: Int[Tensor, "K"]) -> ExactState:
        return ExactState(self.process, self.counts[rows], self.contexts[rows], self.read)


class ExactModel:
    """A SequenceModel whose predictions are exact Bayes under `process`."""

    def __init__(self, process: Process, name: str = "exact") -> None:
        self.process = process
        self.name = name

    max_length = None

    @property
    def space(self) -> ContextSpace:
        return self.process.space

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.process)

    def batch_invariant(self, n_tokens: int) -> bool:
        return True

    def batch_limit(self, n_tokens: int) -> int:
        return max(1, 2**24 // (self.space.n_contexts * self.space.vocab_size))

    def start(self, batch: int, capacity: int = 16) -> ExactState:
        shape = (batch, self.space.n_contexts, self.space.vocab_size)
        counts = torch.zeros(shape, dtype=torch.float64)
        return ExactState(self.process, counts, torch.zeros(batch, dtype=torch.long), 0)

    def resume(self, counts: Float[Tensor, "B C V"], contexts: Int[Tensor, "B"]) -> ExactState:
        """The state of any histories with these statistics, without reading them."""
        return ExactState(self.process, counts, contexts, self.space.order)

    def advance(
        self, state: ExactState, tokens: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B V"], ExactState]:
        counts = state.counts
        if state.read >= self.space.order:
            counts = counts.clone()
            counts[torch.arange(len(tokens)), state.contexts, tokens] += 1
        contexts = self.space.next_context[state.contexts, tokens]
        read = min(state.read + 1, self.space.order)
        after = ExactState(self.process, counts, contexts, read)
        return after.log_probs, after

    def log_predictive(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T1 V"]:
        return predict_by_advancing(self, tokens)
