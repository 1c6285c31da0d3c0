"""Sweeps that stop at a gate, so that workers can be killed and paused in the middle of their work.

The utility of such a sweep waits while the store holds as many runs as the gate allows. Waiting is
for files, never for a time.
"""

from pathlib import Path

from kills import different_results, different_tables, wait_for
from sweeps import small

from posteer.sweeps.execution import run_sweep
from posteer.sweeps.store import RunStore

CEILING = 600.0
"""Seconds after which what is waited for will not come, on any machine."""
OPEN = 10**9
HOOKS = []
"""What is done once the utility of `hooked` is next asked."""

GATED = """
import os, time
HERE = os.path.dirname(os.path.abspath(__file__))
def score(y):
    while True:
        with open(os.path.join(HERE, "gate")) as file:
            gate = file.read()
        if len(os.listdir(os.path.join(HERE, "runs", "runs"))) < int(gate or 0):
            return y[0] + 0.5 * y[1]
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
    """A folder with a sweep that goes as far as it is allowed to."""

    def __init__(self, folder, **changes):
        self.folder, self.out = folder, folder / "runs"
        (folder / "mine.py").write_text(GATED)
        chosen = {"models": ["exact:urn"], "methods": ["coordinate"], "seeds": 8, "lengths": [3]}
        self.config = small(**chosen | {"utilities": ["./mine.py:score"]} | changes)
        self.allow(0)

    def allow(self, runs):
        part = self.folder / "gate.part"
        part.write_text(str(runs))
        part.replace(self.folder / "gate")

    def alone(self):
        """The same sweep, that nothing happened to."""
        (self.folder / "runs" / "runs").mkdir(parents=True)
        self.allow(OPEN)
        out = self.folder / "alone"
        run_sweep(self.config, out, batch_size=2)
        self.allow(0)
        return out

    def stored(self):
        return len(list((self.out / "runs").glob("[!.]*.json")))

    def reaches(self, runs, running=lambda: True):
        """Whether so many runs are in the store, while somebody is at work."""
        return wait_for(lambda: self.stored() >= runs, running, CEILING)

    def workers(self):
        """Processes that have solved something, by their number."""
        return {int(path.stem.rpartition("-")[2]) for path in (self.out / "sessions").glob("[!.]*")}

    def untouched(self, alone, total):
        """Nothing lost, nothing repeated, the same results and tables."""
        store = RunStore.open(self.out)
        records, damaged = store.records()
        solved = sum(one["runs"] for one in store.read_sessions()[0])
        assert (len(records), damaged, solved) == (total, {}, total)
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
