"""A bank of latent kernels drawn once and used for every utility."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posteer.errors import require
from posteer.kernels import ContextSpace, count_transitions, lift, log_likelihood
from posteer.models.base import Metered
from posteer.processes import Process
from posteer.randomness import numpy_stream, torch_stream
from posteer.shapes import Float


@dataclass(frozen=True, eq=False)
class LatentBank:
    """Samples of a latent prior, where they came from and what they cost.

    `source` is `analytic` (drawn from the process) or `rollouts` (predictive Monte Carlo).
    `tokens` is what drawing it asked of the model. `unvisited` names the treatment of contexts
    that a rollout never reached. `first_likelihood` is what each latent gives to the tokens of a
    first context, once it has been lifted to an order above its own.
    """

    space: ContextSpace
    kernels: Float[Tensor, "L C V"]
    source: str
    seed: int
    tokens: int = 0
    unvisited: str = "none"
    first_likelihood: Float[Tensor, "L C"] | None = None

    def __len__(self) -> int:
        return len(self.kernels)

    def at_order(self, order: int) -> LatentBank:
        """The same latents as kernels of a higher order."""
        if order == self.space.order:
            return self
        require(order > self.space.order, f"a bank of order {self.space.order} is not of {order}")
        space = ContextSpace(self.space.vocab_size, order)
        firsts = count_transitions(self.space, space.decode(torch.arange(space.n_contexts)))
        return replace(
            self,
            space=space,
            kernels=lift(self.space, self.kernels, order),
            first_likelihood=log_likelihood(firsts, self.kernels).exp().T,
        )


def draw_analytic(process: Process, n_samples: int, seed: int) -> LatentBank:
    """Kernels drawn from the process itself: the paper's (analytic) variants."""
    require(n_samples >= 2, f"{n_samples} latent samples: expected at least 2")
    kernels = process.sample_kernels(n_samples, numpy_stream(seed, "analytic-bank"))
    return LatentBank(process.space, kernels, "analytic", seed)


def draw_by_rollouts(
    model: Metered,
    n_samples: int,
    rollout_length: int,
    seed: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> LatentBank:
    """Predictive Monte Carlo: roll the model out unconditioned and count (paper, app. PMC).

    A context that a rollout never reached has no frequencies; its row is set to uniform.
    """
    space = model.space
    require(n_samples >= 2, f"{n_samples} latent samples: expected at least 2")
    require(
        rollout_length > space.order,
        f"rollouts of {rollout_length} tokens: expected more than the order {space.order}",
    )
    before = model.queries.forward_tokens
    counts = []
    part = model.batch_limit(rollout_length)
    for start in range(0, n_samples, part):
        generator = torch_stream(seed, "rollouts", start)
        n = min(part, n_samples - start)

        def report(done: int, start: int = start, n: int = n) -> None:
            if progress is not None:
                all_done = start * rollout_length + n * done
                progress("rolling out", all_done, n_samples * rollout_length)

        counts.append(_count_rollouts(model, n, rollout_length, generator, report))
    counted = torch.cat(counts)
    totals = counted.sum(-1, keepdim=True)
    kernels = torch.where(totals > 0, counted / totals.clamp(min=1), 1 / space.vocab_size)
    spent = model.queries.forward_tokens - before
    return LatentBank(space, kernels, "rollouts", seed, spent, unvisited="uniform")


def _count_rollouts(
    model: Metered,
    n: int,
    length: int,
    generator: torch.Generator,
    report: Callable[[int], None],
) -> Float[Tensor, "L C V"]:
    """Transition counts of `n` unconditioned rollouts."""
    state = model.start(n)
    log_probs, tokens = state.log_probs, []
    for done in range(1, length + 1):
        uniform = torch.rand(n, 1, dtype=torch.float64, generator=generator)
        law = log_probs.double().exp().cpu()
        tokens.append((uniform >= law.cumsum(-1)[:, :-1]).sum(-1))
        if done < length:
            log_probs, state = model.advance(state, tokens[-1])
        report(done)
    return count_transitions(model.space, torch.stack(tokens, -1))
