"""Banks of models that nobody has timed: sized by time, tokens and length, kept, and resumed."""

import json
import re

import pytest
import torch

import posteer
from posteer.api import elicit
from posteer.banks import DrawPlan, load_bank, sample, sizing
from posteer.banks.probes import HISTORIES, LAWS
from posteer.banks.shipped import shipped_bank
from posteer.banks.sizing import draw_within
from posteer.cli import main
from posteer.core.errors import InputError, Interrupted
from posteer.methods.registry import open_method
from posteer.models import FunctionModel, Metered
from posteer.sweeps.configuration import config_from
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.runs import expand
from posteer.views.sentences import interrupted_text

FREE = ("n_samples", "rollout_length")
PROBED = HISTORIES * (LAWS - 1)
"""Tokens that tell whether a model is still the one that something was drawn from."""


class Timed:
    """A fair coin that takes so long a call and so long a position that it is sent, by a clock of
    its own."""

    def __init__(self, per_call=0.0, per_position=0.0):
        self.per_call, self.per_position = per_call, per_position
        self.now, self.longest, self.asked = 0.0, 0, 0

    def __call__(self, tokens):
        self.now += self.per_call + self.per_position * tokens.numel()
        self.longest = max(self.longest, tokens.shape[1])
        self.asked += len(tokens) * (tokens.shape[1] > 0)
        return torch.full((len(tokens), 2), 0.5)

    def meter(self, max_length=None):
        model = FunctionModel(self, vocab_size=2, order=0, max_length=max_length)
        return Metered(model)

    def draw(self, plan, max_length=None, **more):
        return draw_within(self.meter(max_length), plan, clock=lambda: self.now, **more)


def small_plan(**more):
    return DrawPlan(**{"n_samples": 200, "rollout_length": 256, "free": FREE, **more})


@pytest.mark.parametrize(
    ("per_call", "per_position", "seconds", "sizes"),
    [
        (0.0, 0.0, 1.0, (200, 256)),
        (0.0, 1e-5, 1e4, (200, 256)),
        (0.0, 1e-5, 3.0, (128, 64)),
        (1.0, 0.0, 150.0, (128, 64)),
        (9.0, 0.0, 1.0, (64, 64)),
    ],
)
def test_a_bank_is_as_large_as_the_time_allows(per_call, per_position, seconds, sizes):
    """By a clock that the model itself turns: a block of 64 tokens takes 1.3 s at 1e-5 s a position
    and 64 s at one second a call. The first block is drawn whatever it takes."""
    coin = Timed(per_call, per_position)
    bank = coin.draw(small_plan(seconds=seconds))
    n, length = sizes
    assert (len(bank), bank.origin.rollout_length) == sizes
    assert bank.tokens == coin.asked == n * (length - 1), "what was measured is used"
    assert coin.now <= seconds or sizes == (64, 64)
    again = sample(coin.meter().inner, rollouts=n, length=length)
    assert torch.equal(again.counts, bank.counts), "its sizes draw it again"
    assert sorted(again.snapshots) == sorted(bank.snapshots)
    for length, counts in again.snapshots.items():
        assert torch.equal(counts, bank.snapshots[length])


def test_sizes_that_are_named_win_and_the_models_length_is_kept():
    slow = Timed(per_call=1e6)
    assert len(slow.draw(small_plan(free=("rollout_length",), n_samples=90))) == 90
    fixed = slow.draw(small_plan(free=("n_samples",), rollout_length=30))
    assert (len(fixed), fixed.origin.rollout_length) == (64, 30)
    short = Timed()
    assert short.draw(small_plan(), max_length=70).origin.rollout_length == 71
    assert short.longest == 70
    after = short.draw(small_plan(context=(0, 1)), max_length=70)
    assert after.origin.rollout_length == 69 and short.longest == 70


def test_tokens_bound_it_too():
    coin = Timed()
    for most, sizes in ((64 * 63, (64, 64)), (190 * 63, (128, 64)), (10**6, (200, 256))):
        bank = coin.draw(small_plan(), tokens=most)
        assert (len(bank), bank.origin.rollout_length) == sizes and bank.tokens <= most
    with pytest.raises(InputError, match="takes 4,032 model tokens and the budget is 4,031"):
        coin.draw(small_plan(), tokens=64 * 63 - 1)


def test_progress_begins_before_the_model_is_asked():
    coin, told = Timed(), []
    coin.draw(small_plan(), progress=lambda *now: told.append((*now, coin.asked)))
    assert told[0] == ("measuring speed", 0, 256, 0)
    assert told[-1][:3] == ("rolling out", 200 * 256, 200 * 256)


def test_an_interrupted_draw_goes_on_with_what_is_left(tmp_path):
    out = tmp_path / "bank.safetensors"
    plan = small_plan(seconds=1e5)

    def stop(what, done, _at_most):
        if what == "rolling out" and done > 128 * 256:
            raise KeyboardInterrupt

    coin = Timed(per_call=1.0)
    with pytest.raises(Interrupted) as stopped:
        coin.draw(plan, out=out, progress=stop)
    assert (stopped.value.done, stopped.value.wanted) == (128, 200)
    assert re.search("128 of at most 200 rollouts are kept in", interrupted_text(stopped.value))
    rest = Timed(per_call=1.0)
    bank = rest.draw(plan, out=out)
    assert len(bank) == 200 and rest.asked == (200 - 128) * 255 + PROBED
    assert not out.with_name("bank.safetensors.parts").exists()
    assert torch.equal(bank.counts, load_bank(out).counts)
    assert torch.equal(bank.counts, Timed().draw(plan).counts)
    again = Timed()
    assert len(again.draw(plan, out=out)) == 200 and again.asked == PROBED
    with pytest.raises(InputError, match="holds another draw"):
        again.draw(small_plan(seed=9), out=out)
    with pytest.raises(Interrupted) as lost:
        coin.draw(plan, progress=stop)
    assert "no rollout is kept" in interrupted_text(lost.value)


def test_an_interruption_after_the_draw_says_where_the_bank_is(tmp_path):
    out = tmp_path / "bank.safetensors"

    def stop(what, _done, _at_most):
        if what not in ("measuring speed", "rolling out"):
            raise KeyboardInterrupt

    method = "classes(samples=64,rollout-length=20,estimator=importance)"
    asked = {"length": 4, "method": method, "progress": stop}
    with pytest.raises(Interrupted) as stopped:
        elicit(Timed().meter().inner, "dyck", **asked, save_bank=out)
    assert f"64 of at most 64 rollouts are kept in {out};" in interrupted_text(stopped.value)
    assert len(load_bank(out)) == 64


MODEL = """
import pathlib
import torch

def predict(tokens):
    if len(tokens) > 64 and pathlib.Path({stop!r}).exists():
        raise KeyboardInterrupt
    return torch.full((len(tokens), 2), 0.5)

predict.vocab_size, predict.order, predict.max_length = 2, 0, 100
"""


def test_the_command_says_what_is_kept_and_goes_on(tmp_path, capsys):
    stop, source = tmp_path / "stop", tmp_path / "mine.py"
    bank = tmp_path / "mine.safetensors"
    source.write_text(MODEL.format(stop=str(stop)))
    command = ["elicit", "--model", f"{source}:predict", "--utility", "frequency(0.4)", "--json"]
    command += ["--method", "classes(samples=200,estimator=importance)"]
    stop.touch()
    for saving in ([], ["--save-bank", str(bank)]):
        with pytest.raises(SystemExit) as left:
            main([*command, *saving])
        assert left.value.code == 130
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and told.startswith("posteer: interrupted")
    assert f"64 of at most 200 rollouts are kept in {bank}.parts; the same command goes on" in told
    stop.unlink()
    main([*command, "--save-bank", str(bank)])
    found = json.loads(capsys.readouterr().out)
    assert found["drawn"] == {
        "rollouts": 200,
        "rollout_length": 101,
        "settings": "samples=200,rollout-length=101",
        "check": None,
    }
    assert (
        found["cost"]["drawn_tokens"] == 136 * 100 + PROBED
        and found["cost"]["bank_tokens"] == 200 * 100
    )
    assert len(load_bank(bank)) == 200
    main([*command, "--bank", str(bank)])
    given = json.loads(capsys.readouterr().out)
    assert given["prompt"] == found["prompt"] and given["drawn"] is None
    main([*command[:-3], *command[-2:], "--no-rank", "--verbose"])
    panel = capsys.readouterr().out
    assert "200 rollouts of 101 tokens" in panel and "samples=200,rollout-length=101" in panel
    assert "not looked for: all prompts take 1,280 model tokens" in panel


@pytest.mark.parametrize(
    ("model", "method", "more", "why"),
    [
        ("exact:urn", "auto", {}, "classes-analytic is used, which draws none"),
        ("exact:urn", "beam", {}, "beam draws none"),
        ("urn", "classes", {}, "urn has one that is shipped: no bank is drawn"),
        ("urn", "classes", {"bank": "shipped"}, "the bank is given: no bank is drawn"),
    ],
)
def test_a_bank_that_is_not_drawn_cannot_be_saved(model, method, more, why, tmp_path):
    if more:
        more = {"bank": shipped_bank(posteer.load(model).fingerprint)}
    out = tmp_path / "bank.safetensors"
    with pytest.raises(InputError, match=f"`save_bank`: {why}"):
        elicit(model, "dyck", length=4, method=method, save_bank=out, **more)
    assert not out.exists()
    with pytest.raises(InputError, match="there is no folder"):
        elicit(
            "exact:urn",
            "dyck",
            length=4,
            method="ppt-rb(samples=9,rollout-length=9)",
            save_bank=tmp_path / "no" / "bank",
        )


@pytest.mark.slow
def test_auto_names_the_sizes_it_found_and_keeps_the_bank():
    lengths = []

    def predict(tokens):
        lengths.append(tokens.shape[1])
        ones = ((tokens == 1).sum(1).double() + 1) / (tokens.shape[1] + 2)
        return torch.stack([1 - ones, ones], 1)

    model = FunctionModel(predict, vocab_size=2, order=0, max_length=80)
    found = elicit(model, "frequency(0.4)", length=13, max_model_tokens=300 * 80)
    assert found.choice.method == "classes(samples=256,rollout-length=81)"
    assert found.choice.reasons[0].figures == {"tokens": 256 * 80}
    assert max(lengths) == 80 and len(found.bank) == 256
    settings = "samples=256,rollout-length=81"
    again = elicit(model, "frequency(0.4)", length=13, method=f"classes({settings})")
    assert again.prompt == found.prompt and again.surrogate == found.surrogate
    assert torch.equal(again.bank.counts, found.bank.counts)


@pytest.mark.parametrize("given", [False, True])
def test_fewer_samples_are_the_first_of_a_bank_that_is_there(given):
    """No token of the model is asked for."""
    model = posteer.load("urn")
    whole = shipped_bank(model.fingerprint)
    method = "ppt-rb(samples=1000,steps=2)"
    found = elicit(model, "dyck", length=6, method=method, bank=whole if given else None)
    assert found.cost["forward_tokens"] == found.cost["drawn_tokens"] == 0
    assert found.cost["bank_tokens"] == 1000 * 1999
    first = whole.first(1000)
    assert torch.equal(first.kernels, whole.kernels[:1000])
    assert torch.equal(first.counts, whole.counts[:1000])
    for length, counts in whole.snapshots.items():
        assert torch.equal(first.snapshots[length], counts[:1000])
    alone = elicit(model, "dyck", length=6, method="ppt-rb(steps=2)", bank=first)
    assert alone.surrogate_history == pytest.approx(found.surrogate_history, abs=1e-12)


def test_sweeps_take_the_first_of_a_shipped_bank_too():
    settings = {"models": "urn", "utilities": "dyck", "seeds": [0]}
    methods = ["ppt-rb(samples=1000)", "ppt-rb", "ppt-rb(rollout-length=100)"]
    runs = expand(config_from(settings | {"methods": methods}, "here")).runs
    few, all_of_it, other = (run.bank for run in runs)
    assert few == all_of_it is not None and other is None


def test_a_size_that_is_named_is_no_other_one_on_resuming(tmp_path):
    out = tmp_path / "bank.safetensors"

    def stop(_what, done, _at_most):
        if done >= 100:
            raise KeyboardInterrupt

    half = small_plan(rollout_length=50, free=("n_samples",))
    with pytest.raises(Interrupted):
        Timed().draw(half, out=out, progress=stop)
    with pytest.raises(InputError, match="unfinished draw with other settings"):
        Timed().draw(small_plan(rollout_length=90, free=("n_samples",)), out=out)
    assert Timed().draw(half, out=out).origin.rollout_length == 50
    with pytest.raises(InputError, match="holds another draw"):
        Timed().draw(small_plan(rollout_length=90, free=("n_samples",)), out=out)
    assert Timed().draw(small_plan(), out=out).reused, "any size will do where none is named"


def leaning(tokens):
    return torch.tensor([[0.1, 0.9]]).expand(len(tokens), 2)


def test_a_bank_of_any_size_is_refused_once_the_model_has_changed(tmp_path):
    coin, model = Timed(), {"vocab_size": 2, "order": 0, "fingerprint": "mine"}
    for unfinished in (False, True):
        out = tmp_path / f"{unfinished}.safetensors"
        plan, told = small_plan(), []

        def stop(_what, done, _at_most, told=told, unfinished=unfinished):
            told.append(done)
            if unfinished and done > 64 * 256:
                raise KeyboardInterrupt

        mine = Metered(FunctionModel(coin, **model))
        try:
            draw_within(mine, plan, out, progress=stop)
        except Interrupted:
            assert unfinished
        with pytest.raises(InputError, match="has changed since the bank was drawn"):
            draw_within(Metered(FunctionModel(leaning, **model)), plan, out)


SHORT = """
import torch

def predict(tokens):
    ones = ((tokens == 1).sum(1).double() + 1) / (tokens.shape[1] + 2)
    return torch.stack([1 - ones, ones], 1)

predict.vocab_size, predict.order, predict.max_length = 2, 0, 70
"""


def test_sample_sizes_a_bank_of_a_users_function(tmp_path, capsys):
    """No size was given: rollouts are no longer than the model reads, one block in no time."""
    source, out = tmp_path / "mine.py", tmp_path / "bank.safetensors"
    source.write_text(SHORT)
    command = ["sample", "--model", f"{source}:predict", "--out", str(out), "--json"]
    main([*command, "--seconds", "1e-9"])
    told = json.loads(capsys.readouterr().out)
    assert (told["rollouts"], told["length"], told["reused"]) == (64, 71, False)
    main(command)
    assert json.loads(capsys.readouterr().out)["reused"]
    assert len(sample(f"{source}:predict", rollouts=9)) == 9
    bank = sample(f"{source}:predict", length=20, seconds=1e-9)
    assert (len(bank), bank.origin.rollout_length) == (64, 20)
    with pytest.raises(InputError, match="seconds 0: expected more than 0"):
        sample("exact:urn", seconds=0)


def test_a_sweep_keeps_the_sizes_it_found(tmp_path, monkeypatch):
    """A bank that is lost is drawn again as it was, though by now the first block is smaller."""
    source, out = tmp_path / "mine.py", tmp_path / "runs"
    source.write_text(SHORT)
    asked = {"models": f"{source}:predict", "utilities": "frequency(0.3)", "lengths": [3]}
    method = "classes(seconds=1e-9,estimator=importance)"
    config = config_from({**asked, "methods": method, "seeds": 2}, "here")
    assert run_sweep(config, out, device="cpu").statuses == {"done": 2}
    (kept,) = (out / "banks").glob("*.safetensors")
    first = kept.read_bytes()
    drawn = load_bank(kept)
    assert (len(drawn), drawn.origin.rollout_length) == (64, 71)
    names = {path.name for path in (out / "runs").iterdir()}
    again = run_sweep(config, out, device="cpu")
    assert again.statuses == {"done": 2} and kept.read_bytes() == first
    kept.write_bytes(first[:-9])
    for path in (out / "runs").iterdir():
        path.unlink()
    monkeypatch.setattr(sizing, "BLOCK", 32)
    assert run_sweep(config, out, device="cpu").statuses == {"done": 2}
    assert torch.equal(load_bank(kept).counts, drawn.counts)
    assert {path.name for path in (out / "runs").iterdir()} == names


def test_sizes_are_free_unless_named():
    assert open_method("classes").draw.free == open_method("auto").needs.draw.free == FREE
    assert open_method("ppt(samples=9)").draw.free == ("rollout_length",)
    assert open_method("ppt(samples=9,rollout-length=9)").draw.free == ()
    assert open_method("classes(seconds=5)").draw.seconds == 5.0
    assert open_method("classes").draw == DrawPlan()
    with pytest.raises(InputError, match="seconds 0: expected more than 0"):
        open_method("classes(seconds=0)")
