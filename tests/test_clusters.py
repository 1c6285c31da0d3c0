"""Executors of clusters, for real on one machine: Slurm's jobs by submitit's own local cluster, Ray
on nodes of its own cluster utility. What dies is replaced, and nothing is lost or done twice."""

import os
import signal
import threading
from pathlib import Path

import pytest
from far import CEILING, Gate
from kills import wait_for

from posteer.banks import DrawPlan
from posteer.banks.drawn import unpack
from posteer.banks.rollouts import draw_bank
from posteer.banks.sampling import sample
from posteer.core.errors import InputError
from posteer.models import Metered, open_model
from posteer.sweeps.drawing import DrawnBy
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.runner import Report

TOTAL = 24


class Driver:
    """A sweep's command, in a thread."""

    def __init__(self, gate, executor):
        self.ended, self.error, self.solved = None, None, []

        def run():
            try:
                report = Report(finished=self.solved.extend)
                how = {"batch_size": 2, "workers": 2, "executor": executor, "report": report}
                self.ended = run_sweep(gate.config, gate.out, device="cpu", **how)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def running(self):
        return self.thread.is_alive()

    def finish(self):
        self.thread.join(CEILING)
        assert self.error is None, self.error
        assert self.ended.statuses == {"done": TOTAL} and len(self.solved) == TOTAL


def alive(number):
    """Not one that is dead and that nobody has asked after: who does is not everywhere there."""
    try:
        os.kill(number, 0)
        stat = Path(f"/proc/{number}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.fixture
def gate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Gate(tmp_path, seeds=12, lengths=[3, 4])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_slurm_queues_a_preempted_job_again(gate):
    pytest.importorskip("submitit")
    alone = gate.alone()
    driver = Driver(gate, "slurm(cluster=local,lease=2,cpus=1)")
    first = gate.one_more(set(), driver.running)
    second = gate.one_more({first}, driver.running)
    os.kill(second, signal.SIGUSR2)
    third = gate.one_more({first, second}, driver.running)
    logs = (gate.out / "jobs" / "slurm").rglob("*_log.*")
    assert any("Requeued job" in path.read_text() for path in logs)
    os.kill(first, signal.SIGKILL)
    assert gate.stored() == 6 and third not in (first, second)
    gate.open()
    driver.finish()
    gate.untouched(alone, TOTAL)


@pytest.fixture
def cluster(monkeypatch, tmp_path_factory):
    """A head that takes no work and two nodes that do, on this machine."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    def started():
        made = Cluster()
        try:
            made.add_node(num_cpus=0, include_dashboard=False)
            made.workers = [made.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
        except Exception:
            made.shutdown()
            raise
        return made

    for tries_left in (2, 1, 0):  # Ray gives a node half a minute: little where much else runs
        try:
            made = started()
            break
        except Exception:
            if not tries_left:
                raise
    try:
        yield made
    finally:
        import ray

        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_outlives_a_worker_and_a_node(cluster, gate):
    import ray

    alone = gate.alone()
    executor = f"ray(address={cluster.address},lease=2)"

    out = gate.folder / "bank.safetensors"
    settings = {"rollouts": 300, "length": 20, "out": out, "device": "cpu"}
    sample("exact:urn", **settings, drawn_by=DrawnBy(executor, 2, "exact:urn", "cpu"))
    plan = DrawPlan(n_samples=300, rollout_length=20)
    draw_bank(Metered(open_model("exact:urn")), plan, gate.folder / "one.safetensors")
    drawn, one = unpack(out)[0], unpack(gate.folder / "one.safetensors")[0]
    assert drawn.keys() == one.keys() and all(drawn[name].equal(one[name]) for name in one)

    driver = Driver(gate, executor)
    first = gate.one_more(set(), driver.running)
    second = gate.one_more({first}, driver.running)
    os.kill(first, signal.SIGKILL)
    third = gate.one_more({first, second}, driver.running)  # Ray has started the killed one again
    cluster.remove_node(cluster.workers[0], allow_graceful=False)
    gone = lambda: not all(alive(number) for number in (second, third))  # noqa: E731
    assert wait_for(gone, driver.running, CEILING), "a node's workers die with it"
    gate.open()
    driver.finish()
    assert not ray.is_initialized(), "the connection was ours and ended with the command"
    gate.untouched(alone, TOTAL)


@pytest.mark.filterwarnings("ignore")
def test_ray_without_tokens_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(InputError, match="RAY_AUTH_MODE is 'disabled': expected token"):
        sample(
            "exact:urn", rollouts=2, length=9, out=tmp_path / "b", drawn_by=DrawnBy("ray", 1, "")
        )
