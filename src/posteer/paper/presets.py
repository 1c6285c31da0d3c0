"""Sweeps by name."""

from __future__ import annotations

from posteer.core.errors import InputError
from posteer.paper.published import TARGETS, utility_of_target
from posteer.sweeps.configuration import Grid, SweepConfig

PAPERS_SNAPPING = "candidate-score=optimum-context"
"""How the published tables show that candidates were scored; docs/LOG.md has the evidence."""
VARIANTS = ("ppt-rb-analytic", "ppt-rb", "ppt-analytic", "ppt")


def _every_target(
    name: str, methods: tuple[str, ...], seeds: tuple[int, ...] = tuple(range(10))
) -> SweepConfig:
    grids = tuple(
        Grid(
            models=(model,),
            utilities=tuple(utility_of_target(target) for target in targets),
            methods=methods,
            lengths=(6, 50),
            seeds=seeds,
        )
        for model, targets in TARGETS.items()
    )
    return SweepConfig(name=name, grids=grids)


def presets() -> dict[str, SweepConfig]:
    """`paper` is its whole comparison, `own-context` its PPT half under our snapping rule, `auto`
    the same cells by our default method, and `small` a minute's taste."""
    small = Grid(
        models=("urn", "beta-bernoulli"),
        utilities=("dyck", "frequency(0.3)", "reverse-xent(tau-0.2)"),
        methods=("gcg", "ppt-rb", "ppt-rb-analytic(samples=1000)"),
        lengths=(6,),
        seeds=(0, 1, 2),
    )
    papers = ("gcg", *(f"{method}({PAPERS_SNAPPING})" for method in VARIANTS))
    return {
        "paper": _every_target("paper", papers),
        "own-context": _every_target("own-context", VARIANTS),
        "auto": _every_target("auto", ("auto(verify=8)",), seeds=(0, 1)),
        "small": SweepConfig(name="small", grids=(small,)),
    }


def preset(name: str) -> SweepConfig:
    """A sweep by name."""
    known = presets()
    if name not in known:
        raise InputError(f"unknown preset '{name}': expected one of {', '.join(known)}")
    return known[name]
