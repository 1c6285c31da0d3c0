"""A sweep in a terminal: its plan, a bar with the time left, a live table, how it ended."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from posteer.sweeps.execution import Outcome
from posteer.sweeps.forecast import Forecast
from posteer.sweeps.records import Record
from posteer.sweeps.runner import Report
from posteer.sweeps.runs import RunConfig
from posteer.sweeps.splitting import Split
from posteer.sweeps.store import Contents
from posteer.views.terminal.panels import rows_table

_Cell = tuple[str, int, str]
LINE_SECONDS = 10.0


@contextmanager
def watch_sweep(runs: list[RunConfig], done: list[Record], quiet: bool = False) -> Iterator[Report]:
    """On standard error, once work begins: in a terminal a live table of what has been found and a
    bar over runs with the time left; elsewhere a line now and then."""
    screen = Console(stderr=True)
    view: _Live | _Lines
    if screen.is_terminal and not quiet:
        view = _Live(screen, runs, done)
    else:
        view = _Lines(screen, runs, done, silent=quiet)
    try:
        yield Report(finished=view.finished, within=view.within, warn=view.warn)
    finally:
        view.stop()


class _Lines:
    """For logs: how far it is, at most every ten seconds."""

    def __init__(
        self, screen: Console, runs: list[RunConfig], done: list[Record], silent: bool
    ) -> None:
        self.screen, self.total, self.before, self.done = screen, len(runs), len(done), len(done)
        self.silent = silent  # but for warnings
        self.started = self.told = time.monotonic()

    def finished(self, records: list[Record]) -> None:
        self.done += len(records)
        now = time.monotonic()
        if not self.silent and (now - self.told > LINE_SECONDS or self.done == self.total):
            self.told = now
            pace = (now - self.started) / (self.done - self.before)
            left = duration(pace * (self.total - self.done))
            self.screen.print(f"{self.done}/{self.total} runs, {left} left", highlight=False)

    def within(self, _what: str, _step: int, _at_most: int) -> None: ...

    def warn(self, text: str) -> None:
        self.screen.print(Text(text), soft_wrap=True)

    def stop(self) -> None: ...


class _Live:
    """For people: a table of cells and a bar."""

    def __init__(self, screen: Console, runs: list[RunConfig], done: list[Record]) -> None:
        self.bar = Progress(
            TextColumn("{task.completed}/{task.total} runs"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=screen,
        )
        self.task = self.bar.add_task("starting", total=len(runs), completed=len(done))
        self.cells = _LiveCells(runs)
        self.cells.add(done)
        self.live = Live(self._shown(), console=screen, refresh_per_second=4)

    def _shown(self) -> Group:
        return Group(self.cells.table(), self.bar)

    def _begin(self) -> None:
        if not self.live.is_started:
            self.live.start()

    def finished(self, records: list[Record]) -> None:
        self._begin()
        self.cells.add(records)
        self.bar.update(self.task, advance=len(records))
        self.live.update(self._shown())

    def within(self, what: str, step: int, at_most: int) -> None:
        self._begin()
        self.bar.update(self.task, description=f"{what} {step}/{at_most} at most")

    def warn(self, text: str) -> None:
        self.live.console.print(Text(text, style="yellow"), soft_wrap=True)

    def stop(self) -> None:
        if self.live.is_started:
            self.bar.update(self.task, description="")
            self.live.stop()


class _LiveCells:
    """Means of the runs that are in, by model, length and method."""

    def __init__(self, runs: list[RunConfig]) -> None:
        self.totals: dict[_Cell, int] = defaultdict(int)
        for run in runs:
            self.totals[run.model, run.length, run.method] += 1
        self.values: dict[_Cell, list[float]] = defaultdict(list)
        self.ranks: dict[_Cell, list[float]] = defaultdict(list)
        self.ess: dict[_Cell, list[float]] = defaultdict(list)
        self.bad: dict[_Cell, int] = defaultdict(int)

    def add(self, records: list[Record]) -> None:
        for record in records:
            run, result = record["configuration"], record["result"]
            cell = (run["model"], run["length"], run["method"])
            self.bad[cell] += record["status"] != "done"
            if result is not None:
                self.values[cell].append(result["expected_utility"])
                for kept, name in ((self.ranks, "rank"), (self.ess, "ess_fraction")):
                    if result[name] is not None:
                        kept[cell].append(result[name])

    def table(self) -> Table:
        table = _table("runs", "mean J", "mean rank", "ESS/L", "trouble")
        for cell, total in self.totals.items():
            n = len(self.values[cell])
            table.add_row(
                cell[0],
                str(cell[1]),
                Text(cell[2]),
                f"{n}/{total}",
                _mean(self.values[cell], 3),
                _mean(self.ranks[cell], 1),
                _mean(self.ess[cell], 2),
                str(self.bad[cell]) if self.bad[cell] else "",
                style="" if n == total else "dim",
            )
        return table


def _table(*names: str, title: str | None = None) -> Table:
    """Cells by model, length and method, with these columns."""
    table = Table(title=title, box=None, pad_edge=False)
    for name in ("model", "m", "method", *names):
        table.add_column(name, justify="left" if name in ("model", "method") else "right")
    return table


def _mean(values: list[float], digits: int) -> str:
    return f"{fmean(values):.{digits}f}" if values else ""


def show_plan(
    found: list[Forecast], finished: int, differences: list[str], device: str, split: Split
) -> None:
    """How many runs, how long, how much, over how many; and what is not as in the paper."""
    table = _table("runs", "time", "memory", title="what will run")
    for one in found:
        table.add_row(
            one.model,
            str(one.length),
            Text(one.method),
            f"{one.runs:,}",
            duration(one.seconds),
            _bytes(one.bytes_in_memory),
        )
    console = Console()
    console.print(table)
    rows = rows_table()
    known = [one.seconds for one in found if one.seconds is not None and one.seconds == one.seconds]
    unknown = len(found) - len(known)
    workers = split.workers
    total = split.seconds if split.seconds is not None else sum(known) / workers
    rows.add_row("runs", f"{sum(one.runs for one in found):,}, {finished:,} of them finished")
    rows.add_row(
        "time",
        f"{duration(total)} on {device}, {workers} worker{'s' if workers > 1 else ''}, for all"
        + (f"; {unknown} groups cannot be foretold" if unknown else ""),
    )
    rows.add_row("split", Text(_split_text(split)))
    each, all_of_them = _bytes(split.bytes_a_worker), _bytes(split.bytes_a_worker * workers)
    rows.add_row("memory", f"{each} a worker at most, {all_of_them} in all")
    rows.add_row("disk", _bytes(sum(one.bytes_on_disk for one in found)))
    text = "\n".join(differences) if differences else "nothing: the same runs"
    rows.add_row("differs from paper", Text(text))
    console.print(Panel(rows, title="plan", expand=False))


def _split_text(split: Split) -> str:
    """How batches go round."""
    many = f"{split.batches:,} batches of at most {split.runs_a_batch:,} runs by {split.executor}"
    longest = "" if split.longest is None else f", the longest {duration(split.longest)}"
    idle = split.workers - split.busy
    return many + longest + (f"; {idle:,} workers have none" if idle else "")


def show_outcome(ended: Outcome, folder: str, say: Callable[[str], None]) -> None:
    """One line on how it stands, and the errors of runs that failed."""
    facts = ended.to_json()
    say(
        f"{facts['runs']:,} runs: {facts['done']:,} done, {facts['diverged']} diverged, "
        f"{facts['failed']} failed, {facts['left']:,} left"
    )
    for error, runs in ended.errors.items():
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        say(f"  {error} ({runs[0]}{more})")
    if ended.errors:
        own = "with --config FILE where the sweep runs files of yours"
        say(f"  once mended: posteer sweep retry --failed --out {folder} ({own})")


def damage_lines(there: Contents) -> list[str]:
    """Files of a store that do not count, and what to do about them."""
    lines = [
        f"runs/{name}.json is damaged ({wrong}): the sweep's command runs it again"
        for name, wrong in there.damaged.items()
    ]
    others = [f"runs/{name}.json is of another sweep or version" for name in there.strangers]
    return lines + others


def duration(seconds: float | None) -> str:
    """As people say it.

    >>> duration(5400.0)
    '1 h 30 min'
    """
    if seconds is None or math.isnan(seconds):
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
