"""Running a sweep: what is kept, what goes wrong, what is never lost."""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import BATCH, SMALL, small, toml

from posteer.elicitation import elicit_many
from posteer.errors import InputError
from posteer.experiments.kills import different_results, different_tables, kill_often
from posteer.experiments.sweep import runner, store
from posteer.experiments.sweep.execution import outcome, retry_failed, run_sweep
from posteer.experiments.sweep.runner import Report
from posteer.experiments.sweep.runs import expand
from posteer.experiments.sweep.store import RunStore

TOTAL = 48


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep that nothing happened to."""
    out = tmp_path_factory.mktemp("sweep") / "runs"
    assert run_sweep(small(), out, batch_size=BATCH).statuses == {"done": TOTAL}
    return out


def test_runs_are_what_elicit_finds(finished):
    method = SMALL["methods"][0]
    found = elicit_many("exact:urn", SMALL["utilities"], length=4, method=method, seeds=range(3))
    kept = {}
    for record in RunStore.open(finished).records()[0]:
        run = record["configuration"]
        if (run["model"], run["length"], run["method"].partition("(")[0]) == (
            "exact:urn",
            4,
            "ppt-rb-analytic",
        ):
            kept[run["utility"], run["seed"]] = record
    assert len(kept) == len(found) == 6
    for one in found:
        record = kept[one.utility, one.seed]
        assert record["result"]["prompt"] == one.prompt
        assert record["result"]["expected_utility"] == pytest.approx(one.expected_utility)
        assert record["status"] == "done"
        assert record["provenance"]["posteer"]
        assert "ascend" in record["seconds"]


def test_a_second_command_repeats_nothing(finished):
    before = {p.name: p.stat().st_mtime_ns for p in (finished / "runs").iterdir()}
    solved = []
    run_sweep(small(), finished, batch_size=BATCH, report=Report(finished=solved.extend))
    assert solved == []
    assert before == {p.name: p.stat().st_mtime_ns for p in (finished / "runs").iterdir()}


def test_more_seeds_run_only_what_is_new(finished, tmp_path):
    out = tmp_path / "runs"
    run_sweep(small(seeds=2), out, batch_size=BATCH)
    with pytest.raises(InputError, match=r"seeds: with 2.*--extend"):
        run_sweep(small(), out, batch_size=BATCH)
    solved = []
    run_sweep(small(), out, batch_size=BATCH, extend=True, report=Report(finished=solved.extend))
    assert len(solved) == TOTAL // 3
    assert RunStore.open(out).names() == RunStore.open(finished).names()


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"done"', b'"dane"'),
        lambda data: b"",
        lambda data: b"[1, 2]",
    ],
)
def test_damaged_files_are_set_aside_named_and_run_again(finished, tmp_path, harm):
    out = tmp_path / "runs"
    run_sweep(small(models=["exact:urn"], lengths=[3]), out, batch_size=BATCH)
    victim = sorted((out / "runs").iterdir())[3]
    whole = victim.read_bytes()
    victim.write_bytes(harm(whole))
    harmed = victim.read_bytes()
    told, solved = [], []
    report = Report(warn=told.append, finished=solved.extend)
    run_sweep(small(models=["exact:urn"], lengths=[3]), out, batch_size=BATCH, report=report)
    assert len(told) == 1 and victim.stem in told[0]
    assert len(solved) == 1
    kept = list((out / "quarantine").iterdir())
    assert [path.read_bytes() for path in kept] == [harmed]
    assert json.loads(victim.read_bytes())["result"] is not None


def test_a_file_under_another_runs_name_is_damage(finished, tmp_path):
    names = sorted((finished / "runs").iterdir())
    with pytest.raises(store.DamagedError, match="another run"):
        store.unseal(names[0].read_bytes(), names[1].stem)


def test_a_run_that_fails_is_kept_as_failed_and_can_be_retried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import os\n"
        "def good(y):\n    return y[0]\n"
        "def bad(y):\n"
        "    if not os.path.exists('mended'):\n        raise ValueError('not today')\n"
        "    return y[1]\n"
    )
    config = small(
        models=["exact:urn"], utilities=["./mine.py:good", "./mine.py:bad"], methods=["coordinate"]
    )
    ended = run_sweep(config, Path("runs"), batch_size=6)
    assert ended.statuses == {"done": 6, "failed": 6}
    (error,) = ended.errors
    assert "not today" in error
    again = run_sweep(config, Path("runs"), batch_size=6)
    assert again == ended, "a failed run is not silently run again"
    Path("mended").touch()
    opened = RunStore.open(Path("runs"))
    assert retry_failed(opened, lambda _text: None) == 6
    assert run_sweep(config, Path("runs"), batch_size=6).statuses == {"done": 12}


def test_a_run_that_diverges_is_called_so(finished):
    run = expand(small()).runs[0]
    found = elicit_many(run.model, [run.utility], length=3, method=run.method)[0]
    assert runner._record(run, "cpu", found=found)["status"] == "done"
    object.__setattr__(found, "stop_reason", "diverged")
    record = runner._record(run, "cpu", found=found)
    assert record["status"] == "diverged" and record["result"]["prompt"] == found.prompt


def test_a_batch_is_committed_whole_or_not_at_all(finished, tmp_path, monkeypatch):
    """A crash after the journal: the next process finishes what this one began."""
    out = tmp_path / "runs"
    config = small(models=["exact:urn"], lengths=[3])

    def crash(folder, files):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_each", crash)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(config, out, batch_size=BATCH)
    monkeypatch.undo()
    opened = RunStore.open(out)
    assert opened.names() == set()
    opened.recover()
    assert len(opened.names()) == BATCH
    assert list(opened.commits.iterdir()) == []
    solved = []
    run_sweep(config, out, batch_size=BATCH, report=Report(finished=solved.extend))
    assert len(solved) == 12 - BATCH


def test_banks_that_no_model_ships_are_drawn_once(tmp_path):
    config = small(models=["exact:urn"], methods=["ppt-rb(samples=64,rollout-length=30,steps=5)"])
    run_sweep(config, tmp_path / "runs", batch_size=BATCH)
    (bank,) = (tmp_path / "runs" / "banks").glob("*.safetensors")
    costs = {
        record["result"]["cost"]["bank_tokens"]
        for record in RunStore.open(tmp_path / "runs").records()[0]
    }
    assert costs == {64 * 29} and bank.stat().st_size > 0


def _sweep(out):
    run_sweep(small(), Path(out), batch_size=BATCH)


def _forks():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posteer.experiments.sweep.execution", "sweeps"])
    return context


class Child:
    def __init__(self, out):
        self.process = _forks().Process(target=_sweep, args=(str(out),))
        self.process.start()

    def running(self):
        return self.process.is_alive()

    def kill(self):
        self.process.kill()
        self.process.join()

    def wait(self):
        self.process.join()


def test_fifty_kills_lose_nothing_and_repeat_nothing(finished, tmp_path):
    out = tmp_path / "runs"
    audit = kill_often(lambda: Child(out), out, kills=50, seconds=0.5, patience=1.5, seed=3)
    assert audit.clean, audit
    assert audit.killed_at_work >= 15, "most kills must find it at work"
    assert audit.runs == TOTAL
    assert different_results(out, finished) == []
    assert different_tables(out, finished) == []


def test_the_audit_can_fail(finished, tmp_path):
    """A run that is written again, or lost, between two looks is found."""
    out = tmp_path / "runs"

    class Vandal(Child):
        def kill(self):
            super().kill()
            kept = sorted((out / "runs").glob("*.json"))
            if kept:
                kept[0].unlink()

    audit = kill_often(lambda: Vandal(out), out, kills=8, seconds=2.0, patience=3.0, seed=0)
    assert not audit.clean


def test_eight_processes_on_one_store(finished, tmp_path):
    out = tmp_path / "runs"
    RunStore.create(out, small())
    processes = [_forks().Process(target=_sweep, args=(str(out),)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    opened = RunStore.open(out)
    records, damaged = opened.records()
    assert len(records) == TOTAL and damaged == {}
    sessions = [json.loads(path.read_bytes()) for path in opened.sessions.iterdir()]
    assert sum(session["runs"] for session in sessions) == TOTAL, "nothing was solved twice"
    assert len(sessions) > 1, "they shared the work"
    assert different_results(out, finished) == []


def test_workers(finished, tmp_path):
    out = tmp_path / "runs"
    solved = []
    ended = run_sweep(
        small(), out, batch_size=BATCH, workers=2, report=Report(finished=solved.extend)
    )
    assert ended.statuses == {"done": TOTAL} and len(solved) == TOTAL
    assert different_results(out, finished) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "posteer-runs-0"}, "format 'posteer-runs-0'"),
        ({"version": "9.9"}, "the runs are from 9.9"),
    ],
)
def test_a_store_of_another_version_is_left_alone(tmp_path, change, complaint):
    out = tmp_path / "runs"
    run_sweep(small(models=["exact:urn"], lengths=[3]), out, batch_size=BATCH)
    facts = json.loads((out / "sweep.json").read_bytes())
    (out / "sweep.json").write_text(json.dumps({**facts, **change}))
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=complaint):
        run_sweep(small(models=["exact:urn"], lengths=[3]), out, batch_size=BATCH)
    assert before == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="no sweep"):
        run_sweep(small(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def command(*words, cwd, **more):
    return subprocess.run(
        [sys.executable, "-m", "posteer.cli", "sweep", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        **more,
    )


def _no_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))


def test_a_full_disk_is_one_line_and_nothing_is_damaged(tmp_path):
    """The system itself refuses to write more than 2,500 bytes to a file."""
    (tmp_path / "mine.toml").write_text(toml(**{**SMALL, "models": ["exact:urn"]}))
    words = ["--config", "mine.toml", "--out", "runs", "--batch", "6"]
    done = command(*words, cwd=tmp_path, preexec_fn=_no_room)
    assert done.returncode == 2
    assert "File too large" in done.stderr and "Traceback" not in done.stderr
    opened = RunStore.open(tmp_path / "runs")
    assert opened.records() == ([], {})
    assert not list((tmp_path / "runs").rglob("*.part"))
    again = command(*words, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["done"] == 24


def _without_override():
    """Root writes anywhere; a process without this capability does not."""
    import ctypes

    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) != 0:
        os._exit(77)


def test_a_read_only_store_is_one_line(tmp_path):
    (tmp_path / "mine.toml").write_text(toml(**{**SMALL, "models": ["exact:urn"]}))
    out = tmp_path / "runs"
    run_sweep(small(models=["exact:urn"], seeds=1), out, batch_size=6)
    folders = [out, *(path for path in out.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        words = ["--config", "mine.toml", "--out", "runs", "--extend"]
        done = command(*words, cwd=tmp_path, preexec_fn=_without_override)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    if done.returncode == 77:
        pytest.skip("cannot give up root's right to write anywhere")
    assert done.returncode == 2
    assert "Permission denied" in done.stderr and "Traceback" not in done.stderr
    assert outcome(RunStore.open(out), expand(RunStore.open(out).config())).finished
