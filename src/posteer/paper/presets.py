"""The paper's sweeps; `sweeps.presets` knows them by name."""

from __future__ import annotations

from posteer.paper.published import LENGTHS, TARGETS, VARIANTS, utility_of_target
from posteer.sweeps.configuration import Grid, SweepConfig

PAPERS_SNAPPING = "candidate-score=optimum-context"
"""How the published tables show that candidates were scored; docs/LOG.md has the evidence."""


def _every_target(
    name: str, methods: tuple[str, ...], seeds: tuple[int, ...] = tuple(range(10))
) -> SweepConfig:
    grids = tuple(
        Grid(
            models=(model,),
            utilities=tuple(utility_of_target(target) for target in targets),
            methods=methods,
            lengths=LENGTHS,
            seeds=seeds,
        )
        for model, targets in TARGETS.items()
    )
    return SweepConfig(name=name, grids=grids)


def paper() -> SweepConfig:
    """Its whole comparison."""
    return _every_target("paper", ("gcg", *(f"{method}({PAPERS_SNAPPING})" for method in VARIANTS)))


def own_context() -> SweepConfig:
    """Its PPT half under our snapping rule."""
    return _every_target("own-context", VARIANTS)


def auto() -> SweepConfig:
    """The same cells by our default method."""
    return _every_target("auto", ("auto(verify=8)",), seeds=(0, 1))
