"""How a sweep is split over workers, and that every method says what it will take."""

import json

import pytest
from sweeps import SMALL, small, toml

from posteer.cli import main
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.executors import EXECUTORS, run_here
from posteer.sweeps.forecast import Forecast, forecast
from posteer.sweeps.runs import RunConfig
from posteer.sweeps.splitting import batch_for, path_of, split_of
from posteer.sweeps.store import RunStore


def group(runs, seconds, memory=1e9):
    return Forecast("urn", "beam", 6, runs, seconds, memory, 0.0)


def test_batches_are_cut_so_that_they_go_round():
    assert batch_for(5100, 1, 20) == 20 and batch_for(5100, 4, 20) == 20
    assert batch_for(5100, 1000, 20) == 3 and batch_for(10, 1000, 20) == 1


@pytest.mark.parametrize("n", [1, 2, 7, 255, 1000])
def test_every_worker_comes_by_every_batch(n):
    assert path_of(n, 0, 1) == (0, 1), "one alone goes from the first to the last"
    for worker in range(9):
        begin, stride = path_of(n, worker, 9)
        assert {(begin + at * stride) % n for at in range(n)} == set(range(n))


def test_equal_batches_take_their_share_and_the_longest_bounds_all():
    """80 batches of a second by eight are ten seconds; one of 60 s is 60 s, however many help."""
    even = split_of([group(80, 80.0)], 1, 8, "local", 8)
    assert even.seconds == pytest.approx(10.0) and even.batches == 80 and even.busy == 8
    one = split_of([group(80, 80.0), group(20, 60.0, 3e9)], 20, 100, "ray", 100)
    assert one.seconds == one.longest == pytest.approx(60.0)
    assert (one.batches, one.busy, one.bytes_a_worker) == (5, 5, 3e9)
    assert split_of([group(4, 8.0)], 1, 4, "local", 1).seconds == pytest.approx(8.0)


def test_what_some_group_does_not_say_is_not_made_up():
    split = split_of([group(8, 1.0), group(8, None)], 4, 2, "local", 2)
    assert split.seconds is None and split.longest is None and split.batches == 4


def test_a_command_of_many_workers_cuts_smaller_batches(tmp_path):
    EXECUTORS.add("one", run_here)
    try:
        run_sweep(small(methods=["coordinate"]), tmp_path, workers=4, executor="one")
    finally:
        EXECUTORS.remove("one")
    assert RunStore.open(tmp_path).batch_size == 3  # of 24 runs, two batches for each


def test_a_plan_says_how_work_is_split(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(toml(**SMALL | {"methods": ["coordinate", "beam"]}))
    line = ["sweep", "plan", "--config", str(tmp_path / "mine.toml"), "--executor", "shared"]
    main([*line, "--workers", "3", "--json"])
    split = json.loads(capsys.readouterr().out)["split"]
    assert (split["executor"], split["workers"], split["batches"]) == ("shared", 3, 8)
    assert split["bytes_a_worker"] > 1e8 and split["seconds"] >= split["longest"] > 0
    main([*line, "--workers", "9", "--batch", "20"])
    told = capsys.readouterr().out
    assert "8 batches of at most 20 runs by shared" in told and "1 workers have none" in told
    assert "a worker at most" in told
    with pytest.raises(SystemExit):
        main([*line[:-1], "clod"])
    assert "unknown executor 'clod'" in capsys.readouterr().err


OWN = """
def law(tokens):
    return [[0.5, 0.5] for _ in tokens]
law.vocab_size, law.order = 2, 1
"""


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("auto", "exact:beta-bernoulli"),
        ("classes-analytic(samples=40)", "exact:beta-bernoulli"),
        ("beam", "./own.py:law"),
        ("ppt-rb(samples=40,steps=20)", "./own.py:law"),
        ("classes(samples=40)", "./own.py:law"),
    ],
)
def test_every_method_foretells(tmp_path, monkeypatch, method, model):
    """Of a model of one's own too, whose prior nobody knows."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    what = {"model": model, "model_fingerprint": "", "utility": "dyck", "utility_fingerprint": None}
    how = {"length": 4, "horizon": 4, "method": method, "seed": 0, "bank": None}
    (found,) = forecast([RunConfig(**what, **how, max_model_tokens=None)], 20, "cpu")
    assert found.seconds is not None and found.seconds > 0
