"""Bad input at every door: refused alike, in one line, and taken alike."""

import ast
import inspect
import io
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from refusals import ONE, refused

import posteer
from posteer import InputError
from posteer.banks.checks.report import CheckSettings
from posteer.cli import main
from posteer.core.spec import parse_spec, within
from posteer.families.markov.prompt_classes import prompt_classes
from posteer.methods.protocol import Request
from posteer.models import open_model
from posteer.models.transformer.network import Architecture
from posteer.sweeps import execution
from posteer.sweeps.configuration import Grid, SweepConfig, config_from
from posteer.sweeps.execution import run_sweep
from posteer.tokens.contexts import ContextSpace
from posteer.training.plan import make_plan

# --- bounds: the same at the command line, in a configuration and in Python ---------------------


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("length", 10**7, "at most 1000000"),
        ("horizon", 10**9, "at most 10000"),
        ("seed", 10**19, "at most 4611686018427387903"),
        ("seed", 10**41, "more than 40 digits"),
    ],
)
def test_numbers_out_of_bounds_are_refused_at_every_door(name, value, complaint, capsys):
    asked = {"length": 3, name: value}
    with pytest.raises(InputError, match=complaint):
        Request(model="exact:urn", utility="dyck", **asked)
    if value < 10**40:
        assert complaint in refused(capsys, "elicit", f"--{name}", str(value))
        with pytest.raises(InputError, match=complaint):
            config_from({**ONE, f"{name}s": [value]}, "x.toml")
    if name != "length":
        with pytest.raises(InputError, match=complaint):
            posteer.evaluate("exact:urn", "dyck", "01", **{name: value})


@pytest.mark.parametrize("text", ["6.7", "2.5", "0.5", "1e3", "0x10", "", "six", "\u0663", "1_0"])
def test_what_is_no_whole_number_is_not_rounded(text, capsys):
    for option in (["elicit", "--length"], ["elicit", "--seed"], ["compare", "--seeds"]):
        assert "expected a whole number" in refused(capsys, *option, text)
    for option in ("--rollouts", "--length", "--chunk"):
        assert "expected a whole number" in refused(capsys, "sample", "--check", option, text)


def test_draws_and_trainings_have_bounds(capsys, tmp_path):
    draw = ["sample", "--model", "exact:urn", "--check"]
    assert "at most 1000000" in refused(capsys, *draw, "--length", "9" * 30)
    assert "at most 10000000" in refused(capsys, *draw, "--rollouts", str(10**15))
    with pytest.raises(InputError, match="40000 probabilities each: expected at most 3355"):
        posteer.sample("exact:markov(vocab=200,order=1)", rollouts=10**6, length=9)
    train = ["train", "--preset", "tiny", "--out", str(tmp_path / "run")]
    assert "peak <= 100" in refused(capsys, *train, "--peak-rate", "1e38")
    assert "at most 1000000000" in refused(capsys, *train, "--steps", str(2**63))
    sweep = ["--preset", "small", "--workers", str(10**30)]
    assert "workers" in refused(capsys, "sweep", *sweep, "--out", str(tmp_path / "runs"))
    assert "at most 1024" in refused(capsys, "sweep", "plan", *sweep)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="parameters"):
        Architecture(vocab_size=2, order=0, layers=10**5, width=8192, heads=1, feedforward=8192)
    with pytest.raises(InputError, match="length 0"):
        make_plan("tiny", None, {}, {"length": 0})


def test_a_sweep_is_bounded_as_a_whole():
    half = {**ONE, "seeds": 1000, "lengths": list(range(2, 602))}
    assert config_from(half, "x.toml").grids[0].size == 600_000
    with pytest.raises(InputError, match=r"x.toml: 1,200,000 runs: expected at most 1,000,000"):
        config_from({**half, "grid": [{"horizons": 3}, {"horizons": 4}]}, "x.toml")
    grid = Grid(
        models=("exact:urn",), utilities=("dyck",), methods=("beam",), lengths=(6,) * 60_000
    )
    with pytest.raises(InputError, match="runs"):
        SweepConfig(name="api", grids=(grid, grid))
    for wrong in ({"lengths": (0,)}, {"horizons": (10**15,)}, {"max_model_tokens": 0}):
        with pytest.raises(InputError):
            Grid(models=("exact:urn",), utilities=("dyck",), methods=("beam",), **wrong)


def test_cells_that_can_never_succeed_are_refused_before_anything_runs(tmp_path, capsys):
    never = {**ONE, "methods": ["beam", "gcg"]}
    out = tmp_path / "runs"
    with pytest.raises(InputError, match=r"exact:urn, dyck, length 6.*gcg: needs gradients"):
        run_sweep(config_from(never, "x.toml"), out, device="cpu")
    path = tmp_path / "never.toml"
    path.write_text('models = "exact:urn"\nutilities = "dyck"\nmethods = "gcg"\nseeds = 1\n')
    assert "gcg: needs gradients" in refused(capsys, "sweep", "plan", "--config", str(path))
    assert not out.exists()


@pytest.mark.parametrize("line", [["--preset", "magic"], ["--batch", "1.5"], ["--config", "none"]])
def test_the_module_of_sweeps_refuses_as_the_command_does(line, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        execution.main([*line, "--out", str(tmp_path / "runs")])
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.startswith("posteer: ") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- specifications -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("f(" + "[" * 3000 + "]" * 3000 + ")", "brackets more than 32 deep"),
        ("f(" + "(" * 3000 + ")" * 3000 + ")", "brackets more than 32 deep"),
        ("f(" + "9" * 5000 + ")", "cannot read '9999"),
        ("f(" + "9" * 41 + ")", "more than 40 digits"),
        ("f(1e999)", "not a finite number"),
        ("f" * 2**21, "too long"),
    ],
)
def test_hostile_specifications_are_refused_in_a_short_line(text, complaint):
    with pytest.raises(InputError, match=complaint) as refusal:
        parse_spec(text)
    assert len(str(refusal.value)) < 500


def test_long_specifications_are_read_once():
    """Work, not seconds: steps of the parser for a text and for one four times as long."""

    def work(n):
        steps = 0

        def count(frame, event, argument):
            nonlocal steps
            ours = frame.f_code.co_filename.endswith("spec.py")
            steps += ours and event == "line"
            return count if ours else None

        text = "f(" + ",".join(["[0.5,0.5]"] * n) + ")"
        sys.settrace(count)
        try:
            spec = parse_spec(text)
        finally:
            sys.settrace(None)
        assert len(spec.arguments) == n
        return steps

    assert work(40) < 4.4 * work(10)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (["--model", "unr"], "did you mean urn?"),
        (["--model", "exact:makrov"], "did you mean markov?"),
        (["--method", "exhautive"], "did you mean exhaustive?"),
        (["--utility", "dick"], "did you mean dyck?"),
        (["--method", "gcg(top_k=0)"], "did you mean top-k?"),
        (["--model", "urn", "--method", "gcg(top-k=0)"], "top-k 0: expected at least 1"),
        (["--model", "exact:markov(2,1)"], "only settings, as in vocab=.., order=.., conc"),
        (["--model", "exact:markov(concentration=1e308)"], "concentration 1e+308: expected 1e-12"),
        (["--model", "exact:markov(concentration=1e-320)"], "expected 1e-12 to 1e+12"),
        (["--allowed", "count(1)<=99999999999999999999"], "at most 18 digits"),
    ],
)
def test_refusals_say_what_was_meant(line, complaint, capsys):
    assert complaint in refused(capsys, "elicit", *line)


@pytest.mark.parametrize("method", ["exhaustive", "beam", "random(prompts=2)", "coordinate"])
def test_no_possible_prompt_is_said(method, capsys):
    line = ["--model", "exact:coins(1.0)", "--allowed", "first=0", "--length", "3"]
    assert "is possible under exact:coins(1.0)" in refused(
        capsys, "elicit", *line, "--method", method
    )


@pytest.mark.parametrize(("vocab", "order"), [(30, 1), (1000, 0)])
def test_classes_of_a_large_vocabulary_are_given_up_within_memory(vocab, order):
    tracemalloc.start()
    assert prompt_classes(ContextSpace(vocab, order), 6, order) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30


def test_a_climb_over_a_large_vocabulary_is_refused_with_a_size_that_fits():
    with pytest.raises(InputError, match=r"5000 latents over 1000 tokens.*samples=2268"):
        posteer.elicit("exact:markov(vocab=1000)", "frequency(0.3)", length=6)


# --- the same types everywhere ------------------------------------------------------------------


def test_names_and_objects_are_taken_by_every_door():
    urn = open_model("exact:urn")
    by_name = posteer.expected_utility("exact:urn", "dyck", [0, 1, 0, 1], 4)
    by_object = posteer.expected_utility(
        urn, posteer.open_utility("dyck", urn), torch.tensor([[0, 1, 0, 1]]), np.int64(4)
    )
    assert torch.equal(by_name.expected_utility, by_object.expected_utility)
    both = posteer.expected_utility("exact:urn", "dyck", ["0101", "0011"], 4, device="auto")
    assert both.expected_utility[0] == by_name.expected_utility[0]
    field = posteer.landscape("exact:urn", "dyck", 4, 4, allowed="first=1")
    assert field.n_prompts == 8
    bank = posteer.sample("exact:urn", rollouts=64, length=64, device=torch.device("cpu"))
    estimate = posteer.estimate_from_bank(bank, "dyck", "0101", 4)
    assert estimate.shape == (1,)
    assert posteer.check_filter("exact:urn", bank, CheckSettings(effort=0.1)).p_values


@pytest.mark.parametrize("prompt", [[True, False], [0.0, 1.0], [0, 2], [], "", None, 5, [[0], [1]]])
def test_prompts_that_are_none_are_refused(prompt):
    with pytest.raises(InputError):
        posteer.evaluate("exact:urn", "dyck", prompt)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": 5},
        {"bank": 5},
        {"context": [0.5]},
        {"context": 7},
        {"device": 5},
        {"allowed": 5},
        {"allowed": lambda prompt: 1 / 0},
        {"allowed": lambda prompt: sys.exit(0)},
        {"utility": 5},
        {"model": 5},
    ],
)
def test_what_no_request_can_mean_is_refused(wrong):
    with pytest.raises(InputError):
        posteer.elicit(**{"model": "exact:urn", "utility": "dyck", "length": 3, **wrong})


def test_what_a_request_can_mean_is_taken():
    more = {"context": None, "device": torch.device("cpu"), "method": "beam"}
    assert posteer.elicit("exact:urn", "dyck", length=np.int64(3), **more).length == 3


def test_a_model_given_as_an_object_is_moved():
    moved = []

    class Movable(type(open_model("exact:urn"))):
        def to(self, device):
            moved.append(device)
            return self

    given = Movable(open_model("exact:urn").prior)
    posteer.evaluate(given, "dyck", "0101", device="cpu")
    posteer.elicit(given, "dyck", length=3, method="beam", device="cpu")
    assert moved == ["cpu", "cpu"]
    posteer.expected_utility(given, "dyck", "0101", 4, device=None)
    assert moved == ["cpu", "cpu"], "with None it stays where it is"
    posteer.expected_utility(given, "dyck", "0101", 4)
    assert len(moved) == 3


# --- what is shown ------------------------------------------------------------------------------


def test_utilities_of_any_size_are_shown_or_refused(tmp_path, capsys):
    (tmp_path / "u.py").write_text(
        "def huge(y):\n    return 1e308\ndef tiny(y):\n    return 1e-320 * sum(y)\n"
    )
    line = ["--model", "exact:urn", "--length", "3"]
    methods = ["--methods", "random(prompts=2)", "--seeds", "2"]
    huge, tiny = (["--utility", f"{tmp_path}/u.py:{name}"] for name in ("huge", "tiny"))
    assert "of at most 1e+100 in size" in refused(capsys, "compare", *line, *huge, *methods)
    main(["elicit", *line, *tiny, "--method", "ppt-rb-analytic(samples=20,steps=2)"])
    main(["compare", *line, *tiny, *methods])
    coins = ",".join(["0.5"] * 5)
    main(["elicit", "--model", f"exact:coins({coins})", "--length", "3"])
    assert "prompt" in capsys.readouterr().out


def test_output_that_cannot_show_our_characters_shows_others(tmp_path):
    line = ["elicit", "--length", "3", "--method", "ppt-rb-analytic(samples=20,steps=9)"]
    done = subprocess.run(
        [sys.executable, "-m", "posteer.cli", *line],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"expected utility" in done.stdout


def test_what_is_reported_early_and_takes_long_is_shown(monkeypatch):
    from posteer.views.terminal import panels

    shown = threading.Event()
    monkeypatch.setattr(panels.Progress, "start", lambda self: shown.set())
    monkeypatch.setattr(panels, "PATIENCE_SECONDS", 0.01)
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(panels, "time", clock)  # as far as reports can tell, no time passes
    with panels.delayed_progress() as report:
        report("thinking", 0, 10)
        assert shown.wait(60)


def test_a_log_is_told_of_work_that_reports_nothing(monkeypatch):
    from posteer.views.terminal import panels

    lines, told = [], threading.Event()

    def heard(_console, line):
        lines.append(line)
        if line.startswith("thinking: 3 of at most 1,000, "):
            told.set()

    monkeypatch.setattr(panels.Console, "print", heard)
    monkeypatch.setattr(panels.Console, "is_terminal", False)
    monkeypatch.setattr(panels, "SECONDS_BETWEEN_LINES", 0.001)
    with panels.delayed_progress() as report:
        while not lines:
            told.wait(0.001)
        report("thinking", 3, 1000)
        assert told.wait(60)
    assert lines[0].startswith("at work, ")


def test_refusals_name_arguments_in_python_and_options_on_the_command_line(capsys):
    with pytest.raises(InputError, match=r"^`save_bank`: beam draws none$"):
        posteer.elicit("exact:urn", "dyck", length=4, method="beam", save_bank="x")
    assert "posteer: --save-bank: beam draws none" in refused(
        capsys, "elicit", "--length", "4", "--method", "beam", "--save-bank", "x"
    )
    assert "--prompt" in refused(capsys, "evaluate", "0101")
    assert "./file.py:name" in refused(capsys, "elicit", "--model", "unr")


def test_no_refusal_of_the_library_names_an_option():
    """Only the command line has them; `core.errors.in_options` writes them there."""
    home = Path(posteer.__file__).parent
    for path in home.rglob("*.py"):
        if path.relative_to(home).parts[0] in ("cli", "views") or path.name == "execution.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "require",
                "InputError",
            ):
                said = " ".join(
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
                assert not re.search(r"(?<![\w-])--[a-z]", said), (path, said)


def test_every_door_has_the_same_default_device():
    doors = (posteer.expected_utility, posteer.landscape, posteer.check_filter, posteer.evaluate)
    doors += (posteer.elicit, posteer.elicit_many, posteer.compare, posteer.sample)
    for door in (*doors, posteer.load, posteer.open_model):
        assert inspect.signature(door).parameters["device"].default == "auto", door


def test_within_names_the_range():
    assert within(np.int64(3), "n", 1, 5) == 3
    for wrong in (0, 6, 2.0, True, "3", None, torch.tensor([1, 2])):
        with pytest.raises(InputError, match="n "):
            within(wrong, "n", 1, 5)


def test_hostile_names_are_shown_on_one_printable_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    said = refused(capsys, "elicit", "--model", "a\x1b[31m\nb\0c")
    assert said[:-1].isprintable() and "\\x1b[31m" in said
    assert "no file can be called so" in refused(capsys, "sample", "--out", "a\0b")
