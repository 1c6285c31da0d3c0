"""Tables from records: the published figure, ours, and the difference in standard errors."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from posteer.core.files import write_atomically
from posteer.paper.cells import Cell, Cells, spread
from posteer.paper.layouts import TOLERANCE, Layout, Line, heading, layouts_for
from posteer.paper.published import Figure, published

DIGITS = {"J": (2, 2), "rank": (1, 2), "ess": (2, 2)}
STATISTICS = {"J": ("J",), "rank": ("rank",), "ess": ("mean", "min", "max")}


@dataclass(frozen=True)
class Entry:
    """One figure of a table: ours with how many runs stand behind it, theirs if there is one."""

    line: Line
    length: int
    method: str
    statistic: str
    ours: Figure | None
    theirs: Figure | None
    best: bool
    runs: int
    failed: int
    diverged: int

    @property
    def difference(self) -> float | None:
        if self.ours is None or self.theirs is None:
            return None
        return self.ours.value - self.theirs.value

    @property
    def in_errors(self) -> float | None:
        """The difference in standard errors; least and greatest values have none."""
        if self.difference is None or self.statistic in ("min", "max"):
            return None
        assert self.ours is not None and self.theirs is not None
        if self.ours.standard_error is None:  # a single run
            return None
        kind = "ess" if self.statistic == "mean" else self.statistic
        return self.difference / spread(self.ours, self.theirs, kind)


def entries(layout: Layout, cells: Cells) -> list[list[Entry]]:
    """The table's figures, line by line."""
    lines = []
    for line in layout.lines:
        row: list[Entry] = []
        for length in layout.lengths:
            m = line.length or length or 0
            found = [cells.get((line.model, line.target, m, method)) for method in layout.methods]
            best = _best([None if c is None else c.figure(layout.statistic) for c in found], layout)
            for method, cell, bold in zip(layout.methods, found, best, strict=True):
                row += _cell_entries(layout, line, m, method, cell, bold)
        lines.append(row)
    return lines


def _best(figures: list[Figure | None], layout: Layout) -> list[bool]:
    """Which methods are within tolerance of the best of their row."""
    values = [figure.value for figure in figures if figure is not None]
    if layout.statistic not in TOLERANCE or not values:
        return [False] * len(figures)
    sign = -1.0 if layout.statistic == "rank" else 1.0
    top = max(sign * value for value in values)
    near = TOLERANCE[layout.statistic]
    return [figure is not None and sign * figure.value >= top - near for figure in figures]


def _cell_entries(
    layout: Layout, line: Line, m: int, method: str, cell: Cell | None, best: bool
) -> list[Entry]:
    made = []
    for statistic in STATISTICS[layout.statistic]:
        column = f"ess_over_l_{statistic}" if layout.statistic == "ess" else statistic
        theirs = published().get((line.model, line.target, m, method, column))
        made.append(
            Entry(
                line,
                m,
                method,
                statistic,
                None if cell is None else _figure(cell, layout.statistic, statistic),
                theirs,
                best,
                0 if cell is None else len(cell.rows),
                0 if cell is None else cell.failed,
                0 if cell is None else cell.diverged,
            )
        )
    return made


def _figure(cell: Cell, kind: str, statistic: str) -> Figure | None:
    values = cell.values(kind)
    if statistic in ("min", "max") and values:
        return Figure(min(values) if statistic == "min" else max(values), None)
    return cell.figure(kind)


def markdown(layout: Layout, cells: Cells) -> str:
    """The paper's layout; in square brackets the published figure and the difference."""
    rows = entries(layout, cells)
    heads = [
        (f"m={length} " if length and len(layout.lengths) > 1 else "") + heading(method)
        for length in layout.lengths
        for method in layout.methods
    ]
    lines = [f"### {layout.label}", "", _caption(layout), ""]
    lines += ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    section = ""
    width = len(STATISTICS[layout.statistic])
    for line, row in zip(layout.lines, rows, strict=True):
        if line.section != section:
            section = line.section
            lines.append(f"| *{section}* |" + " |" * len(heads))
        groups = [row[at : at + width] for at in range(0, len(row), width)]
        shown = [_markdown_cell(group, layout.statistic) for group in groups]
        lines.append(f"| {line.label} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, *_troubles(rows), ""])


def _caption(layout: Layout) -> str:
    if layout.statistic == "ess":
        return f"{layout.caption} over seeds [published; the mean's difference in standard errors]."
    best = f"best within {TOLERANCE[layout.statistic]:g} in bold"
    return (
        f"{layout.caption}. Mean (standard error) over seeds [published; difference in standard "
        f"errors, rounding included], {best}."
    )


def _markdown_cell(group: list[Entry], kind: str) -> str:
    first = group[0]
    if first.ours is None:
        return "" if first.runs == 0 else "failed"
    if kind == "ess":
        ours = " / ".join(_number(e.ours, kind) for e in group)
        if first.theirs is None:
            return ours
        theirs = " / ".join(_number(e.theirs, kind) for e in group)
        return f"{ours} [{theirs}; {_signed(first.in_errors)}]"
    shown = _with_error(first.ours, kind)
    shown = f"**{shown}**" if first.best else shown
    if first.theirs is None:
        return shown
    return f"{shown} [{_with_error(first.theirs, kind)}; {_signed(first.in_errors)}]"


def latex(layout: Layout, cells: Cells) -> str:
    """The same with booktabs: a line of ours, below it the published one with the difference."""
    rows = entries(layout, cells)
    width = len(STATISTICS[layout.statistic])
    n = len(layout.lengths) * len(layout.methods) * width
    heads = [heading(method) for _ in layout.lengths for method in layout.methods]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(layout.caption)}. Upright: ours; small: published, and the difference "
        r"in standard errors.}",
        rf"  \label{{tab:{layout.label}}}",
        rf"  \begin{{tabular}}{{l{'r' * n}}}",
        r"    \toprule",
    ]
    if len(layout.lengths) > 1:
        over = [
            rf"\multicolumn{{{n // len(layout.lengths)}}}{{c}}{{$m={m}$}}" for m in layout.lengths
        ]
        lines.append(f"    & {' & '.join(over)} \\\\")
    spanned = [h if width == 1 else rf"\multicolumn{{{width}}}{{c}}{{{h}}}" for h in heads]
    lines += [f"    & {' & '.join(spanned)} \\\\", r"    \midrule"]
    section = layout.lines[0].section
    for line, row in zip(layout.lines, rows, strict=True):
        if line.section != section:
            section = line.section
            lines.append(r"    \midrule")
        ours = [_tex_ours(entry, layout.statistic) for entry in row]
        lines.append(f"    {_tex(line.label)} & {' & '.join(ours)} \\\\")
        if any(entry.theirs is not None for entry in row):
            theirs = [_tex_theirs(entry, layout.statistic) for entry in row]
            lines.append(f"    & {' & '.join(theirs)} \\\\")
    notes = [rf"  \par\footnotesize {_tex(note)}" for note in _troubles(rows) if note]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", *notes, r"\end{table}", ""])


def _tex_ours(entry: Entry, kind: str) -> str:
    if entry.ours is None:
        return "--"
    value = _number(entry.ours, kind)
    spread = entry.ours.standard_error
    error = "" if kind == "ess" or spread is None else rf"\,({spread:.{DIGITS[kind][1]}f})"
    return rf"$\mathbf{{{value}}}{error}$" if entry.best else f"${value}{error}$"


def _tex_theirs(entry: Entry, kind: str) -> str:
    if entry.theirs is None:
        return ""
    gap = "" if entry.in_errors is None else rf",\ {_signed(entry.in_errors)}"
    return rf"{{\scriptsize ${_number(entry.theirs, kind)}{gap}$}}"


def _tex(text: str) -> str:
    text = text.replace("tau*=", r"$\tau^\star$=").replace("q*=", r"$q^\star$=")
    return text.replace("_", r"\_").replace("%", r"\%").replace("#", r"\#").replace("&", r"\&")


CSV_COLUMNS = (
    *("table", "model", "target", "length", "method", "statistic", "ours", "standard_error"),
    *("published", "published_standard_error", "difference", "difference_in_standard_errors"),
    *("best", "runs", "failed", "diverged"),
)


def csv_lines(layout: Layout, cells: Cells) -> str:
    """Every figure on a line of its own, at full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in entries(layout, cells):
        for entry in row:
            ours, theirs = entry.ours or _NONE, entry.theirs or _NONE
            writer.writerow(
                [
                    *(layout.label, entry.line.model, entry.line.target, entry.length),
                    *(entry.method, entry.statistic, _blank(ours.value)),
                    *(_blank(ours.standard_error), _blank(theirs.value)),
                    *(_blank(theirs.standard_error), _blank(entry.difference)),
                    *(_blank(entry.in_errors), int(entry.best)),
                    *(entry.runs, entry.failed, entry.diverged),
                ]
            )
    return out.getvalue()


_NONE = Figure(float("nan"), None)


def _blank(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.12g}"


def _troubles(rows: list[list[Entry]]) -> list[str]:
    """Cells with runs that failed or diverged: both stay in the count."""
    lines = []
    for entry in (entry for row in rows for entry in row if entry.statistic not in ("min", "max")):
        if entry.failed or entry.diverged:
            where = f"{entry.line.label}, m={entry.length}, {heading(entry.method)}"
            lines.append(
                f"{where}: of {entry.runs} runs {entry.failed} failed and are not in the mean, "
                f"{entry.diverged} diverged and are."
            )
    return ["", *lines] if lines else []


def _number(figure: Figure | None, kind: str) -> str:
    return "" if figure is None else f"{figure.value:.{DIGITS[kind][0]}f}"


def _with_error(figure: Figure, kind: str) -> str:
    if figure.standard_error is None:
        return f"{_number(figure, kind)} (one run)"
    return f"{_number(figure, kind)} ({figure.standard_error:.{DIGITS[kind][1]}f})"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"


def write_tables(cells: Cells, folder: Path) -> list[Path]:
    """Every table as Markdown, LaTeX and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for layout in layouts_for(cells):
        for suffix, make in (("md", markdown), ("tex", latex), ("csv", csv_lines)):
            path = folder / f"{layout.label}.{suffix}"
            write_atomically(path, make(layout, cells).encode())
            written.append(path)
    return written
