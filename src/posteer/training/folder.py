"""The folder of a training run: one plan, one trainer at a time, its last checkpoints, its model.

    plan.json               what is trained, sealed
    checkpoints/step-NNNNNNN   weights, moments, step; the last two are kept
    model/                  what `--model` takes, replaced as a whole
    records.jsonl           losses and excess risk, a sealed line each
    lock                    locked while a process trains

Nothing else is ever removed, and a folder that holds anything else where these belong is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.files import (
    clean_leftovers,
    remove_folder,
    require_ours,
    write_atomically,
    write_folder_atomically,
)
from posteer.core.locks import Claims
from posteer.core.sealing import read_sealed, sealed_line, write_sealed
from posteer.models.transformer.checkpoint import (
    is_ours,
    read_manifest,
    read_tensors,
    split_tensors,
    with_manifest,
)
from posteer.training.plan import TrainingPlan

KEPT_CHECKPOINTS = 2
OWN = {"plan.json", "checkpoints", "model", "records.jsonl", "lock"}
_STEP = re.compile(r"step-(\d{7,})")


class LostError(Exception):
    """The folder is another trainer's by now: this one was away for longer than its lease."""


class TrainingFolder:
    """Where a run is kept. `still_ours` is asked before anything is written, where who trains has
    claimed the folder otherwise than by its lock."""

    still_ours: Callable[[], bool] | None = None

    def __init__(self, out: Path, plan: TrainingPlan) -> None:
        self.out, self.plan = out, plan
        self.checkpoints, self.model = out / "checkpoints", out / "model"
        self._claims = Claims(out / "lock")

    def accept(self) -> None:
        """Make the folder, or see that it holds this very run; others are refused."""
        path = self.out / "plan.json"
        require(
            not self.out.exists() or self.out.is_dir(), f"{self.out} is a file: expected a folder"
        )
        there = list(self.out.iterdir()) if self.out.is_dir() else []
        if not path.exists():
            for one in there:
                begun = re.fullmatch(r"lock|\.plan\.json\..*\.part", one.name) is not None
                require(
                    begun,
                    f"{self.out}: there is something here that is no training ({one.name}): "
                    "choose another `out`",
                )
            self.out.mkdir(parents=True, exist_ok=True)
            with self._claims.claim("plan", wait=True):
                if not path.exists():
                    write_sealed(path, self.plan.to_json())
        require(
            self._planned() == self.plan,
            f"{self.out} holds a run with another plan: give another folder, or the same settings",
        )
        require_ours(self.model, is_ours)

    def _planned(self) -> TrainingPlan:
        path = self.out / "plan.json"
        facts = read_sealed(path)
        try:
            return TrainingPlan.from_json(facts)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is damaged: it is not a training plan") from error

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """For one trainer at a time; what a killed one was writing is removed."""
        with self._claims.claim("train") if self.still_ours is None else nullcontext(True) as mine:
            require(mine, f"another process is training in {self.out}: wait for it, or stop it")
            self.accept()
            clean_leftovers(self.out, OWN.__contains__, is_ours)
            clean_leftovers(self.checkpoints, _is_step, is_ours)
            yield

    def saved(self) -> list[Path]:
        """The checkpoints by step; folders that are not called as ours are none of ours."""
        there = self.checkpoints.iterdir() if self.checkpoints.is_dir() else []
        return sorted((p for p in there if _is_step(p.name) and p.is_dir()), key=_step_of)

    def save(self, step: int, tensors: dict[str, Tensor], records: list[dict[str, Any]]) -> None:
        """Keep a checkpoint, and of the earlier ones the last."""
        self._require_ours()
        facts = {"step": step, "records": records, "plan": self.plan.to_json()}
        files = with_manifest(split_tensors(tensors, "state"), facts)
        write_folder_atomically(self.checkpoints / f"step-{step:07d}", files, is_ours)
        self.write_records(records)
        for old in self.saved()[:-KEPT_CHECKPOINTS]:
            remove_folder(old, is_ours)

    def write_records(self, records: list[dict[str, Any]]) -> None:
        """A sealed line for each."""
        self._require_ours()
        lines = "".join(map(sealed_line, records))
        write_atomically(self.out / "records.jsonl", lines.encode())

    def _require_ours(self) -> None:
        if self.still_ours is not None and not self.still_ours():
            raise LostError

    def newest(
        self, warn: Callable[[str], None]
    ) -> tuple[int, list[dict[str, Any]], dict[str, Tensor]] | None:
        """Step, records and tensors of the newest whole checkpoint; others are named."""
        for folder in reversed(self.saved()):
            try:
                return self._read(folder)
            except (InputError, OSError) as error:
                warn(f"{error}; trying the checkpoint before it")
        return None

    def _read(self, folder: Path) -> tuple[int, list[dict[str, Any]], dict[str, Tensor]]:
        manifest = read_manifest(folder)
        step, records = manifest.get("step"), manifest.get("records")
        whole = type(step) is int and isinstance(records, list)
        require(
            whole and all(isinstance(one, dict) for one in records or []),
            f"{folder} is damaged: its manifest names no step",
        )
        assert isinstance(step, int) and isinstance(records, list)
        require(
            step == _step_of(folder) and step <= self.plan.steps,
            f"{folder} is damaged: its manifest is of step {step}",
        )
        require(
            manifest.get("plan", self.plan.to_json()) == self.plan.to_json(),
            f"{folder} is a checkpoint of another plan",
        )
        tensors = read_tensors(folder, manifest, "state")
        counted = {int(v) for k, v in tensors.items() if k.startswith("step.")}
        require(counted == {step}, f"{folder} is damaged: its tensors are not of step {step}")
        return step, records, tensors


def _is_step(name: str) -> bool:
    return _STEP.fullmatch(name) is not None


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
