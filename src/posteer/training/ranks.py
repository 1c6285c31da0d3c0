"""One training on several GPUs: processes that torchrun starts, each with its rows of a batch.

    torchrun --nproc-per-node 8 -m posteer.cli train --preset urn --out runs/urn

The batch of a step is a function of seed and step, drawn whole by every rank, of which each trains
on its own rows: the data are those of one process to the bit, for any number of ranks. Gradients
are averaged, so weights are those of one process but for the order of sums. The first rank alone
writes, and decides when to stop; a checkpoint goes on with any number of ranks.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from posteer.core.device import differentiable
from posteer.core.errors import require
from posteer.training.data import Batches
from posteer.training.loop import Outcome, Trainer
from posteer.training.plan import TrainingPlan


def ranks() -> int:
    """How many processes train together: torchrun says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that writes and talks."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def joined(device: str) -> Iterator[str]:
    """This process's device among those of all ranks, for the time that they train together."""
    if ranks() == 1:
        yield device
        return
    on_gpu = device.startswith("cuda")
    if on_gpu:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def open_trainer(plan: TrainingPlan, out: Path, **how: Any) -> Trainer:
    """A trainer for as many ranks as there are."""
    return Trainer(plan, out, **how) if ranks() == 1 else RankedTrainer(plan, out, **how)


@dataclass(frozen=True)
class Share:
    """The rows of each batch that are one rank's."""

    whole: Batches
    rank: int
    of: int

    def take(self, step: int) -> Tensor:
        return self.whole.take(step).chunk(self.of)[self.rank]

    def prepare(self, step: int) -> None:
        self.whole.prepare(step)


class RankedTrainer(Trainer):
    """One rank's part of a training run."""

    @differentiable()
    def __init__(self, plan: TrainingPlan, out: Path, **how: Any) -> None:
        self.rank, self.of = dist.get_rank(), dist.get_world_size()
        parts = plan.accumulate * self.of
        require(
            plan.batch % parts == 0, f"batch {plan.batch} cannot be split into {parts} equal parts"
        )
        if self.rank > 0:
            dist.barrier()  # the first makes the folder
        super().__init__(plan, out, **{**how, "checkpoint_seconds": math.inf})
        if self.rank == 0:
            dist.barrier()
        self.batches: Any = Share(self.batches, self.rank, self.of)
        on = None if self.device.type == "cpu" else [self.device]
        self.parallel = DistributedDataParallel(self.network, device_ids=on)

    def _loss(self, tokens: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.parallel(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())

    def train_step(self, step: int) -> tuple[Tensor, Tensor]:
        loss, norm = super().train_step(step)
        dist.all_reduce(loss)
        return loss / self.of, norm

    @differentiable()
    def run(
        self, *, max_minutes: float = math.inf, should_stop: Callable[[], bool] | None = None
    ) -> Outcome:
        """As one process would; all ranks stop when the first does."""
        began = time.monotonic()

        def agreed() -> bool:
            late = time.monotonic() - began > 60 * max_minutes
            return self._agreed(late or (should_stop is not None and should_stop())) > 0

        if self.rank > 0:
            self._join()
            return self._run(math.inf, agreed)
        with self.folder.claimed():
            self._join()
            return self._run(math.inf, agreed)

    def _join(self) -> None:
        """Begin where the first rank does."""
        first = int(self._agreed(self.step))
        if first != self.step:
            self._resume()
        same = self.step == first
        require(same, f"{self.out} is at step {self.step} here, at {first} for the first rank")

    def _agreed(self, value: float) -> float:
        """The first rank's value."""
        told = torch.tensor(float(value), dtype=torch.float64, device=self.device)
        dist.broadcast(told, 0)
        return float(told)

    def save(self) -> None:
        """By the first rank; the others wait, so that none is ahead of what is kept."""
        if self.rank == 0:
            super().save()
        dist.barrier()

    def export(self) -> None:
        if self.rank == 0:
            super().export()
        dist.barrier()
