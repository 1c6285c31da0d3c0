"""A user's own models and functions: named in what they do wrong, with neighbours of their own."""

import sys

import pytest
import torch
from refusals import ONE, refused

import posteer
from posteer.models import FunctionModel, open_model
from posteer.sweeps.configuration import config_from
from posteer.sweeps.execution import run_sweep
from posteer.tokens.contexts import ContextSpace

MODELS = {
    "exits": "def f(tokens):\n    import sys\n    sys.exit(0)\nf.vocab_size, f.order = 2, 0\n",
    "text": "def f(tokens):\n    return 0\nf.vocab_size, f.order = '2', 0\n",
    "real": "def f(tokens):\n    return 0\nf.vocab_size, f.order = 2, 0.5\n",
    "kind": "class f:\n    vocab_size, order = 2, 0\n    def start(self, b):\n        pass\n"
    "    def advance(self, s, t):\n        pass\n",
    "object": "class Kind:\n    vocab_size, order = 2, 0\n    def start(self, b):\n        raise"
    " SystemExit(0)\n    def advance(self, s, t):\n        pass\nf = Kind()\n",
    "model": "from posteer.models import Model\nclass Kind(Model):\n    vocab_size = 2\n"
    "    def start(self, batch, capacity=16):\n        raise KeyError('start')\nf = Kind()\n",
}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("exits", "exits.py:f raised SystemExit"),
        ("text", "vocab_size '2': expected a whole number"),
        ("real", "order 0.5: expected a whole number"),
        ("kind", "is a class: expected a model made of it"),
        ("object", "object.py:f raised SystemExit"),
        ("model", "model.py:f raised KeyError"),
    ],
)
def test_a_users_model_is_named_in_what_it_does_wrong(name, complaint, tmp_path, capsys):
    (tmp_path / f"{name}.py").write_text(MODELS[name])
    line = ["--model", f"{tmp_path}/{name}.py:f", "--length", "3", "--method", "beam"]
    assert complaint in refused(capsys, "elicit", *line)


def test_a_model_that_writes_into_its_argument_changes_no_history(tmp_path):
    def honest(tokens):
        ones = tokens.sum(1).double()
        p = (ones + 0.5) / (tokens.shape[1] + 1)
        return torch.stack([1 - p, p], 1)

    def scribbling(tokens):
        answer = honest(tokens)
        tokens.fill_(0)
        return answer

    def value(function):
        opened = FunctionModel(function, vocab_size=2, order=0)
        return posteer.evaluate(opened, "dyck", "0110").expected_utility

    assert value(scribbling) == value(honest)

    class Scribbling:
        vocab_size, order = 2, 0

        def start(self, batch):
            return open_model("exact:beta-bernoulli").start(batch)

        def advance(self, state, tokens):
            after = open_model("exact:beta-bernoulli").advance(state, tokens)
            tokens.fill_(0)
            return after

    exact = posteer.evaluate("exact:beta-bernoulli", "dyck", "0110").expected_utility
    assert posteer.evaluate(Scribbling(), "dyck", "0110").expected_utility == exact


def test_a_model_that_exits_fails_its_runs_and_no_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exits.py").write_text(
        "import sys\ndef f(tokens):\n    if len(tokens) > 8:\n        sys.exit(0)\n"
        "    return [[0.5, 0.5]] * len(tokens)\nf.vocab_size, f.order = 2, 0\n"
    )
    both = {**ONE, "models": ["exits.py:f", "exact:urn"], "methods": "random(prompts=2)"}
    ended = run_sweep(config_from(both, "x"), tmp_path / "runs", device="cpu")
    assert ended.statuses == {"done": 1, "failed": 1}
    assert "raised SystemExit" in next(iter(ended.errors))
    (tmp_path / "at_once.py").write_text(MODELS["exits"])
    ended = run_sweep(config_from({**both, "models": "at_once.py:f"}, "x"), tmp_path / "no")
    assert ended.statuses == {"failed": 1}
    assert "at_once.py:f raised SystemExit" in next(iter(ended.errors))


def test_user_files_find_their_own_neighbours_and_nothing_is_written(tmp_path):
    for name, worth in (("a", 1), ("b", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helper.py").write_text(f"worth = {worth}\n")
        (folder / "later.py").write_text(f"more = {10 * worth}\n")
        (folder / "mine.py").write_text(
            "import helper\ndef f(y):\n    import later\n    return helper.worth + later.more\n"
        )
    before = list(sys.path)
    opened = [
        posteer.open_utility(f"{tmp_path}/{name}/mine.py:f", ContextSpace(2, 0)) for name in "ab"
    ]
    tokens = torch.tensor([[0, 1]])
    for _ in range(2):
        values = [float(one(tokens, torch.tensor([0]))) for one in opened]
        assert values == [11.0, 22.0]
    assert "helper" not in sys.modules and "later" not in sys.modules
    assert sys.path == before
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        ["helper.py", "later.py", "mine.py"] * 2
    )


def test_a_function_that_a_file_may_name_may_be_given(tmp_path):
    """The same function, as an object and by its file."""

    def fair(tokens):
        return torch.full((len(tokens), 2), 0.5)

    fair.vocab_size, fair.order = 2, 0
    found = posteer.elicit(fair, "dyck", length=2, method="exhaustive")
    assert found.expected_utility == pytest.approx(2 / 16)
    (tmp_path / "mine.py").write_text("def predict(tokens): ...\n")
    with pytest.raises(posteer.InputError, match="did you mean predict"):
        open_model(f"{tmp_path}/mine.py:predct")


def test_a_model_that_fails_at_its_first_call_fails_its_runs_and_no_others(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def f(tokens):\n    raise KeyError('no key')\nf.vocab_size, f.order = 2, 0\n"
    )
    models = [f"{tmp_path}/mine.py:f", "exact:urn"]
    named = {"models": models, "utilities": "dyck", "methods": "coordinate", "name": "one bad"}
    config = config_from({**named, "lengths": [3], "seeds": 2}, "test")
    ended = run_sweep(config, tmp_path / "out", device="cpu")
    assert ended.finished and ended.statuses == {"done": 2, "failed": 2}
    (error,) = ended.errors
    assert "mine.py:f raised KeyError" in error and len(ended.errors[error]) == 2
