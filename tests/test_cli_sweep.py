"""`posteer sweep` and `posteer tables` as people and machines use them."""

import json
import re
import shlex
from pathlib import Path

import pytest
from sweeps import SMALL, toml

from posteer.cli import main


def call(capsys, *words):
    """Exit status, standard output, standard error."""
    try:
        main(list(words))
        status = 0
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("cli")
    (where / "mine.toml").write_text(toml(**{**SMALL, "seeds": 2}))
    main(["sweep", "--config", str(where / "mine.toml"), "--out", str(where / "runs"), "--json"])
    return where


def test_the_plan_says_what_it_takes_and_starts_nothing(folder, capsys, tmp_path):
    words = ["sweep", "plan", "--config", str(folder / "mine.toml"), "--out", str(tmp_path / "no")]
    status, out, _ = call(capsys, *words, "--json")
    plan = json.loads(out)
    assert status == 0 and plan["runs"] == 32 and plan["finished"] == 0
    assert "models: without beta-bernoulli, urn" in plan["differs_from_paper"]
    assert sum(group["runs"] for group in plan["groups"]) == 32
    assert all(group["seconds"] > 0 for group in plan["groups"])
    assert all(group["bytes_in_memory"] > 0 for group in plan["groups"])
    assert not (tmp_path / "no").exists()
    words[-1] = str(folder / "runs")
    assert json.loads(call(capsys, *words, "--json")[1])["finished"] == 32
    status, out, _ = call(capsys, *words)
    assert status == 0 and "differs from paper" in out and "32 of them finished" in out


def test_the_papers_plan_differs_in_nothing(capsys):
    from posteer.sweeps.configuration import differences
    from posteer.sweeps.presets import preset

    assert differences(preset("paper"), preset("paper")) == []
    assert differences(preset("own-context"), preset("paper")) != []


def test_status_and_tables(folder, capsys):
    status, out, _ = call(capsys, "sweep", "status", "--out", str(folder / "runs"), "--json")
    assert status == 0
    assert json.loads(out) == {
        "schema_version": 1,
        "runs": 32,
        "done": 32,
        "diverged": 0,
        "failed": 0,
        "left": 0,
        "errors": {},
    }
    status, out, _ = call(capsys, "tables", str(folder / "runs"))
    assert status == 0
    assert "### exact-urn-J" in out and "Methods against each other" in out
    written = {path.name for path in (folder / "runs" / "tables").iterdir()}
    assert {"exact-urn-J.md", "exact-urn-J.tex", "exact-urn-J.csv"} <= written
    where = str(folder / "runs" / "results.parquet")
    status, out, _ = call(capsys, "tables", where, "--out", str(folder / "other"), "--json")
    assert status == 0 and len(json.loads(out)["files"]) == len(written)


def test_figures_of_a_sweep(folder, capsys):
    """A sweep on other models than the paper's has none of its figures, and says so."""
    status, out, _ = call(capsys, "tables", str(folder / "runs"), "--figures")
    assert status == 0 and "0 figures" in out


def test_failed_runs_are_an_exit_status_and_a_way_on(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def bad(y):\n    raise ValueError('never')\n")
    changed = {**SMALL, "utilities": ["./mine.py:bad"], "models": ["exact:urn"], "seeds": 1}
    (tmp_path / "mine.toml").write_text(toml(**changed))
    status, out, _ = call(capsys, "sweep", "--config", "mine.toml", "--out", "runs")
    assert status == 1
    assert "4 failed" in out and "never" in out and "sweep retry --failed --out runs" in out
    assert call(capsys, "sweep", "retry", "--out", "runs")[0] == 2
    words = ["sweep", "retry", "--failed", "--out", "runs", "--json"]
    status, _, err = call(capsys, *words)
    assert status == 2 and "runs mine.py:bad: expected --config" in err
    status, _, err = call(capsys, *words, "--config", "mine.toml")
    assert status == 1 and err.count("again:") == 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["sweep", "--out", "x"], "expected --preset NAME"),
        (["sweep", "--preset", "papr", "--out", "x"], "unknown preset 'papr'"),
        (["sweep", "--config", "none.toml", "--out", "x"], "'none.toml': there is no such"),
        (["sweep", "--preset", "small", "--out", "x", "--workers", "0"], "workers 0"),
        (["sweep", "--preset", "small", "--out", "x", "--batch", "0"], "batches of 0"),
        (["sweep", "plan", "--preset", "small", "--workers", "0"], "workers 0"),
        (["tables", "file"], "not a Parquet file"),
        (["sweep", "status", "--out", "x"], "'x': there is no such folder"),
        (["sweep", "status", "--out", "."], "no sweep was run here"),
        (["tables", "x"], "'x': there is no such folder"),
        (["sweep", "--preset", "small", "--out", "file/x"], "Not a directory"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    words, complaint, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    status, _, err = call(capsys, *words)
    assert status == 2
    lines = [line for line in err.splitlines() if line.startswith("posteer:")]
    assert len(lines) == 1 and complaint in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_as_pasted(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parent.parent / "docs" / "SWEEPS.md").read_text()
    section = text.partition("## Your own")[2].partition("## What is kept")[0]
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", section.partition("frame =")[0], re.DOTALL))
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(blocks["python"])
    Path("mine.toml").write_text(blocks["toml"])
    for line in blocks["sh"].splitlines():
        assert call(capsys, *shlex.split(line)[1:])[0] == 0, line
    status, out, _ = call(capsys, "sweep", "status", "--out", "runs/mine", "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["runs"], found["done"]) == (20, 20)
