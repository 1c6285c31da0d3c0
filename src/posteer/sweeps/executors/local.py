"""On this machine: in this process for one worker, else in as many processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from posteer.core.errors import InputError, require
from posteer.sweeps.configuration import SweepConfig
from posteer.sweeps.executors.protocol import Work
from posteer.sweeps.runner import Report, run_here
from posteer.sweeps.runs import expand
from posteer.sweeps.store import RunStore

WATCH_SECONDS = 0.5


def run(work: Work) -> None:
    """The executor."""
    if work.workers == 1:
        run_here(work.folder, work.config, work.device, work.report)
    else:
        _in_processes(work)


def _in_processes(work: Work) -> None:
    """Workers are runners on the same store; this process watches it fill."""
    context = multiprocessing.get_context("spawn")
    complaints = context.SimpleQueue()
    threads = max(1, (os.cpu_count() or 1) // work.workers)
    given = (work.folder, work.config, work.device, threads, os.getpid(), complaints)
    made = (context.Process(target=_work, args=given, daemon=True) for _ in range(work.workers))
    processes = list(made)
    store = RunStore(work.folder)
    wanted = {run.name for run in expand(work.config).runs}
    seen = store.names()
    busy, started = True, []
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers inherit it: Ctrl-C is ours
        try:
            for process in processes:
                process.start()
                started.append(process)
        finally:
            signal.signal(signal.SIGINT, before)
        while busy:
            time.sleep(WATCH_SECONDS)
            busy = any(process.is_alive() for process in processes)  # before the news: none is lost
            there = store.names()
            news, _ = store.records((there - seen) & wanted)
            seen = there
            if news:
                work.report.finished(news)
            if not complaints.empty():
                raise InputError(complaints.get())
        require(
            wanted <= seen,
            "the workers were killed from outside (out of memory?): the same command goes on, "
            "with fewer `workers`",
        )
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()
            process.close()
        complaints.close()


def _work(
    folder: Path, config: SweepConfig, device: str, threads: int, parent: int, complaints: Any
) -> None:
    """A worker process. It ends with its parent, and tells it what went wrong."""
    torch.set_num_threads(threads)

    def still_wanted(*_progress: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    warn = partial(print, file=sys.stderr, flush=True)
    try:
        run_here(folder, config, device, Report(still_wanted, still_wanted, warn))
    except (InputError, OSError) as error:
        complaints.put(str(error))
