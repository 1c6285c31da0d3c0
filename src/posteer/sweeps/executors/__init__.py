"""Where the work of a sweep runs, by name.

The store owns what is done: which runs there are, who claims them, what is whole. An executor only
decides in which processes, on which machines, `run_here` is called; any number of them may work on
one store at once, and be killed at any moment. A package offers its own under the entry-point group
`posteer.executors`; a process adds its own:

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from posteer.sweeps.configuration import config_from
>>> from posteer.sweeps.execution import run_sweep
>>> def loudly(work):
...     print(f"{work.workers} on {work.device} for {work.config.name}")
...     run_here(work.folder, work.config, work.device, work.report)
>>> EXECUTORS.add("loudly", loudly)
>>> tiny = {"models": "exact:urn", "utilities": "dyck", "methods": "coordinate", "lengths": [3]}
>>> with TemporaryDirectory() as folder:
...     run_sweep(config_from(tiny, "here"), Path(folder), device="cpu", executor="loudly").statuses
1 on cpu for sweep
{'done': 10}
>>> EXECUTORS.remove("loudly")
"""

from __future__ import annotations

from posteer.core.registry import Registry
from posteer.sweeps.executors.protocol import Executor, Work
from posteer.sweeps.runner import run_here

__all__ = ["EXECUTORS", "Executor", "Work", "run_here"]

EXECUTORS: Registry[Executor] = Registry(
    "executor", "executors", {"local": "posteer.sweeps.executors.local:run"}
)
