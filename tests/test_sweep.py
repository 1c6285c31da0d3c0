"""Running a sweep: what is kept, what goes wrong, what is never lost."""

import json
import multiprocessing
import random
import shutil
import threading
from pathlib import Path

import pytest
from kills import Moment, different_results, different_tables, kill_often, wait_for
from sweeps import BATCH, SMALL, small

from posteer.api.eliciting import elicit_many
from posteer.banks import drawn
from posteer.core.errors import InputError
from posteer.paper.cells import Cells
from posteer.sweeps import store
from posteer.sweeps.execution import outcome, run_sweep
from posteer.sweeps.results import read_rows
from posteer.sweeps.runner import Report, Runner
from posteer.sweeps.runs import batches, expand
from posteer.sweeps.store import RunStore

TOTAL = 48
CEILING = 600.0
"""Seconds after which what is waited for will not come, on any machine."""


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
    with pytest.raises(InputError, match=r"seeds: with 2.*`extend`"):
        run_sweep(small(), out, batch_size=BATCH)
    solved = []
    run_sweep(small(), out, batch_size=BATCH, extend=True, report=Report(finished=solved.extend))
    assert len(solved) == TOTAL // 3
    assert RunStore.open(out).names() == RunStore.open(finished).names()


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
    told = []
    mended = run_sweep(config, Path("runs"), retry_failed=True, report=Report(warn=told.append))
    assert mended.statuses == {"done": 12}
    assert len(told) == 6 and "not today" in told[0]


def test_a_run_that_diverges_is_called_so(tmp_path):
    """A rate past what numbers hold; the prompt it stopped at is kept."""
    config = small(
        models=["exact:beta-bernoulli"],
        utilities=["dyck"],
        methods=["ppt-rb-analytic(samples=50,rate=1e308)"],
        lengths=[5],
        seeds=1,
    )
    assert run_sweep(config, tmp_path / "runs").statuses == {"diverged": 1}
    (record,) = RunStore.open(tmp_path / "runs").records()[0]
    assert record["status"] == record["result"]["stop_reason"] == "diverged"
    assert len(record["result"]["prompt"]) == 5


def test_a_refused_retry_forgets_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def bad(y):\n    raise ValueError\n")
    config = small(models=["exact:urn"], utilities=["./mine.py:bad"], methods=["coordinate"])
    run_sweep(config, Path("runs"))
    names = RunStore.open(Path("runs")).names()
    for wrong in ({"workers": 0}, {"device": "tpu"}, {"batch_size": 7}):
        with pytest.raises(InputError):
            run_sweep(config, Path("runs"), retry_failed=True, **wrong)
    assert RunStore.open(Path("runs")).names() == names


def test_a_batch_of_a_killed_process_is_not_solved_again(tmp_path, monkeypatch):
    """Its journal is there when another process, already at work, comes to claim it."""
    out = tmp_path / "runs"
    config = small(models=["exact:urn"], lengths=[3])
    solved = []

    def crash(folder, files):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_each", crash)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(config, out, batch_size=BATCH)
    work = batches(expand(config).runs, BATCH)
    # the other process dies after this one has looked
    monkeypatch.setattr(RunStore, "recover", lambda self: [])
    Runner(RunStore.open(out), work, {}, "cpu", Report(finished=solved.extend)).run()
    assert len(solved) == 12 - BATCH


def test_a_killed_creation_is_taken_up(tmp_path):
    (tmp_path / "runs" / "runs").mkdir(parents=True)
    config = small(models=["exact:urn"], lengths=[3])
    assert run_sweep(config, tmp_path / "runs").finished


def test_a_store_keeps_the_size_of_its_batches(tmp_path):
    config = small(models=["exact:urn"], lengths=[3])
    run_sweep(config, tmp_path / "runs", batch_size=5)
    with pytest.raises(InputError, match="batches of 4: those here are of 5"):
        run_sweep(config, tmp_path / "runs", batch_size=4)
    run_sweep(config, tmp_path / "runs")
    assert RunStore.open(tmp_path / "runs").batch_size == 5


def test_what_is_added_joins_what_was_there(tmp_path):
    first, second = small(lengths=[3]), small(lengths=[4])
    run_sweep(first, tmp_path / "runs")
    run_sweep(second, tmp_path / "runs", extend=True)
    opened = RunStore.open(tmp_path / "runs")
    assert outcome(opened, expand(opened.config())).statuses == {"done": TOTAL}
    assert run_sweep(first, tmp_path / "runs").finished, "the first is part of it still"


def test_a_function_that_changes_while_the_sweep_runs_stops_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = Path("mine.py")
    source.write_text("def score(y):\n    return y[0]\n")
    config = small(models=["exact:urn"], utilities=["./mine.py:score"], methods=["coordinate"])

    def meddle(_records):
        source.write_text("def score(y):\n    return 1000\n")

    with pytest.raises(InputError, match=r"mine.py:score has changed since"):
        run_sweep(config, Path("runs"), batch_size=BATCH, report=Report(finished=meddle))
    values = [r["result"]["expected_utility"] for r in RunStore.open(Path("runs")).records()[0]]
    assert 1 <= len(values) <= BATCH and max(values) <= 1
    run_sweep(config, Path("runs"))
    rows = read_rows(Path("runs"))
    assert min(row["expected_utility"] for row in rows) > 999
    assert len(list(Path("runs/quarantine").iterdir())) == len(values), "nothing is thrown away"
    other = {**rows[0], "run": "another", "utility_fingerprint": "another"}
    with pytest.raises(InputError, match="run twice, with another utility_fingerprint"):
        Cells([*rows, other])


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


def test_banks_that_no_model_ships_are_drawn_once_and_read_once(tmp_path, monkeypatch):
    config = small(models=["exact:urn"], methods=["ppt-rb(samples=64,rollout-length=30,steps=5)"])
    read, unpack = [], drawn.unpack
    monkeypatch.setattr(drawn, "unpack", lambda path: read.append(path) or unpack(path))

    def half(records):
        if len(list((tmp_path / "runs" / "runs").iterdir())) > 3 * BATCH and records:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # drawn, so none of its batches reads it
        run_sweep(config, tmp_path / "runs", batch_size=BATCH, report=Report(finished=half))
    own = tmp_path / "runs" / "banks"
    assert own not in [path.parent for path in read]
    run_sweep(config, tmp_path / "runs", batch_size=BATCH)
    assert [path.parent for path in read].count(own) == 1, "by the first batch of another process"
    (bank,) = (tmp_path / "runs" / "banks").glob("*.safetensors")
    costs = {
        record["result"]["cost"]["bank_tokens"]
        for record in RunStore.open(tmp_path / "runs").records()[0]
    }
    assert costs == {64 * 29} and bank.stat().st_size > 0


def _until_killed():
    threading.Event().wait()


def _shared_sweep(out):
    """Past its first batch it waits for another process to have solved one: they share the work
    however the machine shares its cores."""
    sessions = Path(out) / "sessions"

    def wait(_records):
        shared = wait_for(lambda: len(list(sessions.glob("[!.]*.json"))) > 1, lambda: True, CEILING)
        assert shared, "no other process has solved anything"

    run_sweep(small(), Path(out), batch_size=BATCH, report=Report(finished=wait))


def _killed_sweep(out, seeds, moment):
    """16 runs a seed, in batches of two. Past its moment it waits to be killed."""
    finished = []

    def wait(records):
        finished.extend(records)
        if moment is not None and len(finished) > moment.runs:
            _until_killed()

    def half(folder, files):
        write_each(folder, dict(list(files.items())[: len(files) // 2]))
        _until_killed()

    write_each = store.write_each
    if moment is not None and moment.committing:
        store.write_each = half
    run_sweep(small(seeds=seeds), Path(out), batch_size=BATCH, report=Report(finished=wait))


def _forks():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posteer.sweeps.execution", "sweeps"])
    return context


class Child:
    """A sweep in a process forked from one that has imported all it needs."""

    def __init__(self, out, seeds, moment=None):
        self.process = _forks().Process(
            target=_killed_sweep, args=(str(out), seeds, moment), daemon=True
        )
        self.process.start()

    def running(self):
        return self.process.is_alive()

    def kill(self):
        self.process.kill()
        self.process.join()

    def wait(self):
        self.process.join()


@pytest.mark.parametrize(("kills", "seeds"), [(6, 1), pytest.param(50, 9, marks=pytest.mark.long)])
def test_kills_lose_nothing_and_repeat_nothing(tmp_path, kills, seeds):
    """A third of them half-way through a commit, the others up to 50 ms after some runs are in the
    store. A life is of two batches at most, of one and a third on average: of the eight a seed
    brings some are left at the last kill, so none comes too late."""
    out, alone = tmp_path / "runs", tmp_path / "alone"
    Child(alone, seeds).wait()
    chance = random.Random(3)
    moments = [
        Moment(committing=True)
        if kill % 3 == 2
        else Moment(BATCH * (kill % 2), delay=chance.uniform(0, 0.05))
        for kill in range(kills)
    ]
    audit = kill_often(lambda moment: Child(out, seeds, moment), out, moments, CEILING)
    assert audit.clean, audit
    assert audit.kills == audit.killed_at_work == kills
    assert audit.runs == 16 * seeds
    assert different_results(out, alone) == []
    assert different_tables(out, alone) == []


class Vandal:
    """Does no work; harms a finished store as it is killed for the second time."""

    deaths = 0

    def __init__(self, out, harm):
        self.out, self.harm = out, harm

    def running(self):
        return True

    def kill(self):
        type(self).deaths += 1
        if type(self).deaths == 2:
            self.harm(sorted((self.out / "runs").glob("*.json"))[0])

    def wait(self):
        pass


@pytest.mark.parametrize("harm", ["lost", "changed", "solved"])
def test_the_audit_can_fail(finished, tmp_path, harm):
    """A run that goes or is written again between two looks is found, and one solved twice."""
    out = tmp_path / "runs"
    shutil.copytree(finished, out)

    def do(path):
        if harm == "lost":
            path.unlink()
        elif harm == "changed":
            path.write_bytes(path.read_bytes() + b" ")
        else:
            shutil.copy(next((out / "sessions").glob("*.json")), out / "sessions" / "again.json")

    class Own(Vandal):
        pass

    audit = kill_often(lambda _moment: Own(out, do), out, [Moment()] * 3, CEILING)
    assert not audit.clean
    assert (len(audit.lost), len(audit.changed)) == (harm == "lost", harm == "changed")
    assert (audit.solved > audit.runs > 0) == (harm == "solved")


def test_eight_processes_on_one_store(finished, tmp_path):
    out = tmp_path / "runs"
    processes = [_forks().Process(target=_shared_sweep, args=(str(out),)) for _ in range(8)]
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
