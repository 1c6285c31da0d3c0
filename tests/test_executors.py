"""Executors: where work runs is theirs, what is done is the store's."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sweeps import SMALL, small, toml

from posteer.cli import main
from posteer.core import userfiles
from posteer.core.errors import InputError
from posteer.core.spec import Spec
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.executors import EXECUTORS, Work, on_slurm, prepared, run_here
from posteer.sweeps.executors.local import run as local
from posteer.sweeps.jobs.sweep import SweepJob
from posteer.sweeps.runner import Report
from posteer.sweeps.store import RunStore

FEW = {"models": ["exact:urn"], "lengths": [3], "seeds": 2}
RUNS = 8


@pytest.fixture
def toy():
    """An executor from outside that writes down what it was given."""
    seen = []

    def execute(work):
        seen.append(work)
        run_here(work)

    EXECUTORS.add("toy", execute)
    yield seen
    EXECUTORS.remove("toy")


def test_one_of_ones_own_is_given_all_it_needs(toy, tmp_path):
    solved = []
    report = Report(finished=solved.extend)
    ended = run_sweep(
        small(**FEW), tmp_path, device="cpu", workers=3, executor="toy", report=report
    )
    assert ended.statuses == {"done": RUNS} and len(solved) == RUNS
    assert toy == [Work(SweepJob(tmp_path, small(**FEW)), "cpu", 3, report, None, Spec("toy"))]


def test_what_is_done_is_not_asked_of_the_executor(tmp_path):
    """One that does nothing leaves everything; the next goes on where it stopped."""
    EXECUTORS.add("idle", lambda work: None)
    try:
        ended = run_sweep(small(**FEW), tmp_path, executor="idle")
    finally:
        EXECUTORS.remove("idle")
    assert not ended.finished and ended.to_json()["left"] == RUNS
    assert run_sweep(small(**FEW), tmp_path).finished


def test_threads_of_one_process_share_the_work_too(tmp_path):
    """POSIX locks alone would let both solve every batch."""

    def in_threads(work):
        threads = [threading.Thread(target=run_here, args=(work,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    solved = []
    EXECUTORS.add("threads", in_threads)
    try:
        report = Report(finished=solved.extend)
        ended = run_sweep(small(**FEW), tmp_path, batch_size=1, executor="threads", report=report)
    finally:
        EXECUTORS.remove("threads")
    assert ended.statuses == {"done": RUNS} and len(solved) == RUNS


def test_an_unknown_one_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"unknown executor 'locl': did you mean local\?"):
        run_sweep(small(**FEW), tmp_path / "runs", executor="locl")
    assert not (tmp_path / "runs").exists()


def test_by_command(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(toml(**SMALL | FEW))
    main(["sweep", "--config", "mine.toml", "--out", "runs", "--executor", "toy", "--json"])
    assert json.loads(capsys.readouterr().out)["done"] == RUNS and len(toy) == 1
    main(["sweep", "retry", "--failed", "--out", "runs", "--executor", "toy", "--json"])
    assert json.loads(capsys.readouterr().out)["done"] == RUNS and len(toy) == 2
    with pytest.raises(SystemExit):
        main(["sweep", "--config", "mine.toml", "--out", "other", "--executor", "cloud"])
    assert (
        "unknown executor 'cloud': expected one of local, shared, slurm, ray"
        in capsys.readouterr().err
    )
    assert not Path("other").exists()


@pytest.mark.parametrize(
    "executor", ["local", pytest.param("slurm(cluster=local,cpus=1)", marks=pytest.mark.slow)]
)
def test_the_store_is_looked_at_before_workers_start(tmp_path, executor):
    """What they had stored by the first look would be told to nobody."""
    if executor != "local":
        pytest.importorskip("submitit")
    happened = []

    class Told(SweepJob):
        def watch(self, report):
            happened.append("watch")
            return super().watch(report)

        def to_json(self):
            happened.append("order")
            return super().to_json()

    run_sweep(small(**FEW), tmp_path)
    prepared(executor)(Told(tmp_path, small(**FEW)), "cpu", 2, Report())
    assert happened == ["watch", "order", "order"]


def test_what_a_worker_cannot_go_on_from_is_raised_here(tmp_path):
    with pytest.raises(InputError, match="no sweep was run here"):
        local(Work(SweepJob(tmp_path, small(**FEW)), "cpu", 2, Report()))


def test_workers_killed_from_outside_are_told_and_what_they_solved_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import os, signal\ndef score(y):\n"
        f"    if os.getpid() != {os.getpid()}:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return y[0]\n"
    )
    config = small(**FEW | {"utilities": ["./mine.py:score"], "methods": ["coordinate"]})
    with pytest.raises(InputError, match="killed from outside"):
        run_sweep(config, Path("runs"), workers=2)
    assert RunStore.open(Path("runs")).records()[1] == {}
    assert run_sweep(config, Path("runs")).statuses == {"done": 2}


PREEMPTED = """
import os, signal
def score(y):
    if os.path.exists("runs/sessions"):
        os.kill(os.getpid(), signal.SIGUSR2)
    return y[0]
"""


@pytest.mark.parametrize("end", [SystemExit(-1), RuntimeError("timed out too many times")])
def test_a_preempted_job_blames_no_users_function(tmp_path, monkeypatch, end):
    """submitit ends a job by raising where the signal finds it: no run has failed by that."""
    submitit = pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PREEMPTED)

    def preempted(*_signal):
        again = on_slurm.Worker("", tmp_path).checkpoint()
        assert isinstance(again, submitit.helpers.DelayedSubmission)
        raise end

    before = signal.signal(signal.SIGUSR2, preempted)
    config = small(**FEW | {"utilities": ["./mine.py:score"], "methods": ["coordinate"]})
    try:
        with pytest.raises(type(end)):
            run_sweep(config, Path("runs"))
    finally:
        signal.signal(signal.SIGUSR2, before)
        userfiles.TOLD_TO_END.clear()
    assert RunStore.open(Path("runs")).records() == ([], {})


def test_the_module_runs_sweeps_with_torch_and_numpy_alone(tmp_path):
    (tmp_path / "mine.toml").write_text(toml(**SMALL | FEW))
    code = """
import sys
sys.modules.update(dict.fromkeys(["pandas", "pyarrow", "rich", "cyclopts", "matplotlib", "scipy"]))
from posteer.sweeps.execution import main
main(["--config", "mine.toml", "--out", "runs", "--device", "cpu", "--executor", "local"])
main(["--preset", "papr", "--out", "other"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert f"'done': {RUNS}" in done.stdout
    assert done.returncode == 2 and "posteer: unknown preset 'papr'" in done.stderr
