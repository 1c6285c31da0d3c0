"""J of prompts by what is expected of a model that was read a little, with its standard error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.banks.correction import Correction, Readings
from posteer.core.limits import NUMBERS_AT_ONCE
from posteer.core.shapes import Float, Int
from posteer.goals.objectives import Objective
from posteer.models.trees import continuation_tree, tree_size
from posteer.tokens.contexts import all_sequences


def beginnings(prompts: Int[Tensor, "K m"], vocab_size: int, horizon: int) -> Int[Tensor, "K G W"]:
    """Each prompt followed by every continuation shorter than the horizon, padded in front; level
    by level, as `ContinuationTree` has them."""
    width = prompts.shape[1] + horizon - 1
    levels = []
    for depth in range(horizon):
        tails = all_sequences(vocab_size, depth)
        head = prompts[:, None].expand(-1, len(tails), -1)
        whole = torch.cat([head, tails[None].expand(len(prompts), -1, -1)], -1)
        missing = width - whole.shape[-1]
        levels.append(torch.nn.functional.pad(whole, (missing, 0), value=-1))
    return torch.cat(levels, 1)


def readings_of(
    prompts: Int[Tensor, "K m"], log_laws: Float[Tensor, "K Y"], vocab_size: int, horizon: int
) -> Readings:
    """What the law of all continuations says of every step on the way to them."""
    steps = []
    for depth in range(horizon):
        shape = (len(prompts), vocab_size**depth, vocab_size, -1)
        steps.append(log_laws.view(shape).logsumexp(-1).log_softmax(-1))
    histories = beginnings(prompts, vocab_size, horizon)
    return Readings(histories.flatten(0, 1), torch.cat(steps, 1).flatten(0, 1))


@dataclass(frozen=True, eq=False)
class CorrectedValues:
    """An objective under corrected laws; `contexts` are what it sees of prompts."""

    correction: Correction
    objective: Objective
    horizon: int
    contexts: Callable[[Tensor], Tensor]

    @property
    def nodes(self) -> int:
        """Histories that J of one prompt takes."""
        return tree_size(self.correction.vocab_size, self.horizon) + 1

    def values(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """J of each prompt."""
        size = max(1, NUMBERS_AT_ONCE // (self.nodes * 64))
        return torch.cat([self._value(self._laws(some), some) for some in prompts.split(size)])

    def errors(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """Standard errors of those, to first order in the departures, which are joint over the
        histories of a prompt."""
        logits = self._laws(prompts).requires_grad_()
        with torch.enable_grad():
            value = self._value(logits.log_softmax(-1), prompts)
            slopes = torch.autograd.grad(value.sum(), logits)[0]
        histories = beginnings(prompts, self.correction.vocab_size, self.horizon)
        covariances = self.correction.covariances(histories)
        variance = torch.einsum("kgv,kgh,khv->k", slopes, covariances, slopes)
        return variance.clamp(min=0).sqrt()

    def with_more(self, more: Readings) -> CorrectedValues:
        """After further answers of the model."""
        return CorrectedValues(
            self.correction.with_more(more), self.objective, self.horizon, self.contexts
        )

    def _laws(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K G V"]:
        vocab = self.correction.vocab_size
        histories = beginnings(prompts, vocab, self.horizon)
        return self.correction.log_laws(histories.flatten(0, 1)).view(*histories.shape[:2], vocab)

    def _value(self, laws: Float[Tensor, "K G V"], prompts: Int[Tensor, "K m"]) -> Tensor:
        tree = continuation_tree(self.correction.vocab_size, self.horizon)
        return self.objective.of_laws(tree.join(laws), self.contexts(prompts))
