"""What docs/YOUR_MODEL.md shows runs as it stands; the glossary knows the words of panels."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch
from language import llama, tokenizer
from pages import blocks, run_shell

import posteer
from posteer.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "YOUR_MODEL.md").read_text()
GLOSSARY = (ROOT / "docs" / "GLOSSARY.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

MINE = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.inner, self.head = nn.Embedding(4, 8), nn.GRU(8, 8), nn.Linear(8, 4)
    def forward(self, ids):
        return self.head(self.inner(self.table(ids).transpose(0, 1))[0].transpose(0, 1))

network = Network()

def rule(tokens):
    signs = 2.0 * tokens.cumsum(1) - 1.0 - numpy.arange(tokens.shape[1])
    return numpy.stack([-signs, signs], -1) / 10

try:
    import jax
    import jax.numpy as numpy
    predict = jax.jit(rule)
except ImportError:
    import numpy
    def predict(tokens):
        return torch.from_numpy(rule(tokens.numpy()))

def model(tokens):
    return torch.full((len(tokens), 2), 0.5)

model.vocab_size, model.order = 2, 1

def worth(continuation):
    return continuation.count(1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's: a file, and a model of theirs."""
    made = tmp_path_factory.mktemp("user")
    (made / "mine.py").write_text(MINE)
    llama(torch.float32).save_pretrained(made / "my-gpt2")
    tokenizer().save_pretrained(made / "my-gpt2")
    return made


def test_three_kinds_of_models_take_five_lines_each():
    assert len(BLOCKS) == 3
    lines = [[line for line in block.splitlines() if line] for block in BLOCKS]
    assert all(len(block) <= 5 for block in lines)


@pytest.mark.parametrize("block", BLOCKS, ids=["module", "hugging face", "function"])
def test_what_the_page_shows_runs(block, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block, "YOUR_MODEL.md", "exec"), {})
    assert said.getvalue().strip()


def test_its_commands_run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (quick,) = [
        one for one in blocks(ROOT / "docs" / "YOUR_MODEL.md") if one.kind == "sh" and one.runs
    ]
    run_shell(quick.body)
    assert capsys.readouterr().out.count("expected utility") == 2


def test_the_glossary_knows_what_panels_say(capsys):
    words = {
        word.strip()
        for row in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
        for word in row.split(",")
    }
    line = ["--model", "exact:urn", "--length", "4", "--method"]
    for method in (
        "beam",
        "classes-analytic(samples=50,estimator=psis)",
        "ppt-rb(samples=20,steps=2)",
    ):
        main(["elicit", *line, method, "--verify", "2", "--context", "01", "--verbose"])
    rows = re.findall(r"^│ (\S+(?: \S+)*)  ", capsys.readouterr().out, re.MULTILINE)
    assert {"prompt", "rank", "surrogate", "ESS / L", "verified"} <= set(rows)
    assert {row for row in rows if row not in words} == set()


PRINTED = (
    "KS, W1, prior of row, exact Bayes, mean, variance, futures, ranks, martingale, visit, drift, "
    "outward, block swaps, size, rounding, next token, lean, matters past, convergence in length, "
    "beyond chance, false alarms, departures that would be seen, bins of ranks, filled by, "
    "posterior after, drawn, latents"
)
ELSEWHERE = (
    "atoms, largest weight, entropy, told for sure, explained by, behind the best, concentration, "
    "nats a token, posterior mixture, learns nothing, best single latent, halves of a rollout, "
    "correction by what was read, rank correlation, deviates, covariance"
)


def test_the_glossary_knows_what_a_check_says(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # words of a cell on one line
    line = ["check", "--rollouts", "80", "--length", "80", "--effort", "0.05", "--no-families"]
    main([*line, "--model", "exact:urn", "--context", "01"])
    said = capsys.readouterr().out
    listed = GLOSSARY.partition("## What a check says")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:[^|\\]|\\\|)+) \|", listed, re.MULTILINE)
    words = {word.strip() for row in rows for word in row.split(",")}
    assert {word for word in PRINTED.split(", ") if word not in said} == set()
    assert {*PRINTED.split(", "), *ELSEWHERE.split(", ")} - words == set()
    tests = re.findall(r"^│ (calibration|martingale|prior of row|[a-z]+)\b", said, re.MULTILINE)
    assert {one for one in tests if not any(one in word for word in words)} <= {"cost", "unvisited"}


def test_the_words_of_the_page_are_options():
    for name in ("alphabet", "text", "tokenizer", "order", "max_length", "first", "embedding"):
        assert f"{name}=" in PAGE
    assert posteer.wrap.__doc__ is not None
