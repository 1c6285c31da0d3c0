"""Sweeps by name: a callable each, so that none is made, nor its module read, before it is asked
for. A package adds its own under the entry-point group `posteer.presets`."""

from __future__ import annotations

from collections.abc import Callable

from posteer.core.registry import Registry
from posteer.sweeps.configuration import Grid, SweepConfig


def small() -> SweepConfig:
    """A minute's taste."""
    grid = Grid(
        models=("urn", "beta-bernoulli"),
        utilities=("dyck", "frequency(0.3)", "reverse-xent(tau-0.2)"),
        methods=("gcg", "ppt-rb", "ppt-rb-analytic(samples=1000)"),
        lengths=(6,),
        seeds=(0, 1, 2),
    )
    return SweepConfig(name="small", grids=(grid,))


PRESETS: Registry[Callable[[], SweepConfig]] = Registry(
    "preset",
    "presets",
    {
        "paper": "posteer.paper.presets:paper",
        "own-context": "posteer.paper.presets:own_context",
        "auto": "posteer.paper.presets:auto",
        "small": small,
    },
)


def preset(name: str) -> SweepConfig:
    """A sweep by name."""
    return PRESETS[name]()
