"""Pictures of the explorer's page, light and dark, and how fast a flipped token is seen.

    python studies/explorer_pages.py --out docs/figures

Needs Chromium, Selenium, starlette and uvicorn (`make browser`). A flip is timed in the browser, on
the trained urn at six tokens: from the click until the posterior, the next token, the tree and J
are painted. Of that, `server` is the request, from its start to the last byte of its answer. CPU is
what the page's own thread takes; the server's is measured on its own. The rest is the machine's
other work. While an ascent is at work, runs wait for the hand.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from browsers import Browser, browsing
from report_pages import cpu
from running import Options, positive, run
from serving import served

from posteer.explorer.asked import cell_of
from posteer.explorer.steering import Hand
from posteer.views.paper.report import table_lines

if TYPE_CHECKING:
    from posteer.explorer.server import Serving

FLIPS = "performance.getEntriesByName('flip to picture').map((one) => one.duration)"
ASKED = """performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/api/steer'))
  .map((one) => one.responseEnd - one.requestStart)"""
ENDED = "/: done$/.test(document.querySelector('.chip[aria-pressed=true]')?.textContent)"


def search(browser: Browser, address: str) -> None:
    """Open a cell, run it, and wait for its end."""
    browser.open(address)
    chips = "document.querySelectorAll('.chip').length"
    before = browser.read(chips)
    browser.find("#run").click()
    browser.wait(f"{chips} > {before}")
    browser.wait(ENDED)


def views(browser: Browser, page: str) -> dict[str, tuple[str, int]]:
    """Addresses to take pictures of, and how high; runs that they show are run."""
    search(browser, f"{page}#/watch?length=50&method=classes")
    search(browser, f"{page}#/watch?length=50")
    return {
        "watch": (f"{page}#/watch?length=50", 1150),
        "steer": (f"{page}#/steer?length=6&prompt=010011", 1250),
        "tour": (f"{page}#/tour?step=3", 800),
    }


def pictures(browser: Browser, shown: dict[str, tuple[str, int]], out: Path) -> None:
    """Each view light and dark."""
    drawn = "document.querySelector('#told').textContent !== '' && document.querySelector('svg')"
    for name, (address, high) in shown.items():
        for theme in ("light", "dark"):
            browser.look(dark=theme == "dark")
            browser.open(address)
            browser.wait(drawn)
            if name == "steer":
                browser.wait("document.querySelector('#reveal') !== null")
            if name == "tour":
                browser.give("#tour-0", 0.9, "input")
                browser.give("#tour-1", 0.15, "input")
                browser.wait("/expect/.test(document.querySelector('#told').textContent)")
            browser.screenshot(out / f"explorer-{name}-{theme}.png", high)
    browser.look()


def flips(browser: Browser, address: str, times: int) -> list[object]:
    """Milliseconds from click to picture, of the request, and of the page's thread."""
    browser.open(address)
    browser.wait("document.querySelector('#reveal') !== null")
    browser.command("Performance.enable", timeDomain="threadTicks")
    works = []
    for at in range(times):
        before = cpu(browser)
        browser.driver.execute_script(
            f"document.querySelectorAll('.by-hand button')[{at % 6}].click()"
        )
        browser.wait(f"{FLIPS}.length === {at + 1}")
        works.append(cpu(browser) - before)
    walls, asked = browser.read(FLIPS), browser.read(ASKED)[-times:]
    return [
        *(f"{median(walls):.0f}", f"{max(walls):.0f}", f"{median(asked):.0f}"),
        f"{median(works):.0f}",
    ]


def server_work(serving: Serving, times: int) -> str:
    """Milliseconds of CPU that a prompt takes where it is judged."""
    asked = {"model": "urn", "utility": {"kind": "dyck"}, "horizon": 4, "prompt": [0, 1] * 3}
    hand, menu, taken = Hand(), serving.runs.menu, []
    for _ in range(times):
        before = time.thread_time()
        hand.judged(cell_of(menu, asked), asked["prompt"])  # type: ignore[arg-type]
        taken.append(1000 * (time.thread_time() - before))
    return f"{median(taken):.0f}"


def measures(browser: Browser, serving: Serving, page: str, times: int) -> list[list[object]]:
    """Flips on an idle server, and while an ascent is at work."""
    steer = f"{page}#/steer?prompt=000111"
    idle = flips(browser, steer, times)
    browser.open(f"{page}#/watch?length=50&model=exact:markov(vocab=3,order=1)&method=ppt-analytic")
    browser.find("#run").click()
    browser.wait("document.querySelector('#stop').disabled === false")
    busy = flips(browser, steer, times)
    serving.runs.stop_all()
    work = server_work(serving, times)
    return [["nothing else", *idle, work], ["an ascent", *busy, work]]


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--out", type=Path, help="folder for the pictures")
    parser.add_argument("--times", type=positive, default=20, help="how many tokens are flipped")
    given = parser.parse_args(arguments)
    with (
        TemporaryDirectory() as folder,
        browsing(Path(folder)) as browser,
        served(Path(folder) / "runs") as serving,
    ):
        browser.open(serving.address)
        page = f"http://127.0.0.1:{serving.port}/"
        if given.out is not None:
            pictures(browser, views(browser, page), given.out)
        lines = measures(browser, serving, page, given.times)
    head = ["at work besides", "median ms", "worst ms", "server ms", "page CPU ms", "server CPU ms"]
    print("\n".join(table_lines(head, lines)))


if __name__ == "__main__":
    run(main)
