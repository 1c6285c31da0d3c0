"""The folder of a training run: what is not ours is never touched, and one process trains."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from networks import run_until

from posteer.cli import main
from posteer.core import files
from posteer.core.errors import InputError
from posteer.core.locks import Claims
from posteer.core.sealing import write_sealed
from posteer.models import load
from posteer.training.folder import TrainingFolder
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS

SHORT = replace(PRESETS["tiny"], steps=12, length=12, batch=4, warmup=2)


def trainer(folder, plan=SHORT, **changes):
    quick = {"held_out": 4, "evaluate_every": 6, "checkpoint_every": 4, "log_every": 1}
    return Trainer(plan, folder, **{**quick, **changes})


def stopped(folder, at, **changes):
    run = trainer(folder, **changes)
    run.run(should_stop=lambda: run.step >= at)
    return run


def content(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def same_weights(one, other):
    a, b = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "theirs", ["model/precious.bin", "checkpoints/step-1/data", "thesis.txt", ".hidden"]
)
def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path, theirs):
    path = tmp_path / theirs
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    before = content(tmp_path)
    with pytest.raises(InputError, match="no training"):
        trainer(tmp_path)
    assert content(tmp_path) == before and not (tmp_path / "plan.json").exists()


def test_what_others_put_into_a_training_is_never_removed(tmp_path):
    stopped(tmp_path, 4)
    theirs = [
        tmp_path / "checkpoints" / "step-1" / "data",
        tmp_path / "checkpoints" / "step-0000004" / "notes.txt",
        tmp_path / "thesis.txt",
        tmp_path / ".notes.part",
    ]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert trainer(tmp_path).run().status == "finished"
    assert [path.read_text() for path in theirs] == ["mine"] * 4
    precious = tmp_path / "model" / "precious.bin"
    precious.write_text("mine")
    with pytest.raises(InputError, match=r"precious\.bin: there is something here"):
        trainer(tmp_path)
    assert precious.read_text() == "mine" and load(str(tmp_path)).vocab_size == 2


def test_what_appears_in_the_model_folder_meanwhile_stays(tmp_path):
    stopped(tmp_path, 4)
    run, precious = trainer(tmp_path), tmp_path / "model" / "precious.bin"
    with pytest.raises(InputError, match="did not write"):
        run.run(should_stop=lambda: precious.write_text("mine") == 0)
    assert precious.read_text() == "mine"
    precious.unlink()
    again = trainer(tmp_path)
    assert again.step == 12 and again.run().status == "finished"


def test_checkpoints_are_sorted_by_number(tmp_path):
    """Past seven digits names are longer, and in the order of letters come first."""
    folder = TrainingFolder(tmp_path, SHORT)
    for step in (9_999_999, 10_000_000, 2):
        (folder.checkpoints / f"step-{step:07d}").mkdir(parents=True)
    (folder.checkpoints / "step-2").mkdir()
    assert [path.name for path in folder.saved()] == [
        "step-0000002",
        "step-9999999",
        "step-10000000",
    ]


def test_leftovers_of_a_killed_trainer_are_cleaned(tmp_path):
    stopped(tmp_path, 4)
    kept = shutil.copytree(tmp_path / "model", tmp_path / ".model.123-0123abcd.part")
    (kept / ".manifest.json.123-0123abcd.part").write_text("{")
    shutil.copytree(kept, tmp_path / "checkpoints" / ".step-0000008.9-0123abcd.part")
    (tmp_path / ".records.jsonl.7-0123abcd.part").write_text("")
    trainer(tmp_path).run()
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("atomic", [True, False])
def test_a_model_is_replaced_by_one_exchange_of_names(tmp_path, monkeypatch, atomic):
    """Of every rename that the system makes, seen from outside: is there a whole model?"""
    stopped(tmp_path, 4)
    if not atomic:
        monkeypatch.setattr(files.ctypes, "CDLL", lambda *_, **__: object())
    absent = []
    rename = type(tmp_path).rename

    def watched(path, target):
        rename(path, target)
        absent.append(not (tmp_path / "model" / "manifest.json").is_file())

    monkeypatch.setattr(type(tmp_path), "rename", watched)
    assert trainer(tmp_path).run().status == "finished"
    assert any(absent) != atomic
    assert load(str(tmp_path)).vocab_size == 2
    (tmp_path / "model").rename(tmp_path / ".model.old")  # killed between two renames
    again = trainer(tmp_path)
    again.run()
    assert load(str(tmp_path)).vocab_size == 2 and not (tmp_path / ".model.old").exists()


def test_one_trainer_a_folder(tmp_path):
    hold = (
        "import sys; from pathlib import Path; from posteer.core.locks import Claims\n"
        "with Claims(Path(sys.argv[1])).claim('train'):\n"
        "    print(flush=True); sys.stdin.read()\n"
    )
    run = trainer(tmp_path)
    command = [sys.executable, "-c", hold, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(InputError, match="another process is training in"):
            run.run()
        other.stdin.close()
    assert run.run().status == "finished"
    with Claims(tmp_path / "lock").claim("train") as free:
        assert free, "a trainer that has ended holds nothing"


def test_a_trainer_takes_up_what_another_has_done_since(tmp_path):
    waiting = trainer(tmp_path)
    trainer(tmp_path).run()
    assert waiting.run().status == "finished" and waiting.step == 12


def test_records_are_kept_when_only_the_last_checkpoint_was(tmp_path):
    """A kill between the two left a finished training without its last record."""
    trainer(tmp_path).run()
    records = tmp_path / "records.jsonl"
    whole = records.read_bytes()
    records.write_bytes(whole.splitlines(keepends=True)[0])
    trainer(tmp_path).run()
    assert records.read_bytes() == whole


def test_checkpoints_come_by_time_too_and_change_nothing(tmp_path):
    """With no seconds between them every step is one; records and weights are the same bits, and a
    run that dies anywhere has lost no more than a step."""
    plain = trainer(tmp_path / "plain", checkpoint_every=100, log_every=5)
    plain.run()
    for at in (2, 7, 11):
        folder = tmp_path / f"died-{at}"
        settings = {"checkpoint_every": 100, "checkpoint_seconds": 0.0, "log_every": 5}
        run = trainer(folder, **settings)
        run_until(run, at)
        again = trainer(folder, **settings)
        assert again.step == at - 1
        again.run()
        assert same_weights(again, plain) and again.records == plain.records


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda facts: facts.pop("step"), "names no step"),
        (lambda facts: facts.update(step=9), "of step 9"),
        (lambda facts: facts.update(step=True), "names no step"),
        (lambda facts: facts.update(records=[1]), "names no step"),
        (lambda facts: facts["plan"].update(seed=1), "another plan"),
    ],
)
@pytest.mark.parametrize("seal", [True, False])
def test_a_checkpoint_of_another_step_or_seed_is_passed_over(tmp_path, change, complaint, seal):
    stopped(tmp_path, 8)
    path = tmp_path / "checkpoints" / "step-0000008" / "manifest.json"
    facts = json.loads(path.read_text())
    del facts["sealed"], facts["checksum"]
    change(facts)
    if seal:
        write_sealed(path, facts)
    else:
        path.write_text(json.dumps(facts))
    told = []
    assert trainer(tmp_path, warn=told.append).step == 4
    assert len(told) == 1 and complaint in told[0] and "step-0000008" in told[0]


def test_checkpoints_of_earlier_versions_are_taken_up(tmp_path):
    """Those have no seal, no plan and no sum of losses."""
    from safetensors.torch import load_file, save_file

    whole = trainer(tmp_path / "whole")
    whole.run()
    stopped(tmp_path / "old", 8)
    folder = tmp_path / "old" / "checkpoints" / "step-0000008"
    tensors = load_file(folder / "state.safetensors")
    del tensors["running"]
    save_file(tensors, folder / "state.safetensors")
    facts = json.loads((folder / "manifest.json").read_text())
    old = {
        "step": facts["step"],
        "records": facts["records"],
        "files": {"state.safetensors": files.sha256(folder / "state.safetensors")},
    }
    (folder / "manifest.json").write_text(json.dumps(old))
    plan = json.loads((tmp_path / "old" / "plan.json").read_text())
    del plan["sealed"], plan["checksum"]
    (tmp_path / "old" / "plan.json").write_text(json.dumps(plan))
    again = trainer(tmp_path / "old")
    assert again.step == 8
    again.run()
    assert same_weights(again, whole) and again.records == whole.records


def test_a_last_update_that_is_not_finite_is_not_exported(tmp_path):
    run = trainer(tmp_path)
    step = run.optimiser.step

    def poisoned():
        step()
        if run.step == 12:
            with torch.no_grad():
                next(run.network.parameters()).fill_(float("nan"))

    run.optimiser.step = poisoned
    assert run.run().status == "diverged"
    assert not (tmp_path / "model").exists()


def test_a_pipe_in_the_folder_is_refused_and_not_waited_for(tmp_path):
    stopped(tmp_path, 8)
    newest = tmp_path / "checkpoints" / "step-0000008" / "manifest.json"
    newest.unlink()
    os.mkfifo(newest)
    told = []
    assert trainer(tmp_path, warn=told.append).step == 4 and len(told) == 1
    (tmp_path / "plan.json").unlink()
    os.mkfifo(tmp_path / "plan.json")
    with pytest.raises(InputError, match="not a plain file"):
        trainer(tmp_path)


def test_deep_brackets_in_a_plan_are_one_line(tmp_path):
    (tmp_path / "plan.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"plan\.json is damaged: brackets"):
        trainer(tmp_path)


def test_training_tells_a_log_how_far_it_is(tmp_path, capsys):
    words = ["--preset", "tiny", "--steps", "60", "--batch", "4", "--length", "16"]
    main(["train", *words, "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert re.search(r"^\d+/60 steps: loss \d\.\d+ .*tokens/s$", said, re.M), said
