"""Where records come from: versions, revision, device; and what each working session took."""

from __future__ import annotations

import os
import platform
import subprocess
import time
import tomllib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import posteer
from posteer import __version__


def provenance(device: str) -> dict[str, Any]:
    """Of a run: what made it, where, and when it was finished."""
    return {**_surroundings(device), "finished": datetime.now(UTC).isoformat(timespec="seconds")}


@cache
def _surroundings(device: str) -> dict[str, Any]:
    return {
        "posteer": __version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": device_name(device),
    }


def device_name(device: str) -> str:
    """The GPU by its name; a CPU by its kind, its cores and the threads in use."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return f"cpu {platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def _revision() -> str | None:
    """The commit of our own source tree, marked if the tree has changed since; None outside of it,
    and so where posteer lies in a folder of another project's."""
    told = os.environ.get("POSTEER_REVISION")  # for a copy of the tree without its history
    if told:
        return told
    package = Path(posteer.__file__).parent

    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}

    def git(*words: str) -> str:
        # Optional locks would be left behind if this process is killed meanwhile.
        command = ["git", "--no-optional-locks", "-C", str(package), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != _home(package):
            return None
        git("ls-files", "--error-unmatch", "--", "__init__.py")
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "HEAD") + ("+changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _home(package: Path) -> Path | None:
    """The tree that our source is at home in: its pyproject.toml says so."""
    home = package.resolve().parent.parent
    try:
        project = tomllib.loads((home / "pyproject.toml").read_text())["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return home if project == "posteer" else None


class Session:
    """One process's work on a store: runs, wall time and seconds by phase, kept up to date."""

    def __init__(self, device: str, batch: int) -> None:
        self.device, self.batch = device_name(device), batch
        self.began = datetime.now(UTC)
        self.name = f"{self.began:%Y%m%dT%H%M%S.%f}-{os.getpid()}"
        self.runs = 0
        self.phases: dict[str, float] = {}
        self._started = time.perf_counter()

    def add(self, runs: int, phases: dict[str, float]) -> None:
        self.runs += runs
        for name, seconds in phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds

    def to_json(self) -> dict[str, Any]:
        return {
            "began": self.began.isoformat(timespec="milliseconds"),
            "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "device": self.device,
            "batch": self.batch,
            "runs": self.runs,
            "wall_seconds": time.perf_counter() - self._started,
            "phases": self.phases,
        }
