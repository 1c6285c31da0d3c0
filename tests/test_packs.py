"""Large sweeps keep runs in packs: joined as they come, whole at every moment, the same tables."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from kills import different_results, different_tables
from sweeps import small

from posteer.core.leases import Terms
from posteer.sweeps import packs, store
from posteer.sweeps.execution import in_short, run_sweep, standing
from posteer.sweeps.mending import set_damaged_aside
from posteer.sweeps.packs import Packs, packed, read_index
from posteer.sweeps.results import consolidate, read_rows
from posteer.sweeps.runner import Report
from posteer.sweeps.runs import batches, expand
from posteer.sweeps.store import RunStore

CONFIG = {"models": ["exact:urn"], "methods": ["coordinate"], "lengths": [3], "seeds": 12}
TOTAL = 24


@pytest.fixture(scope="module")
def loose(tmp_path_factory):
    """The sweep as a file per run."""
    out = tmp_path_factory.mktemp("packs") / "loose"
    run_sweep(small(**CONFIG), out, batch_size=1, device="cpu")
    return out


@pytest.fixture(autouse=True)
def large(monkeypatch, loose):
    """From now on the sweep is a large one, and three packs are many."""
    monkeypatch.setattr(store, "MOST_LOOSE", 3)
    monkeypatch.setattr(packs, "FAN", 3)
    monkeypatch.setattr(packs, "GROWTH", 4)


def committed(out, loose, terms=None):
    """A store into which every batch of the loose one is committed, and how to do so."""
    opened = RunStore.create(out, small(**CONFIG), 1, terms=terms)
    records = dict(RunStore(loose).scan())

    def commit(batch):
        with opened.claim_batch(batch.key) as mine:
            assert mine
            opened.finish(batch.key)
            left = [run.name for run in batch.runs if not opened.has(run.name)]
            return not left or opened.commit(batch.key, [records[name] for name in left])

    return opened, commit


def work():
    return batches(expand(small(**CONFIG)).runs, 1)


@pytest.mark.parametrize("executor", ["local", "shared"])
def test_a_large_sweep_has_few_files_and_the_same_results(loose, tmp_path, executor):
    out, solved = tmp_path / "runs", []
    report = Report(finished=solved.extend)
    ended = run_sweep(small(**CONFIG), out, batch_size=1, executor=executor, report=report)
    assert ended.statuses == {"done": TOTAL} and len(solved) == TOTAL
    assert not list((out / "runs").iterdir()) and len(list((out / "packs").iterdir())) <= 7
    assert different_results(out, loose) == different_tables(out, loose) == []
    again = []
    run_sweep(small(**CONFIG), out, report=Report(finished=again.extend), executor=executor)
    assert again == []
    assert standing(RunStore.open(out).contents(in_short)) == ended
    consolidate(out)
    assert len(read_rows(out / "results.parquet")) == TOTAL


class Killed(BaseException):
    pass


CHANGES = ("rename", "replace", "unlink")


@pytest.mark.parametrize("leased", [False, True])
def test_killed_at_any_change_of_the_folder_nothing_is_lost(loose, tmp_path, monkeypatch, leased):
    """Before each of them in turn, over and over, until every batch is in: what was committed is
    there after each death, and only what was under way is tried again."""
    out, work_left, done, deaths = tmp_path / "runs", work(), set(), 0
    clock = iter(range(0, 10**9, 100)).__next__  # every lease is over at the second look
    real = {name: getattr(os, name) for name in CHANGES}
    until = 1
    while work_left:
        opened, commit = committed(out, loose, Terms(10.0, clock) if leased else None)
        assert done <= opened.names()
        left = [until]

        def counting(change, left=left):
            def counted(*given, **more):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return change(*given, **more)

            return counted

        with monkeypatch.context() as patched, contextlib.suppress(Killed):
            for name, change in real.items():
                patched.setattr(os, name, counting(change))
            while work_left:
                with contextlib.suppress(AssertionError):  # seen for the first time
                    if commit(work_left[0]):
                        done |= {run.name for run in work_left.pop(0).runs}
        deaths += bool(work_left)
        until = until % 23 + 1
    names = RunStore.open(out).names()
    assert len(names) == TOTAL and deaths >= 10
    assert different_results(out, loose) == []


def test_who_reads_while_packs_are_joined_sees_every_run(loose, tmp_path):
    """The reader has listed packs that are gone when it comes to them."""
    out = tmp_path / "runs"
    writer, commit = committed(out, loose)
    all_work = work()
    for batch in all_work[:8]:
        commit(batch)
    reader = RunStore(out)
    before = reader.names()
    scanned = reader.scan()
    seen = {next(scanned)[0]}
    for batch in all_work[8:]:
        commit(batch)
    seen |= {name for name, _ in scanned}
    assert len(before) == 8 and before <= seen
    held = sorted(before)[0]
    assert RunStore(out).read(held) == reader.read(held) == writer.read(held)


def one_pack(loose, out, at=-1):
    """A store with everything in packs, and the largest of them."""
    opened, commit = committed(out, loose)
    for batch in work():
        commit(batch)
    return opened, sorted((out / "packs").iterdir(), key=lambda path: path.stat().st_size)[at]


def test_a_damaged_run_in_a_pack_is_set_aside_named_and_run_again(loose, tmp_path):
    out = tmp_path / "runs"
    _, pack = one_pack(loose, out)
    data = bytearray(pack.read_bytes())
    at = data.index(b'"done"')
    data[at + 1 : at + 5] = b"dane"
    pack.write_bytes(data)
    told, solved = [], []
    report = Report(warn=told.append, finished=solved.extend)
    assert run_sweep(small(**CONFIG), out, report=report).finished
    assert len(told) == len(solved) == 1 and "is damaged" in told[0]
    (kept,) = (out / "quarantine").iterdir()
    assert b'"dane"' in kept.read_bytes()
    assert different_results(out, loose) == []


@pytest.mark.parametrize("harm", ["index", "cut"])
def test_a_pack_without_its_index_gives_what_is_whole(loose, tmp_path, harm):
    out = tmp_path / "runs"
    _, pack = one_pack(loose, out)
    with pack.open("rb") as file:
        held = len(read_index(file, "it").places)
    data = pack.read_bytes()
    pack.write_bytes(data.replace(b'"names"', b'"nimes"', 1) if harm == "index" else data[:-9])
    fresh = RunStore(out)
    told = set_damaged_aside(fresh)
    assert len(told) == 1 and pack.stem in told[0] if harm == "index" else len(told) == 1
    lost = 0 if harm == "index" else 1
    assert len(RunStore(out).names()) == TOTAL - lost and held > 1
    solved = []
    run_sweep(small(**CONFIG), out, report=Report(finished=solved.extend))
    assert len(solved) == lost and different_results(out, loose) == []


def test_failed_runs_in_packs_are_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import os\n"
        "def bad(y):\n"
        "    if not os.path.exists('mended'):\n        raise ValueError('not today')\n"
        "    return y[1]\n"
    )
    config = small(**CONFIG | {"seeds": 4, "utilities": ["dyck", "./mine.py:bad"]})
    assert run_sweep(config, Path("runs"), batch_size=2).statuses == {"done": 4, "failed": 4}
    Path("mended").touch()
    assert run_sweep(config, Path("runs"), retry_failed=True).statuses == {"done": 8}
    shutil.rmtree("runs")


def test_a_pack_tells_what_it_is(tmp_path):
    name = "a" * 64
    (tmp_path / "one.pack").write_bytes(packed({name: b"what it says\n"}))
    found = Packs(tmp_path)
    found.refresh()
    assert found.read(name) == b"what it says\n" and found.damaged == {}
    with pytest.raises(FileNotFoundError):
        found.read("b" * 64)
    (tmp_path / "two.pack").write_bytes(b"{}")
    (tmp_path / "three.pack").write_bytes(b"")
    found.refresh()
    assert set(found.damaged) == {"two.pack", "three.pack"}


def test_a_file_of_many_groups_has_the_rows_of_the_folder(loose, tmp_path, monkeypatch):
    """Rows come pack by pack; they are held a few at a time, and sorted as columns."""
    from posteer.sweeps import parquet

    out = tmp_path / "runs"
    _, commit = committed(out, loose)
    for batch in work():
        assert commit(batch)
    whole = consolidate(out).read_bytes()
    assert read_rows(out / "results.parquet") == read_rows(out)
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 5)
    assert consolidate(out).read_bytes() == whole, "however few are held"
    monkeypatch.setattr(parquet, "ROWS_IN_A_GROUP", 7)
    assert parquet.library().read_metadata(consolidate(out)).num_row_groups == 4
    assert read_rows(out / "results.parquet") == read_rows(out)
