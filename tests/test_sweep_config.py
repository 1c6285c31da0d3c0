"""A sweep's configuration and what it expands to."""

from pathlib import Path

import pytest
from sweeps import SMALL, small, toml

from posteer.core.errors import InputError
from posteer.sweeps.configuration import config_from, differences, read_config
from posteer.sweeps.presets import preset
from posteer.sweeps.results import read_rows
from posteer.sweeps.runs import batches, expand


def test_the_papers_sweep_is_5100_runs():
    runs = expand(preset("paper")).runs
    assert len(runs) == len({run.name for run in runs}) == 5100
    assert {run.method.partition("(")[0] for run in runs} == {
        "gcg",
        "ppt",
        "ppt-rb",
        "ppt-analytic",
        "ppt-rb-analytic",
    }
    assert {(run.length, run.horizon) for run in runs} == {(6, 4), (50, 4)}
    assert {run.seed for run in runs} == set(range(10))


def test_toml_and_its_defaults(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'lengths = [3]\nseeds = 2\n[[grid]]\nmodels = "exact:urn"\nutilities = ["dyck"]\n'
        'methods = ["coordinate"]\n[[grid]]\nmodels = ["exact:beta-bernoulli"]\n'
        'utilities = ["dyck", "frequency(0.3)"]\nmethods = ["coordinate"]\nseeds = [7]\n'
    )
    config = read_config(path)
    assert config.name == "mine"
    runs = expand(config).runs
    assert [(r.model, r.utility, r.seed) for r in runs] == [
        ("exact:urn", "dyck", 0),
        ("exact:urn", "dyck", 1),
        ("exact:beta-bernoulli", "dyck", 7),
        ("exact:beta-bernoulli", "frequency(0.3)", 7),
    ]
    assert config_from(config.to_json(), "again") == config


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("modles = ['urn']", "unknown key 'modles'"),
        ("models = ['urn']\nutilities = ['dyck']", "'methods' is missing"),
        (toml(models=["urn"], utilities=["dyck"], methods=["gcg"], lengths="six"), "lengths 'six'"),
        (toml(models=[], utilities=["dyck"], methods=["gcg"]), "not empty"),
        (toml(models=["urn", "urn"], utilities=["dyck"], methods=["gcg"]), "given twice"),
        (toml(models=["urn"], utilities=["dyck"], methods=["gcg"], seeds=0), "seeds 0"),
        (toml(models=["urn"], utilities=["dyck"], methods=["gcg"], lengths=[0]), "lengths 0"),
        (toml(models=["urn"], utilities=["dyck"], methods=["gcg"], horizons=[-1]), "horizons -1"),
        (
            toml(models=["urn"], utilities=["dyck"], methods=["gcg"], seeds=[10**30]),
            "at most 4611686018427387903",
        ),
        (toml(models=["urn"], utilities=["dyck", "dyck "], methods=["gcg"]), "given twice"),
        (toml(models=["urn"], utilities=["dyck"], methods=["gcg"], max_model_tokens=-5), "-5"),
        ("grid = []", "expected tables"),
        (toml(models=["urn"], utilities=["dyck"], methods=["gcg"], seeds=10**9), "1,000,000"),
        ("models = [", "not TOML"),
        (
            toml(models=["urn"], utilities=["dyck"], methods=["gcg"])
            + "\nbanks = {coin = 'x.safetensors'}",
            "a bank for 'coin'",
        ),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, text, complaint):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as refused:
        read_config(path)
    assert "bad.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"models": ["exact:nothing"]}, "unknown process"),
        ({"utilities": ["dick"]}, "unknown utility"),
        ({"methods": ["ppt-rb(stepps=3)"]}, "unknown setting 'stepps'"),
        ({"methods": ["nothing"]}, "unknown method"),
    ],
)
def test_unknown_names_are_refused_before_anything_runs(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        expand(small(**changes))


def test_a_name_stands_for_all_that_decides_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = Path("mine.py")
    source.write_text("def score(y):\n    return y[0]\n")
    one = expand(small(utilities=["./mine.py:score"])).runs
    assert [r.name for r in one] == [
        r.name for r in expand(small(utilities=["./mine.py:score"])).runs
    ]
    source.write_text("def score(y):\n    return y[1]\n")
    other = expand(small(utilities=["./mine.py:score"])).runs
    assert not {r.name for r in one} & {r.name for r in other}, "an edited function is another"
    spaced = small(methods=["ppt-rb-analytic( steps=12, samples=60 )", "coordinate"])
    assert {r.name for r in expand(spaced).runs} == {r.name for r in expand(small()).runs}
    named = small(utilities=["dyck ", "frequency( .30 )"], models=["exact: urn", MODELS[1]])
    assert {r.name for r in expand(named).runs} == {r.name for r in expand(small()).runs}


MODELS = SMALL["models"]


def test_the_committed_runs_have_the_names_of_the_papers_sweep():
    """Names are hashes of configurations: what was run once is found again by later versions."""
    kept = read_rows(Path(__file__).parent.parent / "docs" / "records" / "paper.parquet")
    assert {row["run"] for row in kept} == {run.name for run in expand(preset("paper")).runs}


def test_batches_depend_on_the_sweep_alone():
    runs = expand(small()).runs
    cut = batches(runs, 4)
    assert [b.key for b in cut] == [b.key for b in batches(runs, 4)]
    assert sorted(r.name for b in cut for r in b.runs) == sorted(r.name for r in runs)
    for batch in cut:
        assert len(batch.runs) <= 4
        assert len({run.group for run in batch.runs}) == 1


def test_goals_that_start_alike_are_in_one_batch():
    """Then prompts that they try alike are read once."""
    wide = small(utilities=["dyck", "frequency(0.1)", "frequency(0.3)"], seeds=4)
    for batch in batches(expand(wide).runs, 3):
        assert len({run.seed for run in batch.runs}) == 1
        assert len({run.utility for run in batch.runs}) == 3


def test_differences_are_told_axis_by_axis():
    assert differences(small(), small()) == []
    told = differences(small(seeds=2, lengths=[3, 9]), small())
    assert told == ["lengths: without 4", "lengths: with 9", "seeds: without 2"]
