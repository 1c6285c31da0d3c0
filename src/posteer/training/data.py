"""Training batches as pure functions of (seed, step), and the held-out excess risk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.priors import Process, sample_sequences
from posteer.models.transformer.model import Transformer
from posteer.tokens.contexts import ContextSpace


def training_batch(
    process: Process, n: int, length: int, seed: int, step: int, device: torch.device
) -> Int[Tensor, "B T"]:
    """The batch of a step: kernels from the prior, sequences on the device, no loop over tokens."""
    kernel_stream = numpy_stream(seed, "training-kernels", step)
    generator = torch_stream(seed, "training-tokens", step, device=device)
    return sample_sequences(process, n, length, kernel_stream, generator)[0]


def exact_log_loss(process: Process, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """`-log p(y_t | y_<t)` under exact Bayes, for every position at once."""
    space = process.space
    losses = [_exact_log_loss(process, space, part) for part in tokens.split(16)]
    return torch.cat(losses)


def _exact_log_loss(
    process: Process, space: ContextSpace, tokens: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    n, length = tokens.shape
    first = tokens.new_zeros(n, min(space.order, length)).double()
    first += torch.log(torch.tensor(float(space.vocab_size), dtype=torch.float64))
    if length <= space.order:
        return first
    contexts = space.contexts_of(tokens)[:, :-1]
    edges = contexts * space.vocab_size + tokens[:, space.order :]
    seen = torch.nn.functional.one_hot(edges, space.n_contexts * space.vocab_size)
    before = (seen.cumsum(1) - seen).double().flatten(0, 1)
    shape = (space.n_contexts, space.vocab_size)
    law = process.predictive(before.unflatten(-1, shape), contexts.flatten())
    chosen = law.gather(-1, tokens[:, space.order :].flatten()[:, None])
    return torch.cat([first, -chosen.log().view(n, -1)], 1)


@dataclass(frozen=True)
class ExcessRisk:
    """Nats per token above exact Bayes, with standard errors over held-out sequences."""

    overall: float
    overall_error: float
    first_10: float
    first_50: float
    rest: float | None


class HeldOut:
    """Fixed sequences that training never sees, and their exact losses, computed once."""

    def __init__(
        self, process: Process, n: int, length: int, seed: int, device: torch.device
    ) -> None:
        generator = torch_stream(seed, "held-out-tokens")
        stream = numpy_stream(seed, "held-out-kernels")
        tokens, _ = sample_sequences(process, n, length, stream, generator)
        self.exact = exact_log_loss(process, tokens)
        self.tokens = tokens.to(device)

    @torch.no_grad()
    def losses(self, network: Transformer, part: int = 64) -> Float[Tensor, "B T"]:
        """The network's loss at every position, in float32."""
        losses = []
        for tokens in self.tokens.split(part):
            logits = network(tokens[:, :-1]).float()
            losses.append(
                torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")
            )
        return torch.cat(losses).double().cpu()

    def excess(self, network: Transformer, part: int = 64) -> ExcessRisk:
        gap = self.losses(network, part) - self.exact
        per_sequence = gap.mean(1)
        return ExcessRisk(
            overall=float(gap.mean()),
            overall_error=float(per_sequence.std() / len(gap) ** 0.5),
            first_10=float(gap[:, :10].mean()),
            first_50=float(gap[:, :50].mean()),
            rest=float(gap[:, 50:].mean()) if gap.shape[1] > 50 else None,
        )
