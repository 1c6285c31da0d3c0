"""`posteer report`: a sweep as a page for a browser."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from posteer.cli.options import AsJson, File, FileOrNone, print_json
from posteer.core.errors import require

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
