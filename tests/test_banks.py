"""Banks as files: whole or refused, and draws that go on where they stopped."""

import json
import multiprocessing
import shutil
import threading

import pytest
import torch
from kills import wait_for
from networks import metered

from posteer.banks import DrawPlan, draw_bank, load_bank, sample
from posteer.banks.rollouts import roll_out
from posteer.cli import main
from posteer.core.errors import InputError
from posteer.tokens.contexts import ContextSpace


def test_a_bank_comes_back_as_it_was(tmp_path):
    out = tmp_path / "bank.safetensors"
    bank = sample("exact:urn", rollouts=50, length=64, out=out, keep_tokens=True, context="01")
    again = load_bank(out)
    assert again.origin == bank.origin
    assert again.space == ContextSpace(2, 1)
    assert again.unvisited == "donor"
    for name in ("kernels", "counts", "sequences"):
        assert torch.equal(getattr(again, name), getattr(bank, name))
    assert again.snapshots.keys() == bank.snapshots.keys() == {8, 16, 32}
    assert bank.origin.process == "markov(vocab=2,order=1,concentration=0.5)"
    assert [path.name for path in tmp_path.iterdir()] == ["bank.safetensors"]
    before = out.stat().st_mtime_ns
    sample("exact:urn", rollouts=50, length=64, out=out, keep_tokens=True, context="01")
    assert out.stat().st_mtime_ns == before, "a finished draw is not repeated"
    with pytest.raises(InputError, match="holds another draw"):
        sample("exact:urn", rollouts=50, length=64, out=out, seed=1)


@pytest.mark.parametrize("size", [0, 7, 100, 1000, -9])
def test_a_truncated_bank_is_refused(tmp_path, size):
    out = tmp_path / "bank.safetensors"
    sample("exact:urn", rollouts=50, length=64, out=out)
    data = out.read_bytes()
    out.write_bytes(data[:size])
    with pytest.raises(InputError, match="cut short"):
        load_bank(out)


def test_altered_and_foreign_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    out = tmp_path / "bank.safetensors"
    sample("exact:urn", rollouts=50, length=64, out=out)
    data = bytearray(out.read_bytes())
    data[-3] ^= 1
    out.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        load_bank(out)
    save_file({"kernels": torch.ones(3, 2, 2)}, out)
    with pytest.raises(InputError, match="not a bank"):
        load_bank(out)
    with pytest.raises(InputError, match="no such bank"):
        load_bank(tmp_path / "nothing")


def finished(parts):
    return sorted(parts.glob("[0-9]*.safetensors"))


def _draw_until_killed(out, enough):
    """Two chunks past `enough` it waits, so that no kill comes too late."""

    def wait(_what, tokens, _total):
        if tokens > (enough + 2) * 10 * 100:
            threading.Event().wait()

    sample("exact:urn", rollouts=200, length=100, chunk=10, out=out, progress=wait)


def test_an_interrupted_draw_goes_on_and_gives_the_same_bank(tmp_path, capsys):
    """Killed for real, twice, while chunks are being written; what was finished is not redone."""
    out = tmp_path / "bank.safetensors"
    parts = tmp_path / "bank.safetensors.parts"
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["posteer.banks"])
    for enough in (3, 8):
        process = forks.Process(target=_draw_until_killed, args=(str(out), enough), daemon=True)
        process.start()
        assert wait_for(lambda n=enough: len(finished(parts)) >= n, process.is_alive, 600.0)
        process.kill()
        process.join()
        assert not out.exists()
    kept = finished(parts)
    assert 8 <= len(kept) <= 10
    kept[0].write_bytes(kept[0].read_bytes()[:50])  # a crash of the machine cut it short
    words = ["--rollouts", "200", "--length", "100", "--chunk", "10", "--out", str(out), "--json"]
    main(["sample", "--model", "exact:urn", *words])
    record = json.loads(capsys.readouterr().out)
    assert record["rollouts"] == 200
    assert record["tokens"] == 200 * 99
    assert not parts.exists()
    straight = sample("exact:urn", rollouts=200, length=100)
    bank = load_bank(out)
    assert torch.equal(bank.kernels, straight.kernels)
    assert torch.equal(bank.counts, straight.counts)


def test_overlapping_chunks_do_not_double_rollouts(tmp_path):
    """As a draw killed under one chunk size and gone on with another might leave them."""
    model, plan = metered("exact:urn"), DrawPlan(n_samples=200, rollout_length=30)
    left = []
    for chunk in (100, 64):
        out = tmp_path / str(chunk) / "bank.safetensors"
        out.parent.mkdir()

        def stop(_what, done, _total, chunk=chunk):
            if done > (128 // chunk) * chunk * 30:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            draw_bank(model, plan, out, chunk=chunk, progress=stop)
        left.append(out.with_name("bank.safetensors.parts"))
    for part in left[0].glob("*.safetensors"):
        shutil.copy(part, left[1])
    assert sorted(part.stem.split("-")[0] for part in left[1].glob("*.safetensors")) == [
        "000000000",
        "000000000",
        "000000064",
    ]
    bank = draw_bank(model, plan, out)
    assert torch.equal(bank.counts, draw_bank(model, plan).counts)


def test_two_processes_do_not_draw_one_bank(tmp_path):
    from posteer.banks.parts import Parts

    out = tmp_path / "bank.safetensors"
    (tmp_path / "bank.safetensors.parts").mkdir()
    with Parts(out, "other"), pytest.raises(InputError, match="another process is drawing"):
        sample("exact:urn", rollouts=20, length=20, out=out)
    assert len(sample("exact:urn", rollouts=20, length=20, out=out)) == 20


def test_a_crash_before_tidying_up_is_tidied_up_later(tmp_path):
    out = tmp_path / "bank.safetensors"
    sample("exact:urn", rollouts=20, length=20, out=out)
    (tmp_path / "bank.safetensors.parts").mkdir()
    sample("exact:urn", rollouts=20, length=20, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["bank.safetensors"]


def test_long_rollouts_need_little_memory(monkeypatch):
    """Random numbers are made as they are used: neither how many at a time nor which rollouts are
    asked for changes them."""
    bank = sample("exact:coins(0.2,0.7)", rollouts=2, length=1000)
    assert int(bank.counts.sum()) == 2000
    model, plan = metered("exact:urn"), DrawPlan(n_samples=70, rollout_length=300)
    whole = roll_out(model, plan, model.family, 0, 70).counts
    assert torch.equal(roll_out(model, plan, model.family, 3, 67).counts, whole[3:])
    monkeypatch.setattr("posteer.banks.rollouts.STEPS_OF_UNIFORMS", 300)
    assert torch.equal(roll_out(model, plan, model.family, 0, 70).counts, whole)


def test_an_unfinished_draw_with_other_settings_is_refused(tmp_path):
    out = tmp_path / "bank.safetensors"

    def stop(_what, done, _total):
        if done > 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample("exact:urn", rollouts=40, length=50, out=out, chunk=5, progress=stop)
    with pytest.raises(InputError, match="unfinished draw with other settings"):
        sample("exact:urn", rollouts=40, length=50, out=out, seed=1)
    kept = len(list((tmp_path / "bank.safetensors.parts").glob("*.safetensors")))
    assert kept >= 2
    model = metered("exact:urn")
    draw_bank(model, DrawPlan(n_samples=40, rollout_length=50), out, chunk=7)
    assert model.queries.forward_tokens == (40 - 5 * kept) * 49
