"""A store, or a file of results, may come from anybody: nothing in it is run, nothing is written
outside of it, and what is not as we write it is named in one line."""

import hashlib
import json
import os
import shutil

import pytest
from sweeps import SMALL, small, toml

from posteer.cli import main
from posteer.core.errors import InputError
from posteer.core.files import sha256
from posteer.core.sealing import (
    checksum,
    dump,
    opened,
    read_sealed,
    sealed,
    write_sealed,
    write_sums,
)
from posteer.sweeps import parquet
from posteer.sweeps.execution import run_sweep, standing
from posteer.sweeps.histories import pack
from posteer.sweeps.mending import set_damaged_aside
from posteer.sweeps.records import DamagedError, seal, unseal
from posteer.sweeps.results import consolidate, load_results, read_histories, read_sweep
from posteer.sweeps.runner import Report
from posteer.sweeps.runs import name_of
from posteer.sweeps.store import RunStore

TINY = {"models": ["exact:urn"], "lengths": [3], "seeds": 2}
TOTAL = 8


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "runs"
    run_sweep(small(**TINY), out, batch_size=2)
    consolidate(out)
    return out


@pytest.fixture
def store(finished, tmp_path):
    return RunStore.open(shutil.copytree(finished, tmp_path / "runs"))


def call(capsys, *words):
    try:
        main(list(map(str, words)))
        status = 0
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def refused(capsys, *words):
    status, out, err = call(capsys, *words)
    lines = [line for line in err.splitlines() if line.startswith("posteer:")]
    assert status == 2 and out == "" and len(lines) == 1, err
    return lines[0]


def change(store, **facts):
    path = store.folder / "sweep.json"
    write_sealed(path, {**read_sealed(path), **facts})


# --- code and names ------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["models", "utilities"])
def test_no_command_that_reads_runs_what_only_the_store_names(store, tmp_path, capsys, axis):
    ran = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nf = lambda y: 0.0\n")
    grid = dict(store.manifest()["configuration"]["grids"][0])
    grid[axis] = [f"{tmp_path}/evil.py:f"]
    change(store, configuration={"name": "x", "grids": [grid]})
    assert call(capsys, "sweep", "status", "--out", store.folder)[0] == 0
    assert "code is not run" in refused(capsys, "sweep", "retry", "--failed", "--out", store.folder)
    refused(capsys, "tables", store.folder)
    (tmp_path / "mine.toml").write_text(toml(**{**SMALL, **TINY}))
    plan = ["sweep", "plan", "--config", tmp_path / "mine.toml", "--out", store.folder]
    assert call(capsys, *plan)[0] == 0
    run = ["sweep", "--config", tmp_path / "mine.toml", "--out", store.folder, "--extend"]
    assert call(capsys, *run)[0] == 0
    assert not ran.exists()


def test_status_from_the_store_alone_is_that_of_the_sweep(store):
    there = standing(store.contents())
    assert there.statuses == {"done": TOTAL} and there.total == TOTAL
    next(store.runs.iterdir()).unlink()
    assert standing(store.contents()).to_json()["left"] == 1


@pytest.mark.parametrize("name", ["x/../../../victim.sh", "../victim.sh", "/victim.sh", "a.json"])
def test_a_forged_journal_writes_nothing(store, tmp_path, name):
    victim = tmp_path / "victim.sh"
    victim.write_text("mine")
    key = name.replace("/victim.sh", str(victim)) if name.startswith("/") else name
    (store.commits / f"{'0' * 64}.json").write_text(json.dumps({key: "theirs"}))
    before = {p for p in tmp_path.rglob("*") if "quarantine" not in p.parts}
    told = store.recover()
    assert len(told) == 1 and "is damaged: set aside" in told[0]
    assert victim.read_text() == "mine"
    assert {p for p in tmp_path.rglob("*") if "quarantine" not in p.parts} <= before


def test_a_journal_with_one_bad_run_is_solved_again(store):
    paths = sorted(store.runs.iterdir())[:2]
    texts = {path.name: path.read_text() for path in paths}
    for path in paths:
        path.unlink()
    texts[paths[0].name] = texts[paths[0].name].replace("done", "dane")
    (store.commits / f"{'0' * 64}.json").write_text(json.dumps(texts))
    assert len(store.recover()) == 1 and len(store.names()) == TOTAL - 2


# --- what is not as we write it ------------------------------------------------------------------

DEEP = "[" * 100_000
RECORDS = [
    ("nan", lambda r: r["result"].update(expected_utility=float("nan"))),
    ("no configuration", lambda r: r.pop("configuration")),
    ("no status", lambda r: r.pop("status")),
    ("other status", lambda r: r.update(status="perfect")),
    ("no result", lambda r: r.update(result=None)),
    ("a text", lambda r: r["result"].update(expected_utility="much")),
    ("no utility", lambda r: r["result"].update(expected_utility=None)),
    ("no prompt", lambda r: r["result"].update(prompt=[])),
    ("a truth", lambda r: r["configuration"].update(length=True)),
    ("more", lambda r: r["configuration"].update(more=1)),
    ("cost", lambda r: r["result"].update(cost={"forward_tokens": "1"})),
    ("seconds", lambda r: r.update(seconds={"a": "b"})),
    ("history", lambda r: r.update(history={"a": 3})),
    ("origin", lambda r: r["provenance"].update(posteer=3)),
    ("a list", lambda r: r.update(provenance=[])),
]


def forged(record):
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    whole = {**record, "checksum": hashlib.sha256(text.encode()).hexdigest()}
    return json.dumps(whole).encode()


@pytest.mark.parametrize("harm", [one[1] for one in RECORDS], ids=[one[0] for one in RECORDS])
def test_a_sealed_record_of_something_else_is_set_aside(store, capsys, harm):
    """A checksum anybody can make."""
    name = sorted(store.names())[0]
    record = store.read(name)
    harm(record)
    name = name_of(record["configuration"]) if "configuration" in record else name
    (store.runs / f"{name}.json").write_bytes(forged(record))
    assert name in refused(capsys, "tables", store.folder)
    status, _, err = call(capsys, "sweep", "status", "--out", store.folder)
    assert status == 0 and f"runs/{name}.json is damaged" in err
    told = set_damaged_aside(store)
    assert len(told) == 1 and name in told[0]


@pytest.mark.parametrize(
    "content", [DEEP, '{"checksum": NaN}', '{"a": 1e999, "checksum": ""}', "1" * 5000, "\xff"]
)
def test_a_run_that_is_no_json_is_set_aside(store, capsys, content):
    path = sorted(store.runs.iterdir())[0]
    path.write_text(content)
    assert path.stem in refused(capsys, "tables", store.folder)
    assert len(set_damaged_aside(store)) == 1
    with pytest.raises(DamagedError):
        unseal(content.encode(), path.stem)


def test_pipes_are_named_and_not_waited_for(store, capsys):
    run = sorted(store.runs.iterdir())[0]
    session = sorted(store.sessions.iterdir())[0]
    for path in (run, session, store.commits / f"{'0' * 64}.json"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    assert run.stem in refused(capsys, "tables", store.folder)
    told = [*store.recover(), *set_damaged_aside(store)]
    assert len(told) == 3
    (store.folder / "sweep.json").unlink()
    os.mkfifo(store.folder / "sweep.json")
    said = refused(capsys, "sweep", "status", "--out", store.folder)
    assert "not a plain file: the sweep's command, run again, makes it anew" in said
    run_sweep(small(**TINY), store.folder, report=Report())
    assert call(capsys, "sweep", "status", "--out", store.folder)[0] == 0


# --- sweep.json ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        "{",
        "[1]",
        "",
        '{"format": "posteer-runs-1", "version": "1", "batch": -1, "configuration": {}}',
        '{"format": "posteer-runs-1", "version": "1", "batch": true, "configuration": {}}',
        '{"format": "posteer-runs-1", "version": "1", "batch": 2, "configuration": {"a": 1}}',
        '{"format": "posteer-runs-1", "version": 1, "batch": 2}',
    ],
)
def test_a_damaged_sweep_is_refused_by_readers_and_made_anew_by_its_command(store, capsys, content):
    whole = (store.folder / "sweep.json").read_bytes()
    (store.folder / "sweep.json").write_text(content)
    for words in (["sweep", "status", "--out"], ["tables"]):
        said = refused(capsys, *words, store.folder)
        assert "sweep.json is damaged" in said
        assert "the sweep's command, run again, makes it anew" in said
    told, solved = [], []
    report = Report(warn=told.append, finished=solved.extend)
    run_sweep(small(**TINY), store.folder, report=report)
    assert len(told) == 1 and "made anew of the command and 8 runs" in told[0] and solved == []
    assert (store.folder / "sweep.json").read_bytes() == whole, "the size of batches with it"


def test_runs_that_the_command_does_not_name_stay_in_a_sweep_that_is_made_anew(store):
    (store.folder / "sweep.json").write_text("{")
    run_sweep(small(**{**TINY, "seeds": 1}), store.folder, report=Report())
    assert len(read_sweep(store.folder).rows) == TOTAL == read_sweep(store.folder).total


def test_a_sweep_of_an_earlier_version_is_read_as_it_is_and_said_to_be(store, capsys):
    facts = read_sealed(store.folder / "sweep.json")
    del facts["versions"]
    (store.folder / "sweep.json").write_text(json.dumps(facts))
    status, _, err = call(capsys, "tables", store.folder)
    assert status == 0 and "has no seal: read unchecked" in err
    assert run_sweep(small(**TINY), store.folder).finished


# --- tables --------------------------------------------------------------------------------------


def test_tables_count_this_sweep_alone_and_say_how_much_of_it_there_is(store, tmp_path, capsys):
    other = tmp_path / "other"
    run_sweep(small(**{**TINY, "lengths": [4], "seeds": 1}), other)
    for path in sorted((other / "runs").iterdir())[:2]:
        shutil.copy(path, store.runs)
    record = store.read(sorted(store.names())[0])
    aged = {**record, "provenance": {**record["provenance"], "posteer": "0.0"}}
    (store.runs / f"{name_of(aged['configuration'])}.json").write_bytes(seal(aged))
    found = read_sweep(store.folder)
    mine = [name for name in store.names() if name not in found.strangers]
    assert len(found.strangers) == 3 and found.total == TOTAL
    assert {row["run"] for row in found.rows} == set(mine)
    for path in sorted(store.runs / f"{name}.json" for name in mine)[:2]:
        path.unlink()
    left = len(mine) - 2
    status, _, err = call(capsys, "tables", store.folder)
    assert status == 0 and f"{left} of {TOTAL} runs" in err and "left out" in err
    consolidate(store.folder)
    words = ["tables", store.folder / "results.parquet", "--json"]
    status, out, err = call(capsys, *words)
    assert (json.loads(out)["runs"], json.loads(out)["of"]) == (left, TOTAL)
    assert f"{left} of {TOTAL} runs" in err


def test_a_parquet_file_without_its_columns_is_one_line(store, capsys, tmp_path):
    import pyarrow
    from pyarrow import parquet as plain

    table = plain.read_table(store.folder / "results.parquet")
    names = table.column_names
    cases = {
        "no length": table.drop_columns(["length"]),
        "no utility": table.drop_columns(["expected_utility"]),
        "texts": table.set_column(
            names.index("length"), "length", pyarrow.array(["a"] * len(table))
        ),
        "gaps": table.set_column(
            names.index("seed"), "seed", pyarrow.array([None] * len(table), "int64")
        ),
        "nan": table.set_column(
            names.index("expected_utility"),
            "expected_utility",
            pyarrow.array([float("nan")] * len(table)),
        ),
        "facts": table.replace_schema_metadata({"posteer": DEEP}),
        "other facts": table.replace_schema_metadata({"posteer": '{"configuration": 3}'}),
    }
    for name, one in cases.items():
        path = tmp_path / "one.parquet"
        plain.write_table(one, path)
        assert "one.parquet" in refused(capsys, "tables", path), name


def test_histories_that_are_cut_are_one_line(store, capsys):
    path = store.folder / "results.parquet"
    histories = read_histories(path)
    for cut in (lambda h: {k: v[: len(v) // 2] if k == "ess" else v for k, v in h.items()},):
        kinds = {"run": "string"} | dict.fromkeys(("ess", "surrogate", "value"), "list")
        rows = [{"run": run, **cut(one)} for run, one in histories.items()]
        parquet.write(rows, kinds, path.with_suffix(".histories.parquet"))
        assert "cut short" in refused(capsys, "tables", path, "--figures")
    path.with_suffix(".histories.parquet").write_bytes(b"PAR1")
    assert "not a Parquet file" in refused(capsys, "tables", path, "--figures")
    path.with_suffix(".histories.parquet").unlink()
    os.mkfifo(path.with_suffix(".histories.parquet"))
    assert "not a plain file" in refused(capsys, "tables", path, "--figures")
    name = next(n for n in sorted(store.names()) if "ess" in store.read(n)["history"])
    record = store.read(name)
    for bad in ("!", pack([1.0, 2.0])[:-3], ""):
        record["history"]["ess"] = bad
        (store.runs / f"{name}.json").write_bytes(seal(record))
        assert name in refused(capsys, "tables", store.folder, "--figures")


def test_files_of_results_are_sealed_and_old_ones_listed_beside(store, tmp_path, capsys):
    from pyarrow import parquet as plain

    old = tmp_path / "old.parquet"
    plain.write_table(plain.read_table(store.folder / "results.parquet"), old)
    status, _, err = call(capsys, "tables", old)
    assert status == 0 and "old.parquet is of an earlier version and has no seal" in err
    write_sums(tmp_path / "SHA256SUMS", {"old.parquet": sha256(old)})
    assert "no seal" not in call(capsys, "tables", old)[2]
    frame = load_results(old)
    assert len(frame) == TOTAL
    data = bytearray(old.read_bytes())
    data[300] ^= 1
    old.write_bytes(bytes(data))
    assert "its SHA-256 is not that in" in refused(capsys, "tables", old)
    write_sums(tmp_path / "SHA256SUMS", {"other.parquet": "0" * 64})
    assert "is not listed in" in refused(capsys, "tables", old)
    (tmp_path / "SHA256SUMS").write_text("what?\n")
    assert "SHA256SUMS is damaged" in refused(capsys, "tables", old)


def test_checksums_are_of_one_text():
    assert dump({"b": 1, "a": [1.5]}) == '{"a":[1.5],"b":1}'
    assert checksum({"a": 1}) == checksum(json.loads('{ "a" : 1 }'))
    with pytest.raises(InputError, match="checksum does not match"):
        opened({**sealed({"a": 1}), "a": 2}, "it")
