"""The paper's twelve tables: which cells stand where. And tables of the same kind for any sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace

from posteer.paper.cells import Cell, Cells
from posteer.paper.published import FREQUENCIES, LENGTHS, METHODS, TARGETS, VARIANTS

HEADINGS = {
    "gcg": "GCG",
    "ppt-rb-analytic": "PPT-RB (A)",
    "ppt-rb": "PPT-RB",
    "ppt-analytic": "PPT (A)",
    "ppt": "PPT",
}
MODELS = {"beta-bernoulli": "Beta-Bernoulli (k=0)", "urn": "Reinforced urn (k=1)"}
TOLERANCE = {"J": 1e-3, "rank": 0.05}
"""Methods this near the best of a row are bold as well."""
SHOWN_AS = {"q-": "q*=", "tau-": "tau*="}


def heading(method: str) -> str:
    """What a method is called over a column."""
    return HEADINGS.get(method, method)


@dataclass(frozen=True)
class Line:
    """A row of a table; a length of its own where the columns have none."""

    label: str
    model: str
    target: str
    length: int | None = None
    section: str = ""


@dataclass(frozen=True)
class Layout:
    """A table: its lines, and columns of methods for each length."""

    label: str
    caption: str
    statistic: str
    lines: tuple[Line, ...]
    lengths: tuple[int | None, ...]
    methods: tuple[str, ...]


def papers_layouts() -> list[Layout]:
    """All twelve, under their own labels."""
    taus = [t for t in TARGETS["beta-bernoulli"] if t.startswith("tau-")]
    syms = [t for t in TARGETS["urn"] if t.startswith("sym-")]
    dirs = [t for t in TARGETS["urn"] if t.startswith("dir-")]
    urn = _lines("urn", syms, "symmetric") + _lines("urn", dirs, "random")
    frequency = tuple(
        line for model in MODELS for line in _lines(model, FREQUENCIES, MODELS[model])
    )
    dyck = tuple(
        Line(f"{MODELS[model]}, m={m}", model, "dyck", m) for model in MODELS for m in LENGTHS
    )
    dyck_ranked = tuple(Line(MODELS[model], model, "dyck") for model in MODELS)
    coin, of = _lines("beta-bernoulli", taus), "Reverse cross-entropy"
    both, short = LENGTHS, LENGTHS[:1]
    tables = [
        Layout(label, caption, statistic, lines, lengths, METHODS)
        for label, caption, statistic, lines, lengths in (
            ("rev-xent-urn", f"{of}, reinforced urn: J", "J", urn, both),
            ("rev-xent-bb", f"{of}, Beta-Bernoulli: J", "J", coin, both),
            ("rev-xent-bb-rank", f"{of}, Beta-Bernoulli: rank of 64", "rank", coin, short),
            ("rev-xent-urn-rank", f"{of}, reinforced urn: rank of 64", "rank", urn, short),
            ("freq-match-summary", "Frequency match: J", "J", frequency, both),
            ("freq-match-rank", "Frequency match: rank of 64", "rank", frequency, short),
            ("dyck-summary-table", "Dyck validity: J", "J", dyck, (None,)),
            ("dyck-rank", "Dyck validity: rank of 64", "rank", dyck_ranked, short),
        )
    ]
    for label, model, m in (
        ("ess-k0", "beta-bernoulli", 6),
        ("ess-k1", "urn", 6),
        ("ess-k0-m50", "beta-bernoulli", 50),
        ("ess-k1-m50", "urn", 50),
    ):
        caption = f"Final ESS/L, {MODELS[model]}: mean, least and greatest"
        lines = _lines(model, TARGETS[model])
        tables.append(Layout(label, caption, "ess", lines, (m,), VARIANTS))
    return tables


def own_layouts(cells: Cells) -> list[Layout]:
    """For any sweep: J, rank and ESS of each model, a line per utility."""
    tables = []
    for statistic, what in (("J", "J"), ("rank", "rank"), ("ess", "final ESS/L")):
        for model in cells.models:
            shown = [cell for cell in cells if cell.key[0] == model and _shows(cell, statistic)]
            if not shown:
                continue
            methods = {cell.key[3] for cell in shown}
            tables.append(
                Layout(
                    f"{_file_name(model)}-{statistic}",
                    f"{model}: {what}",
                    statistic,
                    _lines(model, cells.targets(model)),
                    tuple(sorted({cell.key[2] for cell in shown})),
                    tuple(method for method in cells.methods if method in methods),
                )
            )
    return tables


def layouts_for(cells: Cells) -> list[Layout]:
    """The paper's tables where a sweep has cells of them, own ones for what they leave out."""
    theirs = [_trimmed(layout, cells) for layout in papers_layouts() if _keys(layout, cells)]
    covered = {key for layout in theirs for key in _keys(layout, cells)}
    rest = Cells([])
    rest.by_key = {key: cell for key, cell in cells.by_key.items() if key not in covered}
    return theirs + own_layouts(rest)


def _trimmed(layout: Layout, cells: Cells) -> Layout:
    """Without lines, lengths and methods of which a sweep has no run."""
    keys = _keys(layout, cells)
    lines = {(key[0], key[1]) for key in keys}
    lengths = {key[2] for key in keys}
    return replace(
        layout,
        lines=tuple(
            line
            for line in layout.lines
            if (line.model, line.target) in lines and (line.length or min(lengths)) in lengths
        ),
        lengths=tuple(m for m in layout.lengths if m is None or m in lengths),
        methods=tuple(method for method in layout.methods if any(k[3] == method for k in keys)),
    )


def _keys(layout: Layout, cells: Cells) -> list[tuple[str, str, int, str]]:
    keys = [
        (line.model, line.target, line.length or length or 0, method)
        for line in layout.lines
        for length in layout.lengths
        for method in layout.methods
    ]
    there = [(key, cells.get(key)) for key in keys]
    return [key for key, cell in there if cell and _shows(cell, layout.statistic)]


def _shows(cell: Cell, statistic: str) -> bool:
    """A cell whose runs all failed is in the tables of J, to be counted."""
    return statistic == "J" or bool(cell.values(statistic))


def _lines(model: str, targets: list[str], section: str = "") -> tuple[Line, ...]:
    return tuple(Line(_label(target), model, target, section=section) for target in targets)


def _label(target: str) -> str:
    for prefix, shown in SHOWN_AS.items():
        if target.startswith(prefix):
            return shown + target.removeprefix(prefix)
    return "Dyck" if target == "dyck" else target


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip("-.")
