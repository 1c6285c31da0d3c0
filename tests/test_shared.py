"""Workers that share a folder by leases alone: killed, paused, resumed, nothing is done twice."""

import json
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from far import HOOKS, Gate, hooked
from networks import small as small_network
from sweeps import SMALL, small, toml

from posteer.banks import DrawPlan
from posteer.banks.drawn import unpack
from posteer.banks.parts import folder_of
from posteer.banks.rollouts import draw_bank
from posteer.banks.sampling import sample
from posteer.banks.sharding import draw_together, missing, shard_size
from posteer.cli import main
from posteer.core.claiming import Claiming
from posteer.core.errors import InputError
from posteer.core.leases import Terms
from posteer.models import Metered, open_model
from posteer.sweeps.drawing import DrawnBy
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.jobs import job_from
from posteer.sweeps.jobs.draw import DrawJob
from posteer.sweeps.jobs.protocol import Hand
from posteer.sweeps.jobs.train import TrainJob
from posteer.sweeps.runner import Report, Runner
from posteer.sweeps.runs import batches, expand
from posteer.sweeps.store import RunStore
from posteer.sweeps.trainings import train_many
from posteer.training.folder import LostError
from posteer.training.loop import Trainer
from posteer.training.many import read_trainings
from posteer.training.plan import PRESETS

FEW = {"models": ["exact:urn"], "lengths": [3], "seeds": 2, "methods": ["coordinate"]}
RUNS = 4


class Hasty:
    """A clock on which every look takes long."""

    now = 0.0

    def __call__(self):
        self.now += 6.0
        return self.now


def test_a_sweep_begun_by_one_executor_is_finished_by_another(tmp_path):
    """By leases, then by locks, then by leases."""
    run_sweep(small(**FEW | {"seeds": 1}), tmp_path, batch_size=1, executor="shared")
    run_sweep(small(**FEW), tmp_path, batch_size=1, extend=True)
    solved = []
    report = Report(finished=solved.extend)
    more = FEW | {"seeds": 3}
    ended = run_sweep(
        small(**more), tmp_path, executor="shared(lease=5)", extend=True, report=report
    )
    assert ended.statuses == {"done": RUNS + 2} and len(solved) == 2
    assert list((tmp_path / "leases").iterdir()) == []


@pytest.mark.parametrize("large", [False, True])
def test_paused_past_its_lease_a_worker_stores_nothing(tmp_path, monkeypatch, large):
    """While it is at its first batch another comes, waits out the lease and solves everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("posteer.sweeps.store.MOST_LOOSE", 3 if large else 100)
    config, out, solved = hooked(tmp_path), tmp_path / "runs", ([], [])
    terms = Terms(10.0, Hasty())
    RunStore.create(out, config, 2, terms=terms)

    def runner(at):
        report = Report(finished=solved[at].extend)
        work = batches(expand(config).runs, 2)
        return Runner(RunStore(out, terms), work, {}, "cpu", report)

    HOOKS.append(runner(1).run)
    runner(0).run()
    assert HOOKS == [] and (len(solved[0]), len(solved[1])) == (0, 3)
    store = RunStore(out)
    assert len(store.records()[0]) == sum(s["runs"] for s in store.read_sessions()[0]) == 3
    assert list((out / "leases").iterdir()) == [] and list(out.rglob(".*")) == []


def test_settings_are_refused_before_anything_is_written(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(toml(**SMALL | FEW))
    line = ["sweep", "--config", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "runs")]
    refusals = {
        "shared(leas=3)": "unknown setting 'leas': did you mean lease?",
        "shared(lease=0)": "lease 0: expected seconds above 0",
        "local(lease=3)": "local: unknown setting 'lease': it has none",
        "ray(cpus=0)": "ray: cpus 0: expected at least 1",
        "slurm(minutes=x)": "slurm: minutes 'x': expected a whole number",
    }
    for executor, why in refusals.items():
        if executor.startswith("slurm"):
            pytest.importorskip("submitit")
        with pytest.raises(SystemExit):
            main([*line, "--executor", executor])
        assert why in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("name", "module"), [("slurm", "submitit"), ("ray", "ray")])
def test_an_extra_that_is_missing_is_one_line(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(InputError, match=rf"pip install 'posteer\[{name}\]'"):
        run_sweep(small(**FEW), tmp_path / "runs", executor=name)
    assert not (tmp_path / "runs").exists()


def worker(gate, lease=1):
    """A worker that anything might have started: a command of its own."""
    command = [sys.executable, "-m", "posteer.sweeps.execution", "--config", "mine.toml"]
    more = ["--out", "runs", "--batch", "2", "--executor", f"shared(lease={lease})"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, *more, "--device", "cpu"], cwd=gate.folder, **quiet)


@pytest.mark.slow
def test_workers_killed_and_paused_past_their_lease(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gate = Gate(tmp_path, seeds=12, lengths=[3, 4])
    chosen = {"models": ["exact:urn"], "methods": ["coordinate"], "name": "tiny"}
    settings = {"utilities": ["./mine.py:score"], "lengths": [3, 4], "seeds": 12}
    Path("mine.toml").write_text(toml(**chosen, **settings))
    alone = gate.alone()
    started = [worker(gate)]
    try:
        gate.one_more(set(), lambda: started[0].poll() is None)
        started.append(worker(gate))
        gate.one_more(gate.workers(), lambda: started[1].poll() is None)
        victim, paused = started
        victim.kill()
        paused.send_signal(signal.SIGSTOP)
        assert gate.stored() == 4, "both are in the middle of it"
        gate.open()
        started.append(worker(gate))
        assert started[2].wait() == 0
        before = {path: path.read_bytes() for path in (gate.out / "runs").iterdir()}
        assert len(before) == 24
        paused.send_signal(signal.SIGCONT)
        assert paused.wait() == 0, paused.stderr.read()
        assert before == {path: path.read_bytes() for path in (gate.out / "runs").iterdir()}
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stderr.close()
    gate.untouched(alone, 24)


# --- banks ---------------------------------------------------------------------------------------


def tensors(path):
    """All of a bank but what measures the machine."""
    held, facts = unpack(path)
    origin = {k: v for k, v in facts["origin"].items() if k not in ("seconds", "created")}
    return held, {**facts, "origin": origin}


def same_bank(one, other):
    (a, facts), (b, others) = tensors(one), tensors(other)
    assert facts == others and a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", ["exact:urn", "network"])
def test_a_bank_of_many_is_the_bank_of_one_to_the_bit(tmp_path, kind):
    """A network's arithmetic depends on its batch, exact Bayes's does not. One worker after the
    other, of two clocks, the second going on with what the first began."""
    model = small_network("learned") if kind == "network" else open_model(kind)
    plan = DrawPlan(n_samples=200, rollout_length=20, seed=3, keep_tokens=True)
    draw_bank(Metered(model), plan, tmp_path / "one.safetensors")
    out = tmp_path / "many.safetensors"
    claiming = [
        Claiming(tmp_path / "lock", tmp_path / "leases", terms) for terms in (Terms(), None)
    ]
    drawn = []

    def together(at):
        drawn.append(draw_together(Metered(model), plan, out, claiming[at], 64, begin=2 * at))

    threads = [threading.Thread(target=together, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 2 and not folder_of(out).exists()
    same_bank(out, tmp_path / "one.safetensors")


def test_what_one_process_began_many_finish(tmp_path):
    """Chunks of any cut: only what no chunk holds is drawn."""
    model = Metered(open_model("exact:urn"))
    plan = DrawPlan(n_samples=150, rollout_length=12)
    draw_bank(model, plan, tmp_path / "one.safetensors")
    out, stopped = tmp_path / "many.safetensors", []

    def stop(_what, done, _of):
        if done > 70 * 12:
            stopped.append(True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw_bank(Metered(open_model("exact:urn")), plan, out, chunk=70, progress=stop)
    assert stopped and missing(folder_of(out), 150, 64) == [(70, 128), (128, 150)]
    rest = Metered(open_model("exact:urn"))
    draw_together(rest, plan, out, Claiming(tmp_path / "lock", tmp_path / "leases"), 64)
    assert rest.queries.forward_tokens == 80 * 11
    same_bank(out, tmp_path / "one.safetensors")


def test_ranges_are_whole_blocks_enough_for_all():
    assert shard_size(DrawPlan(n_samples=5000), 4) == 320
    assert shard_size(DrawPlan(n_samples=100), 64) == 64
    assert missing(Path("nowhere"), 130, 64) == [(0, 64), (64, 128), (128, 130)]


def test_by_command_workers_share_a_draw(tmp_path, capsys):
    line = ["sample", "--model", "exact:urn", "--rollouts", "130", "--length", "10"]
    main([*line, "--out", str(tmp_path / "one.safetensors")])
    main([*line, "--out", str(tmp_path / "two.safetensors"), "--executor", "shared"])
    same_bank(tmp_path / "one.safetensors", tmp_path / "two.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "one.safetensors",
        "two.safetensors",
    ]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*line, "--check", "--executor", "shared"])
    assert "expected --out" in capsys.readouterr().err


def test_a_draw_whose_size_is_found_out_is_not_shared(tmp_path):
    def alternating(tokens):
        return [0.5, 0.5]

    from posteer import wrap

    model = wrap(alternating, vocab_size=2)
    with pytest.raises(InputError, match="expected `rollouts` and `length`"):
        sample(model, out=tmp_path / "bank", drawn_by=DrawnBy("shared", 2, "./mine.py:model"))


def test_jobs_are_told_and_made_again(tmp_path):
    plan = DrawPlan(n_samples=9, context=(0, 1), family="markov(order=2)")
    draw = DrawJob("exact:urn", plan, tmp_path / "bank", 64, None, "once")
    train = TrainJob(tmp_path, {"a": PRESETS["tiny"]})
    for job in (draw, train):
        assert job_from(json.loads(json.dumps(job.to_json()))) == job


# --- trainings -----------------------------------------------------------------------------------

TINY = replace(PRESETS["tiny"], steps=6, length=12, batch=4, warmup=2)


def weights(folder):
    return open_model(str(folder / "model")).network.state_dict()


def test_trainings_go_through_executors_and_are_taken_up(tmp_path):
    """The second was begun by somebody and stopped half-way; both are those of a trainer alone."""
    plans = {"a": TINY, "b": replace(TINY, seed=1)}
    Trainer(plans["b"], tmp_path / "many" / "b", log_every=1).run(max_minutes=0.0)
    ended = train_many(plans, tmp_path / "many", device="cpu", executor="shared")
    assert ended == {name: {"status": "finished", "step": 6} for name in plans}
    for name, plan in plans.items():
        Trainer(plan, tmp_path / name).run()
        alone, many = weights(tmp_path / name), weights(tmp_path / "many" / name)
        assert all(torch.equal(alone[key], many[key]) for key in alone)
    assert train_many(plans, tmp_path / "many", device="cpu") == ended
    with pytest.raises(InputError, match="none of these trainings"):
        train_many({"a": TINY}, tmp_path / "many")


def test_a_trainer_that_lost_its_folder_writes_nothing(tmp_path):
    trainer = Trainer(TINY, tmp_path / "a", log_every=1, checkpoint_every=2)
    trainer.folder.still_ours = lambda: trainer.step < 3
    with pytest.raises(LostError):
        trainer.run()
    assert [path.name for path in trainer.folder.saved()] == ["step-0000002"]
    assert not (tmp_path / "a" / "model").exists()


def test_two_hands_share_trainings(tmp_path):
    job = TrainJob(tmp_path, {name: replace(TINY, seed=at) for at, name in enumerate("abc")})
    done = []
    hands = [
        Hand("cpu", Report(within=lambda name, *_: done.append(name)), Terms(), at, 2)
        for at in (0, 1)
    ]
    threads = [threading.Thread(target=job.work, args=(hand,)) for hand in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert job.left() == [] and sorted(done) == ["a", "b", "c"]


def test_trainings_from_a_file(tmp_path, capsys):
    path = tmp_path / "many.toml"
    tiny = 'name = "t"\npreset = "tiny"\n'
    path.write_text(f"seeds = [0, 4]\n[[training]]\n{tiny}steps = 3\nlength = 8\nbatch = 2\n")
    plans = read_trainings(path)
    assert list(plans) == ["t-0", "t-4"] and plans["t-4"].seed == 4 and plans["t-0"].steps == 3
    line = ["train-many", "--config", str(path), "--out", str(tmp_path / "out"), "--device", "cpu"]
    main([*line, "--json"])
    ended = json.loads(capsys.readouterr().out)
    assert ended["trainings"]["t-4"] == {"status": "finished", "step": 3}
    for text, why in {
        'seeds = 3\n[[training]]\nname="a"': "seeds 3: expected whole numbers",
        "[[training]]": "name '': expected letters",
        '[[training]]\nname = "a"\nstps = 3': "unknown key 'stps': did you mean steps?",
        '[[training]]\nname = "a"\nsteps = "3"': "steps '3': expected int",
        '[[training]]\nname = "../a"\npreset = "tiny"': "name '../a': expected letters",
        '[[training]]\nname = "a"\npreset = "huge"': "a: unknown preset 'huge'",
        "x = 1": "unknown key 'x'",
        "[training]\nname = 3": "expected tables",
        f"[[training]]\n{tiny}[[training]]\n{tiny}": "two trainings",
    }.items():
        path.write_text(text)
        with pytest.raises(InputError, match=re.escape(why)):
            read_trainings(path)
