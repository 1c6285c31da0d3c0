"""Sweeps that stop at a gate, so that workers can be killed and paused in the middle of their work.

The utility of such a sweep waits in the second batch of a process until the gate is open. Waiting
is for files, never for a time.
"""

from pathlib import Path

from kills import different_results, different_tables, wait_for
from sweeps import small

from posteer.sweeps.execution import run_sweep
from posteer.sweeps.store import RunStore

CEILING = 600.0
"""Seconds after which what is waited for will not come, on any machine."""
HOOKS = []
"""What is done once the utility of `hooked` is next asked."""

GATED = """
import os, time
HERE = os.path.dirname(os.path.abspath(__file__))
def score(y):
    while True:
        solved = os.listdir(os.path.join(HERE, "runs", "sessions"))
        new = not any(name.endswith(f"-{os.getpid()}.json") for name in solved)
        if new or os.path.exists(os.path.join(HERE, "open")):
            return y[0] + 0.5 * y[1]
        open(os.path.join(HERE, f"waiting-{os.getpid()}"), "w").close()
        time.sleep(0.005)
"""

HOOKED = """
from far import HOOKS
def score(y):
    if HOOKS:
        HOOKS.pop()()
    return y[0]
"""


class Gate:
    """A folder with a sweep in which each process solves one batch, then waits for it to open."""

    def __init__(self, folder, **changes):
        self.folder, self.out = folder, folder / "runs"
        (folder / "mine.py").write_text(GATED)
        chosen = {"models": ["exact:urn"], "methods": ["coordinate"], "seeds": 8, "lengths": [3]}
        self.config = small(**chosen | {"utilities": ["./mine.py:score"]} | changes)

    def open(self):
        (self.folder / "open").touch()

    def alone(self):
        """The same sweep, that nothing happened to."""
        (self.out / "sessions").mkdir(parents=True)
        self.open()
        out = self.folder / "alone"
        run_sweep(self.config, out, batch_size=2)
        (self.folder / "open").unlink()
        return out

    def stored(self):
        return len(list((self.out / "runs").glob("[!.]*.json")))

    def workers(self):
        """Processes that have solved a batch and wait at the gate with another, by their number.
        Before that they might be killed between two files: that is another test."""
        return {int(path.name.rpartition("-")[2]) for path in self.folder.glob("waiting-*")}

    def one_more(self, known, running=lambda: True):
        """A process that waits in its second batch and was not known."""
        assert wait_for(lambda: self.workers() - known, running, CEILING), "no one has come"
        return next(iter(self.workers() - known))

    def untouched(self, alone, total):
        """Nothing lost, nothing repeated, the same results and tables."""
        store = RunStore.open(self.out)
        records, damaged = store.records()
        solved = sum(one["runs"] for one in store.read_sessions()[0])
        assert (len(records), damaged) == (total, {}) and solved <= total
        assert different_results(self.out, alone) == different_tables(self.out, alone) == []
        assert list(store.commits.iterdir()) == []
        leases = store.folder / "leases"
        assert not leases.exists() or list(leases.iterdir()) == []
        assert list(store.folder.rglob(".*")) == []


def hooked(folder, **changes):
    """A sweep whose utility does what `HOOKS` say."""
    Path(folder, "hooked.py").write_text(HOOKED)
    chosen = {"models": ["exact:urn"], "methods": ["coordinate"], "seeds": 3, "lengths": [3]}
    return small(**chosen | {"utilities": ["./hooked.py:score"]} | changes)
