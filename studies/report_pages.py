"""Pictures of the report's page, light and dark, and how fast it loads and filters in a browser.

    python studies/report_pages.py [docs/records/paper.parquet] --out docs/figures

Needs Chromium and Selenium (`make browser`). Loading is from the start of the navigation until the
first view is drawn, filtering from the change, the first on a page, until the browser has painted
what is left. CPU is what the page's own thread takes of that; the rest is the machine's other work.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from browsers import Browser, browsing
from places import RECORDS
from running import Options, positive, run

from posteer.core.errors import require
from posteer.sweeps.results import read_sweep
from posteer.views.pages.report import write_report
from posteer.views.paper.report import table_lines

FILTERS = {
    "all cells": "#/cells",
    "one model": "#/cells?model=urn",
    "one length": "#/cells?length=50",
    "search `sym gcg`": "#/cells?search=sym+gcg",
    "difference to the published": "#/cells?show=difference",
    "runs of one model": "#/runs?model=urn",
    "runs, search `dyck`": "#/runs?search=dyck",
    "two methods, one model": "#/compare?model=urn",
}
PAINTED = """
const began = performance.now();
addEventListener("hashchange", () => requestAnimationFrame(() => requestAnimationFrame(
  () => done(performance.now() - began))), { once: true });
location.hash = %r;
"""
LOADED = "performance.getEntriesByName('ready').map((m) => m.startTime + m.duration)[0]"


def views(path: Path) -> dict[str, tuple[str, int]]:
    """Addresses to take pictures of, and how high."""
    rows = read_sweep(path).rows
    shown = [r for r in rows if (r["utility"], r["length"]) == ("dyck", 6) and r["surrogate"]]
    require(len(shown) > 0, f"{path}: no ascent for Dyck at length 6 to take a picture of")
    picked = max(shown, key=lambda row: row["surrogate"] - row["expected_utility"])
    return {
        "overview": ("#/overview", 900),
        "tables": (f"#/cells?model={picked['model']}", 1250),
        "run": (f"#/run/{picked['run'][:16]}", 1500),
    }


def pictures(browser: Browser, page: Path, shown: dict[str, tuple[str, int]], out: Path) -> None:
    """Each view light and dark, and one at the width of a phone."""
    for name, (address, high) in shown.items():
        for theme in ("light", "dark"):
            browser.look(dark=theme == "dark")
            browser.open(page, address)
            browser.screenshot(out / f"report-{name}-{theme}.png", high)
    browser.look("phone")
    browser.open(page, shown["tables"][0])
    browser.screenshot(out / "report-phone.png", 1000)


def measures(browser: Browser, page: Path, times: int) -> list[list[object]]:
    """Milliseconds of each step."""
    browser.look()
    browser.command("Performance.enable", timeDomain="threadTicks")
    loads = []
    for _ in range(times):
        browser.open(page, "#/cells")
        loads.append((float(browser.read(LOADED)), cpu(browser)))
    lines = [summary("load", loads)]
    for name, address in FILTERS.items():
        taken = []
        for _ in range(times):
            browser.open(page, f"#/{address[2:].partition('?')[0]}?method=none")
            before = cpu(browser)
            taken.append((float(browser.run(PAINTED % address)), cpu(browser) - before))
        lines.append(summary(name, taken))
    return lines


def cpu(browser: Browser) -> float:
    """Milliseconds that the page's thread has worked."""
    found = browser.command("Performance.getMetrics")["metrics"]
    return 1000 * next(float(one["value"]) for one in found if one["name"] == "TaskDuration")


def summary(name: str, taken: list[tuple[float, float]]) -> list[object]:
    walls, works = zip(*taken, strict=True)
    return [name, f"{median(walls):.0f}", f"{max(walls):.0f}", f"{median(works):.0f}"]


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("runs", type=Path, nargs="?", default=RECORDS / "paper.parquet")
    parser.add_argument("--out", type=Path, help="folder for the pictures")
    parser.add_argument("--times", type=positive, default=5, help="how often each is measured")
    given = parser.parse_args(arguments)
    shown = views(given.runs)
    with TemporaryDirectory() as folder, browsing(Path(folder)) as browser:
        page = Path(folder) / "report.html"
        made = write_report(given.runs, page)
        if given.out is not None:
            pictures(browser, page, shown, given.out)
        lines = measures(browser, page, given.times)
        print(f"{made['runs']:,} runs, {made['bytes'] / 1e6:.2f} MB")
        print("\n".join(table_lines(["step", "median ms", "worst ms", "median CPU ms"], lines)))


if __name__ == "__main__":
    run(main)
