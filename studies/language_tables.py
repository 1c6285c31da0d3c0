"""The tables and figures of studies/language_models.py."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from language_settings import SETTINGS
from tables import heading, row

from posteer.views.figures.canvas import canvas, save

Records = list[dict[str, Any]]


def show(records: Records) -> None:
    """Ranks by text and length, what else would have been found, and how far each is a filter."""
    _heading("text", "length", "prompts", "rank 1", "worst", "tokens", "most", "bank tokens")
    for (text, length), cells in _by_cell(records).items():
        ranks = [cell["rank"] for cell in cells]
        tokens = [cell["tokens"] for cell in cells]
        first = f"{ranks.count(1)} of {len(ranks)}"
        figures = (cells[0]["prompts"], first, max(ranks), f"{median(tokens):.0f}", max(tokens))
        print(row(text, length, *figures, f"{cells[0]['bank_tokens']:,}"))
    print()
    _heading("cells", "adapting", "bank's first 8", "as many", "random", "corrected", "bank")
    ways = ("banks_first_8", "random", "corrected_first", "banks_first")
    names = ["rank", *(f"rank_of_{one}" for one in ways)]
    names.insert(2, "rank_at_equal_questions")
    for which, own in _groups(records).items():
        print(row(f"{which}: {len(own)}", *(_firsts(own, name) for name in names)))
    print()
    _heading("not first", "length", "utility", "rank", "behind", "best", "next", "spread")
    for cell in _cells(records):
        if cell["rank"] > 1:
            behind = f"{cell['best_J'] - cell['J']:.4f}"
            others = [f"{cell[n]:.4f}" for n in ("best_J", "next_J", "spread")]
            rank = f"{cell['rank']} of {cell['prompts']}"
            print(row(cell["text"], cell["length"], cell["utility"], rank, behind, *others))
    print()
    _heading(
        "text",
        "order",
        "temper",
        "mixture",
        "unweighed",
        "fixed",
        "on prompts",
        "corrected",
        "drift",
        "of a filter",
        "foretold",
        "correlation: bank",
        "corrected",
    )
    for record in (one for one in records if one["kind"] == "text"):
        found = record["departure"]
        parts = ("mixture", "unweighed", "fixed", "on_prompts", "corrected", "drift")
        intervals = [_interval(found[name]) for name in (*parts, "drift_of_filter")]
        own = [cell for cell in _cells(records) if cell["text"] == record["text"]]
        both = [
            f"{median(cell[f'correlation_of_{which}'] for cell in own):.2f}"
            for which in ("bank", "corrected")
        ]
        both.insert(0, f"{record['foretold']:.2f}")
        print(row(record["text"], record["order"], record["temper"], *intervals, *both))
    show_long([one for one in records if one["kind"] == "long"])
    show_precision([one for one in records if one["kind"] == "precision"])


def show_long(records: Records) -> None:
    """J of prompts that are too long to try all, by what each method asked of the model."""
    if not records:
        return
    print()
    budgets = sorted({one["budget"] for one in records})
    methods = dict.fromkeys(one["method"] for one in records)
    asked = [(method, budget) for method in methods for budget in budgets]
    names = [f"{method}, {budget:,}" for method, budget in asked]
    _heading("text", "utility", "bank", *names)
    known = {(one["text"], one["utility"], one["method"], one["budget"]): one for one in records}
    for text, utility in dict.fromkeys((one["text"], one["utility"]) for one in records):
        found = [known.get((text, utility, *one)) for one in asked]
        bank = max(one["bank_tokens"] for one in found if one is not None)
        figures = ["" if one is None else f"{one['J']:.3f}" for one in found]
        print(row(text, utility, f"{bank:,}", *figures))


def show_precision(records: Records) -> None:
    """What bfloat16 changes in J, in standard deviations over prompts, and processor time."""
    if not records:
        return
    print()
    _heading("in bfloat16", "same best prompt", "J differs by at most", "time beside float32")
    for one in records:
        best = f"{one['same']} of {one['utilities']}"
        quicker = one["seconds"]["bfloat16"] / one["seconds"]["float32"]
        print(row(one["text"], best, f"{one['apart']:.3f} deviations", f"{quicker:.2f}"))


def figures_of(records: Records, where: Path) -> None:
    """The implied prior over kernels of each text, and surrogates beside J."""
    pyplot = canvas()
    texts = [one for one in records if one["kind"] == "text"]
    rows = -(-len(texts) // 4)
    figure, panels = pyplot.subplots(rows, 4, figsize=(12, 3.2 * rows), squeeze=False)
    for panel, record in zip(panels.flatten(), texts, strict=False):
        kernels, names = record["kernels"], [one.strip() for one in record["alphabet"]]
        panel.scatter(*zip(*(row[:2] for row in kernels), strict=True), s=6, alpha=0.4)
        panel.set(xlabel=f"P({names[-1]} | {names[0]})", ylabel=f"P({names[-1]} | {names[1]})")
        panel.set(title=record["text"], xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    save(figure, where / "language-priors.svg")
    scatters = [one for one in records if one["kind"] == "scatter"]
    figure, panels = pyplot.subplots(
        2, len(scatters), figsize=(3 * len(scatters), 6), squeeze=False
    )
    for column, record in enumerate(scatters):
        for panel, which in zip(panels[:, column], ("bank", "corrected"), strict=True):
            panel.scatter(record[which], record["J"], s=4, alpha=0.4, rasterized=True)
            title = f"{record['text']}, {record['utility']}, length {record['length']}"
            panel.set(title=title, xlabel=f"{which} surrogate", ylabel="J")
            panel.title.set_fontsize(8)
    save(figure, where / "language-surrogates.svg")


def _cells(records: Records) -> Records:
    return [one for one in records if one["kind"] == "cell"]


def _by_cell(records: Records) -> dict[tuple[str, int], Records]:
    found: dict[tuple[str, int], Records] = {}
    for cell in _cells(records):
        found.setdefault((cell["text"], cell["length"]), []).append(cell)
    return found


def _groups(records: Records) -> dict[str, Records]:
    """Cells by length, those of texts that nothing was chosen on apart."""
    found: dict[str, Records] = {}
    for cell in sorted(_cells(records), key=lambda cell: cell["length"]):
        held_out = ", held out" * SETTINGS[cell["text"]].held_out
        found.setdefault(f"length {cell['length']}{held_out}", []).append(cell)
    return found


def _firsts(cells: Records, name: str) -> str:
    ranks = [cell[name] for cell in cells]
    return f"{ranks.count(1)} ({median(ranks):.0f})"


def _interval(found: dict[str, float]) -> str:
    return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _heading(*names: str) -> None:
    print("\n".join(heading(row(*names))))
