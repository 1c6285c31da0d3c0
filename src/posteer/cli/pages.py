"""`posteer report` and `posteer explore`: pages for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from posteer.cli.options import (
    Alphabet,
    AsJson,
    Device,
    File,
    FileOrNone,
    OpeningText,
    Whole,
    print_json,
)
from posteer.core.errors import require

MOST_AT_ONCE = 4
"""Runs: a browser listens to six at most."""

Some = Annotated[
    list[str] | None, Parameter(negative="", help="Runs of these alone; may be given again.")
]


def report(
    runs: Annotated[File, Parameter(help="Folder of a sweep, or a Parquet file of its runs.")],
    /,
    *,
    out: Annotated[
        FileOrNone, Parameter(help="The HTML file to write; RUNS/report.html by default.")
    ] = None,
    model: Some = None,
    utility: Some = None,
    method: Some = None,
    length: Some = None,
    as_json: AsJson = False,
) -> None:
    """A sweep as one HTML file: heat maps, runs, comparisons. Opens from disk, needs no network."""
    from posteer.views.pages.report import write_report

    where = out or (runs / "report.html" if runs.is_dir() else runs.with_suffix(".html"))
    require(where.suffix in (".html", ".htm"), f"{where}: expected a file called .html")
    only = {"model": model, "utility": utility, "method": method, "length": length}
    made = write_report(runs, where, {name: values or () for name, values in only.items()})
    if as_json:
        print_json(made)
    else:
        size = f"{made['bytes'] / 1e6:.1f} MB"
        print(f"{made['file']}: {made['runs']:,} runs, {size}; open it in a browser")


def explore(
    *,
    model: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            help="A model folder, hf:FOLDER or any other model besides those on the menu; may be "
            "given again.",
        ),
    ] = None,
    alphabet: Alphabet = None,
    text: OpeningText = "",
    runs: Annotated[File, Parameter(help="Folder that runs are kept in.")] = Path("runs/explorer"),
    host: Annotated[
        str, Parameter(help="Address to listen on; any but this machine's own lets others in.")
    ] = "127.0.0.1",
    port: Annotated[Whole, Parameter(help="Port to listen on; 0 is any that is free.")] = 0,
    at_once: Annotated[Whole, Parameter(help="Runs that may be at work at once.")] = 2,
    browser: Annotated[bool, Parameter(help="Open the page in a browser.")] = True,
    device: Device = "auto",
) -> None:
    """A page to search for prompts, watch the search, and steer by hand. Ctrl-C ends it."""
    from posteer.core.device import pick_device
    from posteer.core.spec import within

    within(port, "port", 0, 2**16 - 1)
    within(at_once, "at_once", 1, MOST_AT_ONCE)
    kept = not runs.exists() or (runs.is_dir() and (runs / "sweep.json").exists())
    empty = runs.is_dir() and not any(runs.iterdir())
    above = next((one for one in runs.parents if one.exists()), None)
    require(above is None or above.is_dir(), f"{runs}: {above} is no folder: choose other --runs")
    require(kept or empty, f"{runs}: there is something here that is no sweep: choose other --runs")
    try:
        from posteer.explorer.menu import Menu
        from posteer.explorer.runs import Runs
        from posteer.explorer.server import Explorer, Serving
    except ModuleNotFoundError as error:
        require(False, f"{error.name} is not installed: pip install 'posteer[explore]'")
        raise
    menu = Menu(model or (), alphabet=alphabet, text=text, device=pick_device(device))
    menu.open_named()
    serving = Serving(Explorer(menu, Runs(menu, runs, at_once)), host, port)
    print(
        f"posteer explorer: {serving.address}\nRuns are kept in {runs}. Ctrl-C ends it.", flush=True
    )
    if serving.address_elsewhere is not None:
        print(f"From other machines: {serving.address_elsewhere}", flush=True)
    if serving.open_to_others:
        print(
            "Whoever has this address can start runs; the connection is not encrypted.", flush=True
        )
    if browser:
        import webbrowser

        webbrowser.open(serving.address)
    try:
        serving.run()
    except KeyboardInterrupt:
        print(f"posteer explorer: ended; `posteer report {runs}` shows its runs", flush=True)
