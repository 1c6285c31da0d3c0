"""What a newcomer asks first: help, lists of names, completion, docstrings, a progress bar."""

import inspect
import json
import os
import shlex
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

import posteer
from posteer.cli import app, main
from posteer.core.errors import InputError
from posteer.core.progress import Progress
from posteer.core.showing import SHOWN
from posteer.core.spec import settings_of
from posteer.goals.utilities import UTILITIES
from posteer.methods.registry import METHODS
from posteer.views.catalogue import (
    METHOD_WORDS,
    SETTING_WORDS,
    UTILITY_WORDS,
    methods_in_words,
    utilities_in_words,
)
from posteer.views.terminal.catalogue import show_catalogue

SMALL = "classes-analytic(samples=50,estimator=importance)"


def commands(of, path=()):
    """Every command and its subcommands."""
    for name in of:
        if not name.startswith("-"):
            yield (*path, name), of[name]
            yield from commands(of[name], (*path, name))


COMMANDS = dict(commands(app))


def test_all_commands_are_there():
    assert {("methods",), ("utilities",), ("completion",), ("sweep", "plan")} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_every_option_says_what_it_is_for(path):
    command = COMMANDS[path]
    assert command.help
    silent = [
        argument.name
        for argument in command.assemble_argument_collection()
        if argument.show and not argument.parameter.help
    ]
    assert silent == []


CATALOGUE = {
    entry["name"]: entry
    for entry in [*methods_in_words(METHODS.names()), *utilities_in_words(UTILITIES.names())]
}


def test_every_name_is_listed_with_its_settings_in_words():
    assert METHOD_WORDS.keys() == set(METHODS.names())
    assert UTILITY_WORDS.keys() == set(UTILITIES.names())
    used = set()
    for entry in CATALOGUE.values():
        assert entry["about"] and entry["example"]
        for setting in entry["settings"]:
            assert setting["about"], (entry["name"], setting["name"])
            used.add(setting["name"])
    assert used == SETTING_WORDS.keys()
    settings = {setting["name"]: setting for setting in CATALOGUE["frequency"]["settings"]}
    assert settings["target"]["required"] and settings["token"]["default"] == 1
    assert settings_of(lambda spec: None, "mute") == {}


QUICK = {name for name in CATALOGUE if name not in ("auto", "classes", "classes-analytic")}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CATALOGUE if name not in QUICK]


@pytest.mark.parametrize("name", [*sorted(QUICK - UTILITY_WORDS.keys()), "forward-xent", *SLOW])
def test_examples_run(name, capsys):
    """As they are shown, and with the name they are for."""
    line = shlex.split(CATALOGUE[name]["example"])
    assert line[0] == "posteer" and any(name in word for word in line)
    main([*line[1:], "--json", "--device", "cpu"])
    assert json.loads(capsys.readouterr().out)["prompt"]


@pytest.mark.parametrize("name", UTILITY_WORDS)
def test_examples_of_utilities_run(name, capsys):
    line = shlex.split(CATALOGUE[name]["example"])
    quick = [] if "--method" in line else ["--method", "beam(width=2)"]
    main([*line[1:], *quick, "--json"])
    assert json.loads(capsys.readouterr().out)["utility"].startswith(name)


def test_lists_in_a_terminal(capsys):
    screen = StringIO()
    show_catalogue(methods_in_words(["gcg"]), Console(file=screen, width=100))
    text = screen.getvalue()
    assert text.startswith("gcg  ") and "top-k=1" in text and "--method 'gcg(steps=20)'" in text
    main(["utilities"])
    told = capsys.readouterr().out
    assert "0 being ( and 1 being )" in told.replace("\n", " ") and "target (required)" in told
    with pytest.raises(SystemExit):
        main(["methods", "gcgg"])
    assert "did you mean gcg?" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell, capsys):
    main(["completion", shell])
    script = capsys.readouterr().out
    for word in ("elicit", "sweep", "max-model-tokens", "plan"):
        assert word in script


def test_bash_completes(tmp_path, capsys):
    """The script in a real shell: what can follow `posteer ut` and `posteer elicit --hor`."""
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    ask = "source ./script; COMP_WORDS=(posteer {}); COMP_CWORD={}; _posteer; "
    ask += 'echo "${{COMPREPLY[@]}}"'
    for words, wanted in (("ut", "utilities"), ("elicit --hor", "--horizon")):
        line = ask.format(words, len(words.split()))
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
        assert wanted in done.stdout.split(), done


def test_the_package_runs_as_a_module():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-m", "posteer", "--version"]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == posteer.__version__, done.stderr


def test_names_can_be_completed_in_a_notebook():
    public = [name for name in dir(posteer) if not name.startswith("_")]
    assert sorted(public) == sorted(posteer.__all__)
    found = posteer.elicit("exact:urn", "dyck", length=3, method="exhaustive")
    assert {"prompt", "expected_utility", "rank", "cost", "plot"} <= set(dir(found))
    assert all(hasattr(found, name) for name in dir(found))
    judged = posteer.evaluate("exact:urn", "dyck", "010")
    assert {"rank", "optimum", "to_json"} <= set(dir(judged))
    assert all(hasattr(judged, name) for name in dir(judged))


DOORS = ["elicit", "elicit_many", "elicit_batch", "evaluate", "compare", "sample", "check_filter"]


@pytest.mark.parametrize("name", [*DOORS, "Request"])
def test_help_explains_every_parameter(name):
    door = getattr(posteer, name)
    told = inspect.cleandoc(door.__doc__).partition("Args:\n")[2]
    for parameter in inspect.signature(door).parameters:
        (line,) = [line for line in told.splitlines() if line.startswith(f"    {parameter}: ")]
        assert len(line) > 15


def test_methods_are_compared_with_auto_unless_named():
    assert inspect.signature(posteer.compare).parameters["methods"].default[0] == "auto"
    argument = COMMANDS["compare",].assemble_argument_collection()["--methods"]
    assert argument.field_info.default.split(",")[0] == "auto"


class Bar:
    """A bar that remembers what it is told."""

    def __init__(self):
        self.reports, self.open = [], None

    def __call__(self):
        return self

    def __enter__(self) -> Progress:
        self.open = True
        return lambda *told: self.reports.append(told)

    def __exit__(self, *_):
        self.open = False


CALLS = {
    "elicit": lambda told: posteer.elicit(
        "exact:urn", "dyck", length=3, method="random(prompts=4)", progress=told
    ),
    "many": lambda told: posteer.elicit_many(
        "exact:urn", ["dyck"], length=3, method="random(prompts=4)", progress=told
    ),
    "compare": lambda told: posteer.compare(
        "exact:urn", "dyck", length=3, methods=["random(prompts=4)"], seeds=1, progress=told
    ),
    "evaluate": lambda told: posteer.evaluate("exact:urn", "dyck", "010", progress=told),
    "sample": lambda told: posteer.sample("exact:urn", rollouts=9, length=9, progress=told),
}


@pytest.fixture
def bar():
    own, ours = SHOWN["progress"], Bar()
    SHOWN.remove("progress")
    SHOWN.add("progress", ours)
    yield ours
    SHOWN.remove("progress")
    SHOWN.add("progress", own)


@pytest.mark.parametrize("door", CALLS)
def test_progress_is_a_bar_a_function_or_nothing(door, bar):
    heard = []
    CALLS[door](True)
    assert bar.open is False
    CALLS[door](lambda *told: heard.append(told))
    assert heard == bar.reports
    assert CALLS[door](False) is not None
    with pytest.raises(InputError, match="progress 3: expected True or a function"):
        CALLS[door](3)


def test_the_bar_itself_opens_and_closes():
    with SHOWN["progress"]() as report:
        report("a step", 1, 2)


@pytest.mark.parametrize(
    "line", ["methods", "utilities", "models", "methods --json", "--help", "completion bash"]
)
def test_a_reader_that_goes_away_is_no_fault(line):
    """As in `posteer methods | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "posteer", *line.split()]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_command_without_an_output_is_no_fault():
    """As in `posteer methods >&-`, and as some that start programs leave it."""
    closed = f"exec {sys.executable} -m posteer utilities >&-"
    done = subprocess.run(["sh", "-c", closed], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
