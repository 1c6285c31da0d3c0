"""Models that are named when the explorer starts; the command in a process of its own."""

import http.client
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch

pytest.importorskip("uvicorn", reason="starlette and uvicorn are not installed")

from posteer import evaluate
from posteer.explorer.asked import asked_of, cell_of
from posteer.explorer.menu import Menu
from posteer.explorer.runs import Runs
from posteer.explorer.steering import Hand
from posteer.models import shipped_models
from posteer.sweeps.results import read_sweep

ASKED = {"utility": {"kind": "dyck"}, "horizon": 2, "length": 4, "method": "coordinate",
         "seed": 0, "beside": False}  # fmt: skip


def ended(runs, data):
    """A run, once it has ended."""
    run = runs.start(asked_of(runs.menu, data))
    assert run.ended.wait(60)
    return run


def test_a_checkpoint_folder_is_on_the_menu_by_an_id(tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(shipped_models()["beta-bernoulli"], folder)
    menu = Menu([str(folder)])
    menu.open_named()
    runs = Runs(menu, tmp_path / "runs")
    assert ended(runs, {**ASKED, "model": "named-1"}).state == "done"
    (row,) = read_sweep(tmp_path / "runs").rows
    assert row["model"] == str(folder)
    assert menu.open("named-1").facts["latents"]["kernels"], "its bank is known by its weights"


def test_a_language_model_is_steered_over_an_alphabet(tmp_path):
    language = pytest.importorskip("language")
    folder = tmp_path / "coin"
    language.llama(torch.float32).save_pretrained(folder)
    language.tokenizer().save_pretrained(folder)
    name, text = f"hf:{folder}", "A coin:"
    menu = Menu([name], alphabet=" H, T", text=text)
    menu.open_named()
    facts = menu.open("named-1").facts
    assert (facts["vocab"], facts["names"], facts["text"]) == (2, ["H", "T"], text)
    asked = {"model": "named-1", "utility": {"kind": "dyck"}, "horizon": 2}
    told = Hand().judged(cell_of(menu, {**asked, "prompt": [0, 1, 1, 0]}), [0, 1, 1, 0])
    same = evaluate(name, "dyck", [0, 1, 1, 0], horizon=2, alphabet=" H, T", text=text)
    assert told["J"] == pytest.approx(same.expected_utility, abs=1e-6)
    run = ended(Runs(menu, tmp_path / "runs"), {**ASKED, "model": "named-1"})
    assert run.state == "done"
    (row,) = read_sweep(tmp_path / "runs").rows
    assert row["model"] == name and row["expected_utility"] >= told["J"] - 1e-6


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(tmp_path):
    words = [sys.executable, "-m", "posteer", "explore", "--no-browser", "--runs", "kept"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as serving:
        try:
            first = serving.stdout.readline()
            host, port, path = re.search(r"http://([\d.]+):(\d+)(/\S+)", first).groups()
            assert host == "127.0.0.1"
            line = http.client.HTTPConnection(host, int(port), timeout=60)
            line.request("GET", path)
            answer = line.getresponse()
            assert answer.status == 200 and answer.headers["set-cookie"]
            line.close()
        finally:
            serving.send_signal(signal.SIGINT)
        serving.wait(timeout=60)
        said, wrong = serving.stdout.read(), serving.stderr.read()  # with what was read ahead
    assert (serving.returncode, wrong) == (0, "")
    assert "posteer report kept" in said
