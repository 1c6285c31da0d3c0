"""`posteer sweep`, its plan, status and retry, and `posteer tables`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from posteer.cli.options import AsJson as Json
from posteer.cli.options import Executor, File, FileOrNone, WholeOrNone, Workers, print_json
from posteer.core.errors import InputError, require
from posteer.core.spec import within

if TYPE_CHECKING:
    from posteer.sweeps.configuration import SweepConfig

app = App(name="sweep", help="Run many elicitations; the same command goes on after any stop.")

Preset = Annotated[str | None, Parameter(help="paper (5,100 runs), own-context, auto or small.")]
Config = Annotated[FileOrNone, Parameter(help="A TOML file; docs/SWEEPS.md shows one.")]
Out = Annotated[File, Parameter(help="Folder of the runs.")]
Device = Annotated[str, Parameter(help="Where to run: auto, cpu or cuda.")]
BatchSize = Annotated[
    WholeOrNone, Parameter(name="--batch", help="Runs solved as one tensor programme.")
]


def _chosen(preset: str | None, config: Path | None) -> SweepConfig:
    from posteer.sweeps.configuration import read_config
    from posteer.sweeps.presets import PRESETS
    from posteer.sweeps.presets import preset as named

    if config is not None and preset is None:
        return read_config(config)
    if preset is not None and config is None:
        return named(preset)
    names = ", ".join(PRESETS.names())
    raise InputError(f"expected --preset NAME ({names}) or --config FILE, one of them")


@app.default
def run(
    *,
    out: Out,
    preset: Preset = None,
    config: Config = None,
    device: Device = "auto",
    workers: Workers = 1,
    batch: BatchSize = None,
    executor: Executor = "local",
    extend: Annotated[
        bool, Parameter(negative="", help="Add to a folder that holds another sweep or version.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run all that the folder does not hold yet."""
    how = {"device": device, "batch_size": batch, "workers": workers, "executor": executor}
    _carry_out(_chosen(preset, config), out, as_json, extend=extend, **how)


def _carry_out(config: SweepConfig, out: Path, as_json: bool, **how: Any) -> None:
    """Run a sweep as `how` says, watched; what `run_sweep` refuses is refused there."""
    from posteer.sweeps.execution import records_of, run_sweep
    from posteer.sweeps.results import consolidate
    from posteer.sweeps.runs import expand
    from posteer.sweeps.store import RunStore
    from posteer.views.terminal.sweep import show_outcome, watch_sweep

    expansion = expand(config)
    there = list(records_of(RunStore(out), expansion))
    try:
        with watch_sweep(expansion.runs, there, quiet=as_json) as report:
            ended = run_sweep(config, out, report=report, **how)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the same command goes on with what {out} lacks") from None
    try:
        consolidate(out)
    except InputError as missing:  # the runs are there all the same
        print(f"no results.parquet: {missing}", file=sys.stderr)
    if as_json:
        print_json(ended.to_json())
    else:
        show_outcome(ended, str(out), print)
        print(f"posteer tables {out} sets them beside the paper's, posteer report {out} on a page")
    if ended.statuses.get("failed"):
        sys.exit(1)


@app.command
def plan(
    *,
    preset: Preset = None,
    config: Config = None,
    out: Annotated[FileOrNone, Parameter(help="A folder that may hold some of it.")] = None,
    device: Device = "auto",
    workers: Workers = 1,
    batch: BatchSize = None,
    executor: Executor = "local",
    as_json: Json = False,
) -> None:
    """What a sweep would take, and how it differs from the paper's. Nothing is run or written."""
    from posteer.sweeps.configuration import differences
    from posteer.sweeps.executors import prepared
    from posteer.sweeps.forecast import forecast, require_possible
    from posteer.sweeps.presets import preset as named
    from posteer.sweeps.runner import MOST_WORKERS, size_of_batches
    from posteer.sweeps.runs import expand
    from posteer.sweeps.splitting import batch_for, split_of
    from posteer.sweeps.store import RunStore
    from posteer.views.terminal import panels as console
    from posteer.views.terminal.sweep import show_plan

    within(workers, "workers", 1, MOST_WORKERS)
    chosen, where = _chosen(preset, config), prepared(executor)
    place = where.place(device)
    size = size_of_batches(batch, place)
    with console.delayed_progress() as progress:
        runs = expand(chosen).runs
        require_possible(runs)
        there: set[str] = set()
        if out is not None and out.is_dir():
            there, size = RunStore.open(out).names(), RunStore.open(out).batch_size
        elif batch is None:
            size = batch_for(len(runs), workers, size)
        found = forecast(runs, size, place, progress)
    finished = sum(one.name in there for one in runs) if there else 0
    unlike = differences(chosen, named("paper"))
    devices = workers if place == "cpu" or where.is_elsewhere else 1
    split = split_of(found, size, workers, executor, devices)
    if as_json:
        print_json(
            {
                "runs": len(runs),
                "finished": finished,
                "differs_from_paper": unlike,
                "split": split.to_json(),
                "groups": [one.to_json() for one in found],
            }
        )
    else:
        show_plan(found, finished, unlike, place, split)


@app.command
def status(*, out: Out, as_json: Json = False) -> None:
    """How the sweep in a folder stands."""
    from posteer.sweeps.execution import in_short, standing
    from posteer.sweeps.store import RunStore
    from posteer.views.terminal.sweep import damage_lines, show_outcome

    there = RunStore.open(out).contents(in_short)
    ended = standing(there)
    for line in damage_lines(there):
        print(line, file=sys.stderr)
    if as_json:
        print_json(ended.to_json())
    else:
        show_outcome(ended, str(out), print)


@app.command
def retry(
    *,
    out: Out,
    failed: Annotated[bool, Parameter(negative="", help="Run again what failed.")] = False,
    preset: Preset = None,
    config: Config = None,
    device: Device = "auto",
    workers: Workers = 1,
    batch: BatchSize = None,
    executor: Executor = "local",
    as_json: Json = False,
) -> None:
    """Run failed runs again, and whatever else is left of the sweep in a folder."""
    from posteer.sweeps.configuration import files_named
    from posteer.sweeps.store import RunStore

    require(failed, "expected --failed: only runs that failed are run again")
    how = {"device": device, "batch_size": batch, "workers": workers, "executor": executor}
    if preset is None and config is None:
        chosen = RunStore.open(out).config()
        named = files_named(chosen)
        require(
            not named,
            f"the sweep in {out} runs {', '.join(named[:3])}: expected --config FILE or --preset "
            "NAME, which name it too; code is not run because a folder says so",
        )
    else:
        chosen = _chosen(preset, config)
    _carry_out(chosen, out, as_json, retry_failed=True, **how)


def tables(
    runs: Annotated[File, Parameter(help="Folder of a sweep, or a Parquet file of its runs.")],
    /,
    *,
    out: Annotated[
        FileOrNone, Parameter(help="Folder to write to; RUNS/tables by default.")
    ] = None,
    figures: Annotated[
        bool, Parameter(negative="", help="Draw figures too, as SVG and PDF, beside the tables.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Every table of the paper from a sweep's runs, the published figures beside ours."""
    from posteer.paper.cells import Cells
    from posteer.paper.tables import write_tables
    from posteer.sweeps.results import read_sweep
    from posteer.views.paper.report import facts_of, standing_lines, whole_report

    sweep = read_sweep(runs)
    cells = Cells(sweep.rows)
    for line in standing_lines(sweep):
        print(line, file=sys.stderr)
    folder = out or (runs / "tables" if runs.is_dir() else runs.with_suffix(".tables"))
    written = write_tables(cells, folder)
    drawn: list[Path] = []
    if figures:
        from posteer.sweeps.results import read_histories
        from posteer.views.paper.figures import draw_all

        drawn = draw_all(cells, read_histories(runs), folder)
    if as_json:
        print_json({**facts_of(cells, written + drawn), "runs": len(sweep.rows), "of": sweep.total})
    else:
        print(whole_report(cells))
        more = f" and {len(drawn)} figures" if figures else ""
        print(f"{len(written)} tables{more} in {folder}")
