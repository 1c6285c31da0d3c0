"""Small things around files: descriptors, Ctrl-C, figures on a full disk, whose revision it is,
banks of strangers."""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from refusals import refused
from safetensors.torch import save_file
from sweeps import SMALL, small, toml

import posteer
from posteer.banks.drawn import FORMAT, load_bank, pack, unpack
from posteer.banks.sampling import sample
from posteer.cli import main
from posteer.core.errors import InputError
from posteer.models import FunctionModel
from posteer.models.conditioned import condition
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.provenance import provenance
from posteer.sweeps.runner import Report
from posteer.views.figures import canvas

DRAW = {"rollouts": 64, "length": 12, "chunk": 16, "device": "cpu"}


def descriptors():
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_descriptors_are_closed_when_a_sweep_raises(tmp_path, workers):
    def full(_records):
        raise OSError(errno.ENOSPC, "No space left on device")

    held = []
    for attempt in range(2):
        before = descriptors()
        with pytest.raises(OSError, match="No space") as raised:
            run_sweep(
                small(seeds=1),
                tmp_path / f"{attempt}",
                batch_size=2,
                workers=workers,
                report=Report(finished=full),
            )
        held.append(raised.value)  # and with it all that its frames hold
        if attempt:  # the first starts what Python keeps for all processes
            assert descriptors() == before


def test_ctrl_c_on_a_sweep_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.toml").write_text(toml(**{**SMALL, "models": ["exact:urn"], "seeds": 1}))
    words = ["sweep", "--config", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "runs")]

    def stop(*_words, **_more):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(60)

    # what runs in the background may have been started with interrupts ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("posteer.sweeps.runner.elicit_batch", stop)
            with pytest.raises(SystemExit) as ended:
                main(words)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("posteer: interrupted: the same command goes on")
    main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["left"] == 0


def test_a_second_ctrl_c_on_training_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    """The first asks for a clean stop; this one comes before the step is done."""
    words = ["train", "--preset", "tiny", "--steps", "4", "--batch", "2", "--length", "8"]

    def stop(*_given):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(60)

    monkeypatch.setattr("posteer.training.data.Batches.take", stop)
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out", str(tmp_path / "run")])
    assert ended.value.code == 130
    assert "posteer: interrupted: the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", canvas.SUFFIXES)
def test_a_figure_is_whole_or_absent_and_named(tmp_path, monkeypatch, suffix):
    out = tmp_path / f"figure{suffix}"
    figure, axes = canvas.canvas().subplots()
    axes.plot([1, 2])
    canvas.save(figure, out, close=False)
    whole = out.read_bytes()

    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    axes.plot([2, 1])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as raised:
        canvas.save(figure, out)
    monkeypatch.undo()
    assert raised.value.filename == str(out)
    assert out.read_bytes() == whole and list(tmp_path.iterdir()) == [out]
    canvas.canvas().close("all")


def git(where, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(where), *who, *words], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_revision_is_our_own_or_none(tmp_path, monkeypatch):
    monkeypatch.delenv("POSTEER_REVISION", raising=False)
    places = {"theirs": tmp_path / "theirs" / ".venv" / "lib", "ours": tmp_path / "ours" / "src"}
    for where, at in places.items():
        (at / "posteer").mkdir(parents=True)
        (at / "posteer" / "__init__.py").write_text("")
        (tmp_path / where / "README").write_text("")
        git(tmp_path / where, "init")
        git(tmp_path / where, "add", "README")
        git(tmp_path / where, "commit", "-m", "x")
    (tmp_path / "ours" / "pyproject.toml").write_text('[project]\nname = "posteer"\n')
    asked = itertools.count()

    def revision(where):
        monkeypatch.setattr(posteer, "__file__", str(places[where] / "posteer" / "__init__.py"))
        return provenance(f"cpu {next(asked)}")["revision"]  # it is asked once for each device

    assert revision("theirs") is None and revision("ours") is None, "not tracked"
    for where in places:
        git(tmp_path / where, "add", "-A", "-f")
        git(tmp_path / where, "commit", "-m", "x")
    assert revision("theirs") is None, "tracked, but in another project"
    ours = revision("ours")
    assert re.fullmatch("[0-9a-f]{40}", ours)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "theirs" / ".git"))
    assert revision("ours") == ours
    (places["ours"] / "posteer" / "new.py").write_text("")
    assert revision("ours") == f"{ours}+changed"


def test_a_bank_among_the_parts_of_a_draw_is_named(tmp_path):
    bank = sample("exact:urn", **DRAW)
    parts = tmp_path / "b.safetensors.parts"
    parts.mkdir()
    bank.save(parts / "000000000-000000016.safetensors")
    with pytest.raises(InputError, match="is no part of a draw"):
        sample("exact:urn", **DRAW, out=tmp_path / "b.safetensors")


def test_what_others_put_beside_the_parts_stays(tmp_path):
    parts, out = tmp_path / "b.safetensors.parts", tmp_path / "b.safetensors"
    parts.mkdir()
    (parts / "notes.txt").write_text("mine")
    (parts / "other.safetensors").write_text("mine")
    (tmp_path / ".b.safetensors.12-0123abcd.part").write_text("half a bank")
    sample("exact:urn", **DRAW, out=out)
    assert sorted(path.name for path in parts.iterdir()) == ["notes.txt", "other.safetensors"]
    assert not list(tmp_path.glob(".*.part"))
    assert load_bank(out).kernels.equal(sample("exact:urn", **DRAW).kernels)


@pytest.mark.parametrize("facts", ["{", "[" * 100_000, "[1]", '{"a": NaN}', '{"origin": 3}'])
def test_facts_of_a_bank_that_are_none_are_one_line(tmp_path, facts):
    """With the right SHA-256: anybody can make one."""
    tensors = {"kernels": torch.full((2, 2, 2), 0.5, dtype=torch.float64)}
    digest = hashlib.sha256(facts.encode())
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    path = tmp_path / "bank.safetensors"
    metadata = {"format": FORMAT, "facts": facts, "sha256": digest.hexdigest()}
    save_file(tensors, path, metadata)
    with pytest.raises(InputError, match=r"bank\.safetensors"):
        load_bank(path)


def test_parts_that_do_not_fit_together_are_one_line(tmp_path):
    out = tmp_path / "b.safetensors"
    with pytest.raises(KeyboardInterrupt):
        sample("exact:urn", **DRAW, out=out, progress=_interrupt_after(16 * 12 + 1))
    (first,) = out.with_name("b.safetensors.parts").glob("*.safetensors")
    tensors, facts = unpack(first)
    first.write_bytes(pack({"counts": tensors["counts"][:, :1]}, facts))
    with pytest.raises(InputError, match="do not fit together"):
        sample("exact:urn", **DRAW, out=out)


def _interrupt_after(tokens):
    def progress(_what, done, _all):
        if done >= tokens:
            raise KeyboardInterrupt

    return progress


ORIGINS = {
    "source": 3, "model": None, "fingerprint": ["0"], "process": 5, "seed": "0", "seed ": True,
    "rollout_length": "12", "rollout_length ": -1, "context": "01", "context ": [2],
    "context  ": [0.5], "tokens": 1.5, "tokens ": None, "tokens  ": -3, "seconds": "1",
    "seconds ": -1.0, "device": {}, "created": 0, "version": [], "more": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", ORIGINS)
def test_an_origin_of_something_else_is_refused_by_its_field(name, tmp_path):
    field = name.strip()
    path = tmp_path / "bank.safetensors"
    sample("exact:urn", **DRAW).save(path)
    tensors, facts = unpack(path)
    assert load_bank(path).origin.seed == 0
    path.write_bytes(pack(tensors, {**facts, "origin": {**facts["origin"], field: ORIGINS[name]}}))
    with pytest.raises(InputError, match=rf"bank\.safetensors: its origin has {field}"):
        load_bank(path)
    path.write_bytes(pack(tensors, {**facts, "unvisited": 5}))
    with pytest.raises(InputError, match="unvisited 5"):
        load_bank(path)


@pytest.mark.parametrize("model", ["exact:rrxor", "personas(exact:urn,exact:beta-bernoulli)"])
def test_a_figure_that_cannot_be_drawn_is_refused_before_the_bank_is(model, tmp_path, capsys):
    line = f"sample --model {model} --rollouts 20 --length 9 --check --effort 0.1".split()
    files = ["--out", str(tmp_path / "bank"), "--figure", str(tmp_path / "x.svg")]
    assert "nothing is drawn: expected Markov ones" in refused(capsys, *line, *files)
    assert list(tmp_path.iterdir()) == []


def test_a_context_that_a_users_function_would_read_for_ever_is_refused():
    """It is asked after each token, and sent all tokens before: 40,000 took the square of that."""

    def coin(tokens):
        raise AssertionError("asked")

    model = FunctionModel(coin, vocab_size=2, order=0)
    asked = {"rollouts": 20, "length": 5, "context": (0, 1) * 20_000}
    with pytest.raises(InputError, match="a context of 40000 tokens: function is sent whole"):
        sample(model, **asked)
    with pytest.raises(InputError, match="expected at most 4096"):
        condition(model, asked["context"])
