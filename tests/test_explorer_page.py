"""The explorer's page in a real browser: run, stop, flip a token, tour, axe-core, hostile names."""

import shutil

import pytest

pytest.importorskip("uvicorn", reason="starlette and uvicorn are not installed")
from serving import served

from posteer import elicit, expected_utility
from posteer.models import shipped_models
from posteer.sweeps.results import read_sweep

EVIL = '"><img src=x onerror="window.hacked = 1">'
CHIP = "document.querySelector('.chip[aria-pressed=true]')"
ENDED = f"/: (done|failed|stopped)$/.test({CHIP}?.textContent)"


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    evil = folder / EVIL
    shutil.copytree(shipped_models()["beta-bernoulli"], evil)
    with served(folder / "runs", [str(evil)]) as serving:
        browser.open(serving.address)
        yield serving


@pytest.fixture
def page(browser, server):
    """The explorer's address without its token; nothing is complained of."""
    browser.look()
    yield f"http://127.0.0.1:{server.port}/"
    assert browser.complaints() == []
    assert browser.read("window.hacked === undefined")


def run(browser):
    """Press Run and wait for the end of that run."""
    chips = "document.querySelectorAll('.chip').length"
    before = browser.read(chips)
    browser.find("#run").click()
    browser.wait(f"{chips} > {before}")
    browser.wait(ENDED)


def told(browser):
    return browser.find("#told").text


def test_the_token_is_gone_from_the_address(browser, server, page):
    browser.open(server.address)
    assert browser.read("location.href") == page
    assert browser.read("document.cookie") == "", "no script reads it"


def test_searches_are_watched_compared_and_overlaid(browser, server, page):
    browser.open(page, "#/watch")
    assert browser.find("#ask-model").get_attribute("value") == "urn"
    run(browser)
    found = elicit("urn", "dyck", length=6, method="ppt-rb")
    assert f"J is {found.expected_utility:.4f}" in told(browser) and "rank 1 " in told(browser)
    assert "".join(browser.texts("#found .tokens li"))[::2] == "010101"
    rows = browser.texts("#live-beside svg text")
    for name in ("ppt-rb, this run", "GCG, on the model itself", "gcg as published",
                 "best of all prompts"):  # fmt: skip
        assert name in rows
    steps = browser.read("document.querySelector('#scrub').max")
    assert int(steps) > 60
    weights = "document.querySelector('#live-latents-1 svg').outerHTML"
    snapped = browser.read(weights)
    browser.give("#scrub", 0, "input")
    browser.wait("document.querySelector('.slide output').textContent === '1'")
    assert browser.read(weights) != snapped, "the cloud at the first step"
    browser.give("#ask-seed", 3, "change")
    browser.find("#beside").click()
    run(browser)
    lines = "document.querySelectorAll('#live-surrogate svg path[stroke]').length"
    assert browser.read(lines) >= 2, "two ascents in one chart"
    rows = read_sweep(server.runs.folder).rows
    kept = {(row["method"], row["seed"]) for row in rows if row["model"] == "urn"}
    assert kept >= {("ppt-rb", 0), ("gcg", 0), ("ppt-rb", 3)}
    browser.open(page, "#/watch")
    browser.wait(f"document.querySelectorAll('.chip').length === {len(server.runs.known)}")
    browser.open(f"{page}report", "#/runs")
    assert f"{len(rows)} runs" in browser.find("main").text


def test_a_search_over_classes_shows_its_candidates(browser, page):
    browser.open(page, "#/watch?model=exact:coins(0.2,0.5,0.8)&method=classes-analytic")
    browser.find("#beside").click()
    run(browser)
    values = [float(text) for text in browser.texts("#live-candidates .candidates .figure")]
    assert len(values) > 3 and values == sorted(values, reverse=True)
    assert "rank 1 " in told(browser)


def test_stop(browser, server, page):
    browser.open(page, "#/watch?model=exact:urn&method=coordinate")
    with server.runs.hand:  # the run waits for it
        browser.find("#run").click()
        browser.wait("document.querySelector('#stop').disabled === false")
        browser.find("#stop").click()
        browser.until(lambda: next(reversed(server.runs.known.values())).stopping)
    browser.wait(ENDED)
    assert "Stopped" in told(browser)


def test_a_run_that_fails_shows_its_error(browser, page):
    browser.open(page, "#/watch?model=exact:urn&length=1")
    browser.find("#run").click()
    browser.wait("document.querySelector('#wrong').hidden === false")
    assert "length 1" in browser.find("#wrong").text
    browser.open(page, "#/watch?horizon=8&model=chains-16")
    browser.find("#run").click()
    browser.wait("document.querySelector('#wrong').hidden === false")
    assert "continuations" in browser.find("#wrong").text
    assert all("400 (Bad Request)" in one for one in browser.complaints()), "and nothing else"


def test_a_token_is_flipped(browser, page):
    browser.open(page, "#/steer?prompt=000111")
    browser.wait("/rank/.test(document.querySelector('#told').textContent)")
    value = float(expected_utility("urn", "dyck", "000111", 4).expected_utility)
    assert f"J is {value:.4f}" in told(browser)
    weights = "document.querySelector('#live-latents-1 svg').outerHTML"
    before = browser.read(weights)
    browser.find(".by-hand button").click()
    browser.wait("performance.getEntriesByName('flip to picture').length === 1")
    value = float(expected_utility("urn", "dyck", "100111", 4).expected_utility)
    assert f"J is {value:.4f}" in told(browser)
    assert browser.read("location.hash") == "#/steer?prompt=100111"
    assert browser.read(weights) != before
    browser.press("ARROW_RIGHT", "1")
    browser.wait("location.hash === '#/steer?prompt=110111'")
    browser.wait("performance.getEntriesByName('flip to picture').length === 2")
    assert len(browser.texts("#live-tree rect")) > 20
    browser.find("#reveal").click()
    browser.wait("/rank 1 of 64/.test(document.querySelector('#told').textContent)")
    assert "This is the best of all" in browser.find("#game").text
    assert browser.read("location.hash") == "#/steer?prompt=010101"


def test_a_target_is_dragged(browser, page):
    from selenium.webdriver import ActionChains

    browser.open(page, "#/watch?utility=target")
    pad = browser.find(".pad .catcher")
    ActionChains(browser.driver).drag_and_drop_by_offset(pad, 40, -30).perform()
    browser.wait("/target=/.test(location.hash)")
    rows = browser.read("decodeURIComponent(location.hash).match(/target=([^&]*)$/)[1]")
    (_, across), (_, up) = (map(float, row.split(",")) for row in rows.split(";"))
    assert across > 0.5 and up > 0.5
    assert float(browser.find("#target-0").get_attribute("value")) == pytest.approx(across)
    browser.find("#target-1").send_keys("\ue013")  # arrow up
    browser.wait(f"decodeURIComponent(location.hash).endsWith(',{round(up + 0.01, 2)}')")


def test_the_tour(browser, page):
    browser.open(page, "#/tour")
    titles = []
    for step in (1, 2, 3, 4):
        browser.wait(f"document.querySelector('h1').textContent.startsWith('{step}.')")
        titles.append(browser.find("h1").text.partition(":")[0])
        if step == 1:
            browser.find("#draw").click()
            assert set(browser.find("#sample").text[:40]) <= {"0", "1"}
        if step == 2:
            browser.wait("/J is/.test(document.querySelector('#told').textContent)")
            browser.find(".by-hand button").click()
        if step == 3:
            browser.wait("/surrogate/.test(document.querySelector('#told').textContent)")
            before = told(browser)
            browser.find("#tour-0").send_keys("\ue010")  # end
            browser.until(lambda before=before: told(browser) != before)
        if step < 4:
            browser.find("#next").click()
    assert titles == ["1. Prior", "2. Posterior", "3. Tilt", "4. Snapping"]
    browser.find("#ascend").click()
    browser.wait("/Snapped to 010101/.test(document.querySelector('#told').textContent)")


def test_names_are_shown_and_never_run(browser, page):
    browser.open(page, "#/watch?model=named-1&method=coordinate")
    assert EVIL in browser.find("#ask-model").text
    browser.find("#beside").click()
    run(browser)
    assert EVIL in browser.find(".chip[aria-pressed=true]").text
    for address in ("#/%3Cimg%3E?model=%22%3E%3Cimg%20src=x%3E&target=__proto__&seed=%3Cimg%3E",
                    "#/steer?prompt=<img>&utility=constructor&token=__proto__",
                    "#/watch?utility=target&target=<img>;1,2"):  # fmt: skip
        browser.open(page, address)
        assert browser.read("document.querySelectorAll('img').length") == 0
    browser.open(f"{page}report", "#/runs")
    assert browser.read("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize(("size", "dark"), [("desk", False), ("phone", True)])
def test_the_page_can_be_read_by_everybody(browser, page, size, dark):
    """No serious finding of axe-core, nothing wider than the window."""
    pytest.importorskip("axe_core_python", reason="axe-core is not installed")
    browser.look(size, dark)
    browser.open(page, "#/watch?model=exact:coins(0.2,0.5,0.8)&method=ppt-rb-analytic")
    run(browser)
    views = {
        "#/watch?utility=target": "document.querySelector('#found svg') !== null",
        "#/steer": "document.querySelector('#reveal') !== null",
        "#/tour?step=3": "document.querySelector('#told').textContent !== ''",
    }
    del views["#/tour?step=3" if size == "desk" else "#/steer"]
    for address, drawn in views.items():
        browser.open(page, address)
        browser.wait(drawn)
        assert browser.read("document.documentElement.scrollWidth <= innerWidth"), address
        assert browser.barriers() == [], address
