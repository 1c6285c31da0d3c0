"""`posteer train-many`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from posteer.cli.options import AsJson, Device, Executor, File, Workers, print_json


def train_many(
    *,
    config: Annotated[File, Parameter(help="A TOML file of trainings; docs/FAR.md shows one.")],
    out: Annotated[File, Parameter(help="Folder of their folders; the same command goes on.")],
    device: Device = "auto",
    workers: Workers = 1,
    executor: Executor = "local",
    as_json: AsJson = False,
) -> None:
    """Train many networks, each in a folder of its own. The same command goes on after any stop."""
    from posteer.sweeps.trainings import train_many as train_all
    from posteer.training.many import read_trainings
    from posteer.views.terminal import panels as console

    plans = read_trainings(config)
    with console.delayed_progress() as progress:
        ended = train_all(
            plans, out, device=device, workers=workers, executor=executor, progress=progress
        )
    if as_json:
        print_json({"trainings": ended})
    else:
        for name, one in ended.items():
            print(f"{name}: {one['status']} at step {one['step']}")
    if any(one["status"] != "finished" for one in ended.values()):
        sys.exit(1)
