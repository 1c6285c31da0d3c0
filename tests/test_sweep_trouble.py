"""What goes wrong around a sweep: damage, full disks, other versions. One line, nothing lost."""

import json
import os
import resource
import subprocess
import sys

import pytest
from sweeps import BATCH, SMALL, small, toml

from posteer.core.errors import InputError
from posteer.core.sealing import read_sealed, write_sealed
from posteer.sweeps.execution import outcome, run_sweep
from posteer.sweeps.runner import Report
from posteer.sweeps.runs import expand
from posteer.sweeps.store import RunStore


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"done"', b'"dane"'),
        lambda data: b"",
        lambda data: b"[1, 2]",
    ],
)
def test_damaged_files_are_set_aside_named_and_run_again(tmp_path, harm):
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


def test_a_damaged_bank_is_drawn_again(tmp_path):
    config = small(models=["exact:urn"], methods=["ppt-rb(samples=64,rollout-length=30,steps=5)"])
    run_sweep(config, tmp_path / "runs")
    (bank,) = (tmp_path / "runs" / "banks").glob("*.safetensors")
    whole = bank.read_bytes()
    bank.write_bytes(whole[:100])
    for path in sorted((tmp_path / "runs" / "runs").iterdir())[:3]:
        path.unlink()
    told = []
    run_sweep(config, tmp_path / "runs", report=Report(warn=told.append))
    assert len(told) == 1 and "drawn again" in told[0]
    assert bank.stat().st_size == len(whole)


@pytest.mark.parametrize("content", [b"[1]", b"{", b""])
def test_a_damaged_journal_is_set_aside_and_named(tmp_path, content):
    config = small(models=["exact:urn"], lengths=[3])
    run_sweep(config, tmp_path / "runs")
    (tmp_path / "runs" / "commits" / "abc.json").write_bytes(content)
    told = []
    assert run_sweep(config, tmp_path / "runs", report=Report(warn=told.append)).finished
    assert len(told) == 1 and "abc.json is damaged" in told[0]


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
    facts = read_sealed(out / "sweep.json")
    write_sealed(out / "sweep.json", {**facts, **change})
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
