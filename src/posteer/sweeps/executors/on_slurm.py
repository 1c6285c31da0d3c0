"""Jobs of Slurm, by submitit: each is a worker, and one that is preempted or out of time is queued
again by its own signal. What it had solved is in the job's files, so it is sent the same text.

`cluster=local` has submitit run the jobs on this machine, with the same signals.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError, require
from posteer.core.leases import Terms
from posteer.core.spec import Spec, within
from posteer.core.userfiles import TOLD_TO_END
from posteer.sweeps.executors.protocol import Work, carry_out, kept_by, order, remote, terms_in
from posteer.sweeps.executors.watching import attend

SETTINGS = {
    **{"partition": "", "account": "", "cluster": "slurm"},
    **{"minutes": 240, "cpus": 2, "gigabytes": 4, "gpus": 0, "requeues": 10, "signal": 90},
}
"""What a job asks of Slurm; it is told `signal` seconds before its time is up."""


@dataclass(frozen=True)
class Worker:
    """What submitit keeps of a worker, and calls: the text of its order."""

    text: str
    told: Path

    def __call__(self) -> None:
        complaint = carry_out(self.text)
        if complaint is not None:
            self.told.write_text(complaint)

    def checkpoint(self) -> Any:
        """The same again; submitit asks for it when the job is to be queued again, in the handler
        of a signal, and then raises what ends the process."""
        import submitit

        TOLD_TO_END.set()
        return submitit.helpers.DelayedSubmission(self)


class Slurm:
    """The executor."""

    def prepare(self, spec: Spec) -> Terms:
        _library()
        terms, found = _settings(spec)
        if found["cluster"] == "slurm":
            there = shutil.which("sbatch") is not None
            require(there, "there is no Slurm here (no sbatch): slurm(cluster=local) does without")
        return terms

    def place(self, spec: Spec, device: str) -> str:
        return remote(device, _settings(spec)[1]["gpus"])

    def __call__(self, work: Work) -> None:
        found, folder = _settings(work.spec)[1], kept_by(work, "slurm")
        look = work.job.watch(work.report)
        for old in folder.glob("complaint-*"):
            old.unlink()
        executor = _library().AutoExecutor(
            folder=folder / "%j", cluster=found["cluster"], slurm_max_num_timeout=found["requeues"]
        )
        executor.update_parameters(**_parameters(found))
        told = [folder / f"complaint-{at}.txt" for at in range(work.workers)]
        with executor.batch():
            jobs = [
                executor.submit(Worker(order(work, at, found["cpus"]), told[at]))
                for at in range(work.workers)
            ]
        try:
            attend(
                look,
                lambda: not all(job.done() for job in jobs),
                lambda: [path.read_text() for path in told if path.exists()],
                logs=folder,
            )
        finally:
            for job in jobs:
                if not job.done():
                    job.cancel()


run = Slurm()


def _settings(spec: Spec) -> tuple[Terms, dict[str, Any]]:
    terms, found = terms_in(spec, **SETTINGS)
    for name, value in SETTINGS.items():
        if isinstance(value, int):
            within(found[name], f"slurm: {name}", 0 if name == "gpus" else 1, 10**6)
        else:
            text = isinstance(found[name], str)
            require(text, f"slurm: {name} {found[name]}: expected a name")
    return terms, found


def _parameters(found: dict[str, Any]) -> dict[str, Any]:
    named = {key: found[key] for key in ("partition", "account") if found[key]}
    slurm = {f"slurm_{key}": value for key, value in named.items()}
    slurm["slurm_signal_delay_s"] = found["signal"]
    return {
        "name": "posteer",
        "timeout_min": found["minutes"],
        "cpus_per_task": found["cpus"],
        "mem_gb": found["gigabytes"],
        "gpus_per_node": found["gpus"],
        **slurm,
    }


def _library() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise InputError("Slurm is reached by submitit: pip install 'posteer[slurm]'") from error
    return submitit
