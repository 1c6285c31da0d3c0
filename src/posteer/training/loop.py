"""The training loop: stops anywhere, resumes exactly, never loses its last good checkpoint.

A step's batch depends on (seed, step) alone and the checkpoint holds weights, moments, step and the
loss summed since the last report, so a resumed run does the same arithmetic as an uninterrupted
one, and keeps the same records.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posteer.core.device import differentiable
from posteer.core.errors import InputError
from posteer.core.randomness import torch_stream
from posteer.families.registry import open_process
from posteer.models.transformer.checkpoint import save_model
from posteer.models.transformer.network import Transformer
from posteer.training.data import Batches, ExcessRisk, HeldOut
from posteer.training.folder import TrainingFolder
from posteer.training.plan import TrainingPlan

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
CHECKPOINT_STEPS, CHECKPOINT_SECONDS = 1000, 30.0
"""A checkpoint comes after so many steps, or so long, whichever is first."""
EXPLODED = 3.0
"""A loss this many times that of guessing uniformly counts as exploded."""


@dataclass(frozen=True)
class Progress:
    """What a person watching wants to know."""

    step: int
    steps: int
    loss: float
    excess: ExcessRisk | None
    tokens_per_second: float


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `finished`, `stopped` (resume it), or `diverged` at `step`."""

    status: str
    step: int


class Trainer:
    """One training run in a folder."""

    @differentiable()
    def __init__(
        self,
        plan: TrainingPlan,
        out: Path,
        *,
        device: str = "cpu",
        compiled: bool = False,
        held_out: int = 64,
        evaluate_every: int = 500,
        checkpoint_every: int = CHECKPOINT_STEPS,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        log_every: int = 50,
        report: Callable[[Progress], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.plan, self.out = plan, out
        self.device = torch.device(device)
        self.prior = open_process(plan.process)
        self.evaluate_every, self.log_every = evaluate_every, log_every
        self.checkpoint_every, self.checkpoint_seconds = checkpoint_every, checkpoint_seconds
        self.report = report or (lambda _: None)
        self.warn = warn or (lambda _: None)
        self.folder = TrainingFolder(out, plan)
        self.folder.accept()
        self.network = self._fresh_network().to(self.device)
        self.optimiser = self._optimiser()
        self.records: list[dict[str, Any]] = []
        self.step = 0
        self.running = torch.zeros((), dtype=torch.float32, device=self.device)
        self._resume()
        self.batches = Batches(self.prior, plan.batch, plan.length, plan.seed, self.device)
        self.held_out = HeldOut(self.prior, held_out, plan.length, plan.seed, self.device)
        forward: Callable[[Tensor], Tensor] = self._loss
        self.loss: Callable[[Tensor], Tensor] = torch.compile(forward) if compiled else forward
        self.excess: ExcessRisk | None = None

    # --- set-up ---------------------------------------------------------------------------------

    def _fresh_network(self) -> Transformer:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_stream(self.plan.seed, "weights").initial_seed())
            return Transformer(self.plan.architecture)

    def _optimiser(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self.network.parameters(),
            lr=self.plan.peak_rate,
            betas=(0.9, 0.95),
            weight_decay=self.plan.weight_decay,
            fused=self.device.type == "cuda",
        )

    # --- the run --------------------------------------------------------------------------------

    @differentiable()
    def run(
        self, *, max_minutes: float = math.inf, should_stop: Callable[[], bool] | None = None
    ) -> Outcome:
        """Train until the plan is done, time is up, or someone asks to stop; one run a folder."""
        with self.folder.claimed():
            saved = self.folder.saved()
            if saved and saved[-1].name != f"step-{self.step:07d}":
                self._resume()  # another process has come further since
            return self._run(max_minutes, should_stop or (lambda: False))

    def _run(self, max_minutes: float, should_stop: Callable[[], bool]) -> Outcome:
        started = ticked = saved = time.monotonic()
        begun = self.step
        bad_step = torch.full((), -1.0, dtype=torch.float32, device=self.device)
        while self.step < self.plan.steps:
            self.step += 1
            loss, norm = self.train_step(self.step)
            self.running += loss
            bad = ~torch.isfinite(norm) | ~(loss < EXPLODED * math.log(self._vocab))
            bad_step = torch.where(bad & (bad_step < 0), float(self.step), bad_step)
            done = self.step == self.plan.steps
            evaluate = self.step % self.evaluate_every == 0 or done
            tick = self.step % self.log_every == 0 or evaluate
            overdue = time.monotonic() - saved >= self.checkpoint_seconds
            save = self.step % self.checkpoint_every == 0 or done or overdue
            if not (tick or save):
                continue
            if float(bad_step) >= 0:
                return Outcome("diverged", int(bad_step))
            late = time.monotonic() - started > 60 * max_minutes
            stop = tick and not done and (late or should_stop())
            if (save or stop) and not self._finite():
                return Outcome("diverged", self.step)
            if tick:
                now = time.monotonic()
                self._tick(evaluate, (self.step - begun) / max(now - ticked, 1e-9))
                ticked, begun = now, self.step
            if save or stop:
                self.save()
                saved = time.monotonic()
            if stop:
                self.export()
                return Outcome("stopped", self.step)
        self.export()
        return Outcome("finished", self.step)

    def _tick(self, evaluate: bool, steps_per_second: float) -> None:
        """Report, and evaluate if it is time; windows of the loss end at fixed steps."""
        window = min((self.step - 1) % every + 1 for every in (self.log_every, self.evaluate_every))
        mean = float(self.running) / window
        if evaluate:
            self.excess = self.held_out.excess(self.network)
            self.records.append({"step": self.step, "loss": mean, **asdict(self.excess)})
        speed = steps_per_second * self.plan.batch * self.plan.length
        self.report(Progress(self.step, self.plan.steps, mean, self.excess, speed))
        self.running.zero_()

    def _finite(self) -> bool:
        """The last update is in no loss yet."""
        return all(bool(p.isfinite().all()) for p in self.network.parameters())

    @property
    def _vocab(self) -> int:
        return self.plan.architecture.vocab_size

    def train_step(self, step: int) -> tuple[Tensor, Tensor]:
        plan = self.plan
        for group in self.optimiser.param_groups:
            group["lr"] = plan.rate(step)
        tokens = self.batches.take(step)
        self.optimiser.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=torch.float32, device=self.device)
        for part in tokens.chunk(plan.accumulate):
            loss = self.loss(part) / plan.accumulate
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), plan.clip)
        self.optimiser.step()
        self.batches.prepare(step + 1)
        return total, norm

    def _loss(self, tokens: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.network(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())

    # --- checkpoints ----------------------------------------------------------------------------

    def save(self) -> None:
        """A checkpoint from which the run goes on exactly; the last two are kept."""
        tensors = {f"weight.{k}": v for k, v in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            for key, value in self.optimiser.state[parameter].items():
                tensors[f"{key}.{name}"] = value
        tensors["running"] = self.running
        self.folder.save(self.step, tensors, self.records)

    def _resume(self) -> None:
        """Take up the newest whole checkpoint; damaged ones are named and passed over."""
        found = self.folder.newest(self.warn)
        if found is None:
            return
        step, records, tensors = found
        weights = {
            k.removeprefix("weight."): v for k, v in tensors.items() if k.startswith("weight.")
        }
        try:
            self.network.load_state_dict(weights)
            for name, parameter in self.network.named_parameters():
                self.optimiser.state[parameter] = {
                    key: tensors[f"{key}.{name}"].to(self.device) for key in MOMENTS
                }
        except (RuntimeError, KeyError) as error:
            where = self.folder.checkpoints / f"step-{step:07d}"
            raise InputError(f"{where}: its tensors do not fit the architecture") from error
        self.step, self.records = step, records
        self.running = tensors.get("running", torch.zeros(())).to(self.device)

    def export(self) -> None:
        """The model folder `out/model`, which `--model` takes, and the records: a run that was
        killed after its last checkpoint may have kept neither."""
        self.folder.write_records(self.records)
        excess = self.records[-1] if self.records else None
        facts = {
            "process": self.plan.process,
            "plan": self.plan.to_json(),
            "steps_done": self.step,
            "excess_risk": excess,
            "parameters": sum(p.numel() for p in self.network.parameters()),
        }
        save_model(self.folder.model, self.network, facts)
