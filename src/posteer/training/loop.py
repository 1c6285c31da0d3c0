"""The training loop: stops anywhere, resumes exactly, never loses its last good checkpoint.

A step's batch depends on (seed, step) alone and the checkpoint holds weights, moments and step, so
a resumed run does the same arithmetic as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.files import write_atomically, write_folder_atomically, write_json
from posteer.core.randomness import torch_stream
from posteer.families.registry import open_process
from posteer.models.transformer.checkpoint import (
    read_manifest,
    read_tensors,
    save_model,
    split_tensors,
    with_manifest,
)
from posteer.models.transformer.network import Transformer
from posteer.training.data import ExcessRisk, HeldOut, training_batch
from posteer.training.plan import TrainingPlan

KEPT_CHECKPOINTS = 2
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

    def __init__(
        self,
        plan: TrainingPlan,
        out: Path,
        *,
        device: str = "cpu",
        compiled: bool = False,
        held_out: int = 64,
        evaluate_every: int = 500,
        checkpoint_every: int = 1000,
        log_every: int = 50,
        report: Callable[[Progress], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.plan, self.out = plan, out
        self.device = torch.device(device)
        self.prior = open_process(plan.process)
        self.evaluate_every, self.checkpoint_every = evaluate_every, checkpoint_every
        self.log_every = log_every
        self.report = report or (lambda _: None)
        self.warn = warn or (lambda _: None)
        self._claim_folder()
        self.network = self._fresh_network().to(self.device)
        self.optimiser = self._optimiser()
        self.records: list[dict[str, Any]] = []
        self.step = 0
        self._resume()
        self.held_out = HeldOut(self.prior, held_out, plan.length, plan.seed, self.device)
        forward: Callable[[Tensor], Tensor] = self._loss
        self.loss: Callable[[Tensor], Tensor] = torch.compile(forward) if compiled else forward
        self.excess: ExcessRisk | None = None

    # --- set-up ---------------------------------------------------------------------------------

    def _claim_folder(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / "plan.json"
        if not path.exists():
            write_json(path, self.plan.to_json())
            return
        try:
            earlier = TrainingPlan.from_json(json.loads(path.read_text()))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} is damaged: it is not a training plan") from error
        require(
            earlier == self.plan,
            f"{self.out} holds a run with another plan: give another folder, or the same settings",
        )

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

    def run(
        self, *, max_minutes: float = math.inf, should_stop: Callable[[], bool] | None = None
    ) -> Outcome:
        """Train until the plan is done, time is up, or someone asks to stop."""
        started, ticked, ticked_step = time.monotonic(), time.monotonic(), self.step
        running = torch.zeros((), device=self.device)
        bad_step = torch.full((), -1.0, device=self.device)
        while self.step < self.plan.steps:
            self.step += 1
            loss, norm = self.train_step(self.step)
            running += loss
            bad = ~torch.isfinite(norm) | ~(loss < EXPLODED * math.log(self._vocab))
            bad_step = torch.where(bad & (bad_step < 0), float(self.step), bad_step)
            done = self.step == self.plan.steps
            evaluate = self.step % self.evaluate_every == 0 or done
            save = self.step % self.checkpoint_every == 0 or done
            if not (self.step % self.log_every == 0 or evaluate or save):
                continue
            if float(bad_step) >= 0:
                return Outcome("diverged", int(bad_step))
            now = time.monotonic()
            mean = float(running) / (self.step - ticked_step)
            speed = (self.step - ticked_step) * self.plan.batch * self.plan.length / (now - ticked)
            if evaluate:
                self.excess = self.held_out.excess(self.network)
                self.records.append({"step": self.step, "loss": mean, **asdict(self.excess)})
            if save:
                self.save()
            self.report(Progress(self.step, self.plan.steps, mean, self.excess, speed))
            running.zero_()
            ticked, ticked_step = time.monotonic(), self.step
            asked = should_stop is not None and should_stop()
            if not done and (asked or now - started > 60 * max_minutes):
                self.save()
                self.export()
                return Outcome("stopped", self.step)
        self.export()
        return Outcome("finished", self.step)

    @property
    def _vocab(self) -> int:
        return self.plan.architecture.vocab_size

    def train_step(self, step: int) -> tuple[Tensor, Tensor]:
        plan = self.plan
        for group in self.optimiser.param_groups:
            group["lr"] = plan.rate(step)
        tokens = training_batch(self.prior, plan.batch, plan.length, plan.seed, step, self.device)
        self.optimiser.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for part in tokens.chunk(plan.accumulate):
            loss = self.loss(part) / plan.accumulate
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), plan.clip)
        self.optimiser.step()
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
        facts = {"step": self.step, "records": self.records}
        folder = self._checkpoints / f"step-{self.step:07d}"
        files = with_manifest(split_tensors(tensors, "state"), facts)
        write_folder_atomically(folder, files)
        self._write_records()
        for old in self._saved()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)

    @property
    def _checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def _saved(self) -> list[Path]:
        return sorted(self._checkpoints.glob("step-*"))

    def _resume(self) -> None:
        """Take up the newest whole checkpoint; damaged ones are named and passed over."""
        for folder in reversed(self._saved()):
            try:
                manifest = read_manifest(folder)
                tensors = read_tensors(folder, manifest, "state")
            except InputError as error:
                self.warn(f"{error}; trying the checkpoint before it")
                continue
            weights = {
                k.removeprefix("weight."): v for k, v in tensors.items() if k.startswith("weight.")
            }
            self.network.load_state_dict(weights)
            for name, parameter in self.network.named_parameters():
                self.optimiser.state[parameter] = {
                    key: tensors[f"{key}.{name}"].to(self.device)
                    for key in ("step", "exp_avg", "exp_avg_sq")
                }
            self.step, self.records = manifest["step"], manifest["records"]
            return

    def _write_records(self) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in self.records)
        write_atomically(self.out / "records.jsonl", lines.encode())

    def export(self) -> None:
        """The model folder `out/model`, which `--model` takes."""
        excess = self.records[-1] if self.records else None
        facts = {
            "process": self.plan.process,
            "plan": self.plan.to_json(),
            "steps_done": self.step,
            "excess_risk": excess,
            "parameters": sum(p.numel() for p in self.network.parameters()),
        }
        save_model(self.out / "model", self.network, facts)
