"""Models and goals in a user's file: called as they were typed, executed once in a call."""

import hashlib
import json
from dataclasses import replace

import pytest
from refusals import refused
from sweeps import small

import posteer
from posteer.banks import load_bank
from posteer.cli import main
from posteer.core import InputError
from posteer.core.calls import one_call
from posteer.core.userfiles import object_from_file
from posteer.models import open_model
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.results import read_rows

WRAPPED = """import posteer
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(2, 2)

    def forward(self, ids):
        return self.table(ids).cumsum(1)

class Urn:
    vocab_size, order, name = 2, 0, "calls itself so"
    inner = posteer.open_model("exact:beta-bernoulli")

    def start(self, batch):
        return self.inner.start(batch)

    def advance(self, state, tokens):
        return self.inner.advance(state, tokens)

def predict(tokens):
    return [[0.9, 0.1]] * len(tokens)

torch.manual_seed(0)
module, urn, wrapped_urn = posteer.wrap(Net().eval()), Urn(), posteer.wrap(Urn())
function = posteer.wrap(predict, vocab_size=2, order=0)
exact = posteer.open_model("exact:urn")
"""
NAMES = ("module", "urn", "wrapped_urn", "function", "exact")


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "m2.py").write_text(WRAPPED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_results_call_a_model_as_it_was_typed(name, here, capsys):
    typed = f"./m2.py:{name}"
    line = ["--model", typed, "--length", "3", "--method", "coordinate"]
    main(["elicit", *line, "--json"])
    assert json.loads(capsys.readouterr().out)["model"] == typed
    main(["elicit", *line])
    assert f"from {typed}" in capsys.readouterr().out
    main(["evaluate", "--model", typed, "--prompt", "010", "--json"])
    assert json.loads(capsys.readouterr().out)["model"] == typed


def test_banks_and_sweeps_call_a_model_as_it_was_typed(here, capsys):
    main(["sample", "--model", "./m2.py:module", "--rollouts", "20", "--length", "9", "--out", "b"])
    assert "./m2.py:module" in capsys.readouterr().out
    assert load_bank("b").origin.model == "./m2.py:module"
    config = small(models=["m2.py:module"], methods=["coordinate"], lengths=[3], seeds=[0])
    run_sweep(config, here / "runs", device="cpu")
    assert {row["model"] for row in read_rows(here / "runs")} == {"m2.py:module"}


def test_a_name_that_is_given_is_what_a_model_is_called(here):
    class Own:
        vocab_size, order, name = 2, 0, "own"
        inner = posteer.open_model("exact:beta-bernoulli")

        def start(self, batch):
            return self.inner.start(batch)

        def advance(self, state, tokens):
            return self.inner.advance(state, tokens)

    named, plain = posteer.wrap(Own(), name="mine"), posteer.wrap(Own())
    assert (named.name, plain.name) == ("mine", "own")
    assert named.fingerprint == plain.fingerprint, "banks drawn before serve"


def test_banks_know_a_wrapped_model_as_before(here):
    """Its name in the file, its vocabulary and its order; before that, the file's content too."""
    model = open_model("./m2.py:function")
    assert model.fingerprint == hashlib.sha256(b"function 2 0").hexdigest()
    content = hashlib.sha256(WRAPPED.encode() + b"function").hexdigest()
    earlier = hashlib.sha256(f"predict 2 0{content}".encode()).hexdigest()
    drawn = posteer.sample(model, rollouts=20, length=9)
    old = replace(drawn, probe=None, origin=replace(drawn.origin, fingerprint=earlier))
    by = {"length": 3, "method": "classes(estimator=importance)"}
    assert posteer.elicit("./m2.py:function", "dyck", bank=old, **by).prompt
    other = replace(old, origin=replace(drawn.origin, fingerprint="0" * 64))
    with pytest.raises(InputError, match=r"not .*\./m2\.py:function|drawn from"):
        posteer.elicit("./m2.py:function", "dyck", bank=other, **by)


# --- executed once -------------------------------------------------------------------------------

COUNTING = """from pathlib import Path
import posteer
from helper import WORTH

with Path("executed.txt").open("a") as log:
    log.write("x")
asked = []

def predict(tokens):
    asked.append(len(tokens))
    return [[0.5, 0.5]] * len(tokens)

predict.vocab_size, predict.order = 2, 0
model = posteer.wrap(predict)

def score(y):
    assert asked, "the model of another execution was asked"
    return WORTH * y[0]

def other(y):
    return -score(y)
"""


@pytest.fixture
def both(tmp_path, monkeypatch):
    (tmp_path / "f.py").write_text(COUNTING)
    (tmp_path / "helper.py").write_text("WORTH = 1.0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def executed(folder):
    return len((folder / "executed.txt").read_text())


@pytest.mark.parametrize("name", ["predict", "model"])
def test_a_file_of_a_model_and_a_goal_is_executed_once(name, both, capsys):
    line = ["--model", f"./f.py:{name}", "--utility", f"{both}/f.py:score", "--length", "3"]
    main(["elicit", *line, "--method", "exhaustive", "--json"])
    assert json.loads(capsys.readouterr().out)["expected_utility"] == pytest.approx(0.5)
    assert executed(both) == 1
    main(["compare", *line, "--methods", "random,exhaustive", "--seeds", "1", "--json"])
    assert executed(both) == 2


def test_all_that_one_call_opens_is_of_one_execution(both):
    goals = ["f.py:score", "f.py:other"]
    found = posteer.elicit_many("f.py:model", goals, length=3, method="exhaustive")
    assert [one.expected_utility for one in found] == pytest.approx([0.5, -0.5])
    assert executed(both) == 1
    config = small(models=["f.py:model"], utilities=goals, methods=["coordinate"], seeds=[0])
    run_sweep(config, both / "runs", device="cpu")
    assert executed(both) == 2


@pytest.mark.parametrize("changed", ["f.py", "helper.py"])
def test_a_file_that_changes_in_between_is_read_again(changed, both):
    (both / "f.py").write_text(COUNTING + "BASE = 1.0\n")
    with one_call():
        first, _ = object_from_file("f.py:model")
        again, _ = object_from_file(f"{both}/f.py:model")
        assert again is first and executed(both) == 1
        (both / changed).write_text((both / changed).read_text().replace("1.0", "2.0"))
        score, _ = object_from_file("f.py:score")
        assert executed(both) == 2
        names = score.__globals__
        assert 2.0 in (names["BASE"], names["WORTH"])


def test_a_neighbour_that_is_imported_late_and_changes_is_read_again(both):
    text = "def score(y):\n    from helper import WORTH\n    return WORTH * y[0]\n"
    (both / "f.py").write_text(text)
    found = []
    with one_call():
        for worth in ("1.0", "22.0"):
            (both / "helper.py").write_text(f"WORTH = {worth}\n")
            score, home = object_from_file("f.py:score")
            with home.entered():
                found.append(score([1]))
    assert found == [1.0, 22.0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("elicit --model ./f.py", "'./f.py' is a file: expected what it calls the model"),
        ("elicit --utility ./f.py", "expected a function of that file, ./f.py:NAME"),
        ("elicit --model ./f.py:network", "model = posteer.wrap(network) makes one"),
        ("elicit --model exact:", "'exact:': expected exact: and a prior"),
        ("elicit --model ./bad.py:m", "'./bad.py' raised SyntaxError"),
        ("explore --no-browser --runs f.py/below", "f.py/below: f.py is no folder"),
    ],
)
def test_what_a_newcomer_types_is_answered_with_what_to_do(line, said, both, capsys):
    (both / "f.py").write_text("import torch\nnetwork = torch.nn.Linear(2, 2)\n")
    (both / "bad.py").write_text("def f(:\n")
    assert said in refused(capsys, *line.split())


def test_names_that_are_not_ascii_and_have_spaces(both, capsys):
    folder = both / "mein Ördner"
    folder.mkdir()
    (folder / "mödel eins.py").write_text(COUNTING.replace("from helper import WORTH", "WORTH = 1"))
    typed = "mein Ördner/mödel eins.py"
    line = ["--model", f"{typed}:model", "--utility", f"{typed}:score", "--length", "3"]
    main(["elicit", *line, "--method", "beam", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["utility"]) == (f"{typed}:model", f"{typed}:score")
