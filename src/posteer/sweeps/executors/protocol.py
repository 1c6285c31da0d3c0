"""What an executor is given, and what it promises."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from posteer.core.errors import InputError, require
from posteer.core.leases import Terms
from posteer.core.spec import Spec, number
from posteer.sweeps.jobs import Hand, Job, job_from
from posteer.sweeps.runner import Report

LEASE_SECONDS = 60.0
LARGEST_ORDER = 2**22
"""Bytes that a worker is sent: what to do, never results; those are in files."""


@dataclass(frozen=True)
class Work:
    """A job, some of which may be done, and what was asked for.

    `workers` is how many were wanted, 1 or more. With `terms` they claim by leases. `spec` is the
    executor as it was asked for, with its settings.
    """

    job: Job
    device: str
    workers: int
    report: Report
    terms: Terms | None = None
    spec: Spec = field(default_factory=lambda: Spec("local"))


@runtime_checkable
class Executor(Protocol):
    """Has `run_here`, or `carry_out` of an order, called somewhere, until the job is done.

    `report.finished` is told the records that arrive meanwhile, each once. What cannot go on is
    raised, as an `InputError` with one line if a user can mend it; what is done by then is kept.
    To return with work left is no error: the outcome says how much.

    An executor may have a `prepare(spec)`, which is called before anything is written: it refuses
    settings and what is not installed, and returns the terms of leases if its workers need them;
    and a `place(spec, device)` that says what a device is called where they are.
    """

    def __call__(self, work: Work, /) -> None: ...


def run_here(work: Work) -> None:
    """Do a job in this process, and beside any others at work there."""
    work.job.work(Hand(work.device, work.report, work.terms))


def remote(device: str, gpus: int) -> str:
    """A device as workers elsewhere will have it; whether they do shows there."""
    known = re.fullmatch(r"auto|cpu|cuda", str(device)) is not None
    require(known, f"device '{device}': expected auto, cpu or cuda")
    return ("cuda" if gpus else "cpu") if device == "auto" else str(device)


def terms_in(spec: Spec, **settings: Any) -> tuple[Terms, dict[str, Any]]:
    """The time of leases among an executor's settings, and the others."""
    found = spec.take(lease=LEASE_SECONDS, **settings)
    lease = number(found.pop("lease"), f"{spec.name}: lease")
    require(lease > 0, f"{spec.name}: lease {lease:g}: expected seconds above 0")
    return Terms(lease), found


def order(work: Work, worker: int, threads: int) -> str:
    """What one worker is to do, as a text that any process can be given."""
    text = json.dumps(
        {
            "job": work.job.to_json(),
            "device": work.device,
            "lease": None if work.terms is None else work.terms.seconds,
            "worker": worker,
            "of": work.workers,
            "threads": threads,
            "folder": os.getcwd(),
        }
    )
    require(len(text) <= LARGEST_ORDER, f"a job of {len(text):,} bytes: too large to be sent")
    return text


def carry_out(text: str, report: Report | None = None) -> str | None:
    """Do what an order says, in this process; what a user can mend is returned as one line."""
    facts = json.loads(text)
    os.chdir(facts["folder"])
    torch.set_num_threads(facts["threads"])
    terms = None if facts["lease"] is None else Terms(facts["lease"])
    hand = Hand(facts["device"], report or Report(), terms, facts["worker"], facts["of"])
    try:
        job_from(facts["job"]).work(hand)
    except (InputError, OSError) as error:
        return str(error)
    return None


def kept_by(work: Work, name: str) -> Path:
    """A folder for what an executor keeps of a job, readable by its owner alone."""
    folder = work.job.home / "jobs" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
