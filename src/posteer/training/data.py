"""Training batches as pure functions of (seed, step), and the held-out excess risk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.shapes import Float, Int
from posteer.families.protocol import Prior
from posteer.models.transformer.network import Transformer


def training_batch(
    prior: Prior, n: int, length: int, seed: int, step: int, device: torch.device
) -> Int[Tensor, "B T"]:
    """The batch of a step: kernels from the prior, sequences on the device, no loop over tokens."""
    kernel_stream = numpy_stream(seed, "training-kernels", step)
    generator = torch_stream(seed, "training-tokens", step, device=device)
    return prior.sample(n, kernel_stream).roll_out(length, generator)


class Batches:
    """The batch of each step. On a GPU the next one is made ahead, on a stream of its own: a copy
    from the host waits for all that its stream has to do."""

    def __init__(self, prior: Prior, n: int, length: int, seed: int, device: torch.device) -> None:
        self._make = partial(training_batch, prior, n, length, seed, device=device)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._ahead: tuple[int, Int[Tensor, "B T"]] | None = None

    def take(self, step: int) -> Int[Tensor, "B T"]:
        """As `training_batch` has it, made ahead or now."""
        ahead, self._ahead = self._ahead, None
        if self._stream is None or ahead is None or ahead[0] != step:
            return self._make(step)
        here = torch.cuda.current_stream(self._stream.device)
        here.wait_stream(self._stream)
        ahead[1].record_stream(here)
        return ahead[1]

    def prepare(self, step: int) -> None:
        """Make a batch while the GPU is busy."""
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                self._ahead = step, self._make(step)


def exact_log_loss(prior: Prior, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """`-log p(y_t | y_<t)` under exact Bayes, at every position."""
    belief, losses = prior.start(len(tokens)), []
    for token in tokens.unbind(1):
        losses.append(-belief.log_probs.gather(1, token[:, None])[:, 0])
        belief = prior.observe(belief, token)
    return torch.stack(losses, 1)


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

    def __init__(self, prior: Prior, n: int, length: int, seed: int, device: torch.device) -> None:
        generator = torch_stream(seed, "held-out-tokens")
        stream = numpy_stream(seed, "held-out-kernels")
        tokens = prior.sample(n, stream).roll_out(length, generator)
        self.exact = exact_log_loss(prior, tokens)
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
