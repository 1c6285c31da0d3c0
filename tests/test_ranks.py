"""Training on several ranks: the data of one to the bit, its weights but for rounding."""

import json
import subprocess
import sys

import pytest
import torch

from posteer.families.registry import open_process
from posteer.models import open_model
from posteer.training.data import Batches, training_batch
from posteer.training.loop import Trainer
from posteer.training.plan import make_plan
from posteer.training.ranks import Share, is_first, joined, open_trainer, ranks

CPU = torch.device("cpu")
SETTINGS = {"steps": 12, "length": 16, "batch": 8, "warmup": 2}
PLAN = make_plan("tiny", None, {}, SETTINGS)


@pytest.mark.parametrize("of", [1, 2, 4])
def test_the_shares_of_any_number_of_ranks_are_the_batch_to_the_bit(of):
    urn = open_process("urn")
    shares = [Share(Batches(urn, 8, 20, 3, CPU), rank, of) for rank in range(of)]
    for step in (1, 2, 7):
        drawn = torch.cat([share.take(step) for share in shares])
        assert torch.equal(drawn, training_batch(urn, 8, 20, 3, step, device=CPU))


def test_without_torchrun_there_is_one(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined("cpu") as device:
        assert device == "cpu" and ranks() == 1 and is_first()
    assert type(open_trainer(PLAN, tmp_path / "run")) is Trainer


def by_torchrun(n, out, *more):
    words = [word for key, value in SETTINGS.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    train = ["-m", "posteer.cli", "train", "--preset", "tiny", "--device", "cpu", "--json"]
    line = [*command, f"--nproc-per-node={n}", *train, "--out", str(out), *words, *more]
    return subprocess.run(line, capture_output=True, text=True)


def losses(out):
    lines = (out / "records.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.slow
def test_two_ranks_train_what_one_does(tmp_path):
    """By torchrun and gloo. Gradients are means of two halves in place of one mean: float32 sums in
    another order, a relative 1e-6, twelve steps of Adam at 3e-3, which normalises small gradients:
    weights within 1e-4, losses within 1e-5. Then one process goes on with their checkpoint."""
    done = by_torchrun(2, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished", "one of them talks"
    one = Trainer(PLAN, tmp_path / "one")
    assert one.run().status == "finished"
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
    weights = open_model(str(tmp_path / "two" / "model")).network.state_dict()
    for name, tensor in one.network.state_dict().items():
        assert torch.allclose(tensor, weights[name], atol=1e-4)
    assert Trainer(PLAN, tmp_path / "two").step == 12
