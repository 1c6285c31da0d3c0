"""On this machine: in this process for one worker, else in as many processes.

`shared` is the same with leases in place of locks. The same command, started by anything on any
number of machines that share the folder, joins in; the folder needs files that can be created and
renamed, no more.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from functools import partial
from typing import Any

from posteer.core.leases import Terms
from posteer.core.spec import Spec
from posteer.sweeps.executors.protocol import Work, carry_out, order, run_here, terms_in
from posteer.sweeps.executors.watching import attend
from posteer.sweeps.runner import Report


class Local:
    """The executor; `leased` if processes of other machines may be at the same files."""

    def __init__(self, leased: bool) -> None:
        self.leased = leased

    def prepare(self, spec: Spec) -> Terms | None:
        if self.leased:
            return terms_in(spec)[0]
        spec.take()
        return None

    def __call__(self, work: Work) -> None:
        if work.workers == 1:
            run_here(work)
        else:
            _in_processes(work)


run, run_shared = Local(leased=False), Local(leased=True)


def _in_processes(work: Work) -> None:
    """Workers do the same job; this process watches its files."""
    look, context = work.job.watch(work.report), multiprocessing.get_context("spawn")
    complaints = context.SimpleQueue()
    threads = max(1, (os.cpu_count() or 1) // work.workers)
    processes = [
        context.Process(
            target=_work, args=(order(work, at, threads), os.getpid(), complaints), daemon=True
        )
        for at in range(work.workers)
    ]
    started: list[Any] = []
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers inherit it: Ctrl-C is ours
        try:
            for process in processes:
                process.start()
                started.append(process)
        finally:
            signal.signal(signal.SIGINT, before)
        attend(
            look,
            lambda: any(process.is_alive() for process in processes),
            lambda: [] if complaints.empty() else [complaints.get()],
        )
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()
            process.close()
        complaints.close()


def _work(text: str, parent: int, complaints: Any) -> None:
    """A worker process. It ends with its parent, and tells it what went wrong."""

    def still_wanted(*_progress: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    warn = partial(print, file=sys.stderr, flush=True)
    complaint = carry_out(text, Report(still_wanted, still_wanted, warn))
    if complaint is not None:
        complaints.put(complaint)
