"""Training for real, small: what it learns, that it resumes to the bit, what breaks it."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from networks import damage, run_until

from posteer.core.errors import InputError
from posteer.families.registry import open_process
from posteer.models import ExactModel, load
from posteer.models.transformer.network import Architecture
from posteer.training.data import HeldOut, exact_log_loss, training_batch
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS, TrainingPlan, preset

CPU = torch.device("cpu")
SHORT = replace(PRESETS["tiny"], steps=24, length=24, batch=8, warmup=4)


def trainer(plan, folder, **changes):
    quick = {"held_out": 8, "evaluate_every": 8, "checkpoint_every": 4, "log_every": 1}
    return Trainer(plan, folder, **{**quick, **changes})


def weights(run):
    return {name: tensor.clone() for name, tensor in run.network.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "text", ["urn", "beta-bernoulli", "markov(vocab=3,order=2)", "coins(0.2,0.7)"]
)
def test_exact_losses_at_every_position(text):
    process = open_process(text)
    tokens = training_batch(process, 6, 20, seed=0, step=1, device=CPU)
    laws = ExactModel(process).log_predictive(tokens)[:, :-1]
    chosen = laws.gather(-1, tokens[..., None]).squeeze(-1)
    assert torch.allclose(exact_log_loss(process, tokens), -chosen, atol=1e-12)


def test_batches_depend_on_seed_and_step_alone():
    process = open_process("urn")
    batch = training_batch(process, 4, 50, seed=1, step=7, device=CPU)
    torch.manual_seed(123)
    assert torch.equal(batch, training_batch(process, 4, 50, seed=1, step=7, device=CPU))
    assert not torch.equal(batch, training_batch(process, 4, 50, seed=1, step=8, device=CPU))
    assert not torch.equal(batch, training_batch(process, 4, 50, seed=2, step=7, device=CPU))


def test_the_schedule_is_the_papers():
    plan = PRESETS["urn"]
    assert plan.rate(1) == pytest.approx(3e-4 / 1000)
    assert plan.rate(1000) == pytest.approx(3e-4)
    assert plan.rate(100_000) == pytest.approx(1e-5)
    assert plan.rate(50_500) == pytest.approx((3e-4 + 1e-5) / 2)
    assert (plan.batch, plan.length, plan.steps) == (64, 2000, 100_000)
    coin = PRESETS["beta-bernoulli"]
    assert (coin.batch, coin.length, coin.steps, coin.warmup) == (128, 2000, 50_000, 500)


def test_the_tiny_preset_learns_bayes(tmp_path):
    """Excess risk below 0.01 nats a token; an untrained network is 0.26 above Bayes."""
    run = trainer(preset("tiny"), tmp_path, held_out=128, evaluate_every=250, checkpoint_every=250)
    assert run.held_out.excess(run.network).overall > 0.1
    assert run.run().status == "finished"
    excess = run.held_out.excess(run.network)
    assert excess.overall < 0.01
    assert excess.first_10 < 0.01
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [250, 500]
    model = load(str(tmp_path))
    law = model.log_predictive(torch.tensor([[1] * 8 + [0] * 2])).exp()[0, -1, 1]
    assert float(law) == pytest.approx(8.5 / 11, abs=0.05)


def test_a_run_stopped_at_random_steps_ends_with_the_same_bits(tmp_path):
    whole = trainer(SHORT, tmp_path / "whole")
    assert whole.run().status == "finished"
    chance = random.Random(0)
    for attempt in range(3):
        folder, stops = tmp_path / f"stopped-{attempt}", 0
        while True:
            part = trainer(SHORT, folder)
            lasts = part.step + chance.randint(1, 9)
            outcome = part.run(should_stop=lambda part=part, lasts=lasts: part.step >= lasts)
            if outcome.status == "finished":
                break
            stops += 1
        assert stops >= 2
        assert same(weights(part), weights(whole))
        assert part.records == whole.records


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    """No clean stop: an exception tears the loop apart between checkpoints."""
    whole = trainer(SHORT, tmp_path / "whole")
    whole.run()
    for at in (3, 5, 14):
        folder = tmp_path / f"killed-{at}"
        run = trainer(SHORT, folder)
        run_until(run, at)
        again = trainer(SHORT, folder)
        assert again.step == (at - 1) // 4 * 4
        again.run()
        assert same(weights(again), weights(whole))
        assert again.records == whole.records


@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_damaged_checkpoints_are_named_and_passed_over(tmp_path, how):
    run = trainer(SHORT, tmp_path)
    run.run(should_stop=lambda: run.step >= 12)
    newest = tmp_path / "checkpoints" / "step-0000012"
    damage(newest / "state.safetensors", how)
    warnings = []
    again = trainer(SHORT, tmp_path, warn=warnings.append)
    assert again.step == 8
    assert "step-0000012/state.safetensors is damaged" in warnings[0]
    whole = trainer(SHORT, tmp_path.parent / f"whole-{how}")
    whole.run()
    again.run()
    assert same(weights(again), weights(whole))


def test_the_last_two_checkpoints_are_kept(tmp_path):
    trainer(SHORT, tmp_path).run()
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["step-0000020", "step-0000024"]


def test_a_full_disk_loses_nothing_that_was_there(tmp_path, monkeypatch):
    run = trainer(SHORT, tmp_path)
    run.run(should_stop=lambda: run.step >= 8)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def full(*_):
        raise OSError(28, "No space left on device")

    again = trainer(SHORT, tmp_path)
    monkeypatch.setattr("posteer.core.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        again.run()
    monkeypatch.undo()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert trainer(SHORT, tmp_path).run().status == "finished"


def test_a_loss_that_is_not_a_number_stops_the_run_at_its_step(tmp_path):
    run = trainer(SHORT, tmp_path)
    honest = run.loss

    def poisoned(tokens):
        return honest(tokens) * (math.nan if run.step == 10 else 1.0)

    run.loss = poisoned
    outcome = run.run()
    assert (outcome.status, outcome.step) == ("diverged", 10)
    again = trainer(SHORT, tmp_path)
    assert again.step == 8, "the last good checkpoint"


def test_an_exploding_loss_counts_as_diverged(tmp_path):
    run = trainer(SHORT, tmp_path)
    honest = run.loss
    run.loss = lambda tokens: honest(tokens) + (10.0 if run.step >= 6 else 0.0)
    assert run.run().step == 6


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path):
    whole = trainer(SHORT, tmp_path / "a")
    parts = trainer(replace(SHORT, accumulate=4), tmp_path / "b")
    for step in (1, 2, 3):
        loss, norm = whole.train_step(step)
        loss_of_parts, norm_of_parts = parts.train_step(step)
        assert float(loss) == pytest.approx(float(loss_of_parts), abs=1e-6)
        assert float(norm) == pytest.approx(float(norm_of_parts), rel=1e-4)


def test_time_is_up(tmp_path):
    outcome = trainer(SHORT, tmp_path).run(max_minutes=0.0)
    assert (outcome.status, outcome.step) == ("stopped", 1)
    assert (tmp_path / "model" / "manifest.json").is_file()


def test_a_folder_holds_one_plan(tmp_path):
    trainer(SHORT, tmp_path)
    with pytest.raises(InputError, match="another plan"):
        trainer(replace(SHORT, seed=1), tmp_path)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(InputError, match=r"plan\.json is damaged"):
        trainer(SHORT, tmp_path)


def test_plans_survive_json():
    for plan in PRESETS.values():
        assert TrainingPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_any_process_trains(tmp_path):
    plan = TrainingPlan(
        process="markov(vocab=3,order=2,concentration=0.5)",
        architecture=Architecture(
            vocab_size=3,
            order=2,
            layers=2,
            width=16,
            heads=2,
            feedforward=32,
            positions="learned",
            max_tokens=20,
        ),
        batch=4,
        length=20,
        steps=6,
        warmup=2,
    )
    assert trainer(plan, tmp_path).run().status == "finished"
    assert load(str(tmp_path)).order == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"batch": 0}, "batch 0"),
        ({"accumulate": 3}, "split into 3"),
        ({"peak_rate": 1e-6}, "rates"),
        ({"process": "urn"}, "vocabulary 2 and order 0"),
        ({"warmup": -1}, "warmup -1"),
    ],
)
def test_impossible_plans_are_refused(change, complaint):
    with pytest.raises(InputError, match=complaint):
        replace(SHORT, **change)


def test_held_out_sequences_are_fixed_and_fresh():
    process = open_process("urn")
    one, two = (HeldOut(process, 4, 30, seed=0, device=CPU) for _ in range(2))
    assert torch.equal(one.tokens, two.tokens)
    assert not torch.equal(one.tokens, training_batch(process, 4, 30, 0, 1, CPU))


COMPARE_COMPILED = """
import sys, tempfile
from dataclasses import replace
from pathlib import Path
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS
plan = replace(PRESETS["tiny"], steps=24, length=24, batch=8, warmup=4)
out = Path(sys.argv[1])
plain, compiled = (Trainer(plan, out / str(c), compiled=c, held_out=2) for c in (False, True))
for step in (1, 2):
    for ours, theirs in zip(plain.train_step(step), compiled.train_step(step)):
        assert abs(float(ours) - float(theirs)) < 1e-3 * float(ours), (step, ours, theirs)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling on CPU needs a C++ compiler")
def test_the_compiled_step_is_the_plain_one(tmp_path):
    """What GPUs run is compiled; here the same step is, for the CPU (without shape checks)."""
    command = [sys.executable, "-c", COMPARE_COMPILED, str(tmp_path)]
    # a cache of its own: one that is shared may hold what was compiled for other vector widths
    own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    done = subprocess.run(command, capture_output=True, text=True, env=own)
    assert done.returncode == 0, done.stderr
