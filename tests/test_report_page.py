"""The report's page in a real browser: filters, links, exports, keys, axe-core, hostile names."""

import csv
import io
import json
import shlex
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from posteer.banks.shipped import FOLDER, load_bank
from posteer.core.weights import normalise
from posteer.paper.cells import Cells
from posteer.paper.published import published, target_of_utility
from posteer.sweeps.results import read_sweep, write_parquet
from posteer.views.pages.report import write_report

PAPER = Path(__file__).parent.parent / "docs" / "records" / "paper.parquet"
VIEWS = {
    "overview": "#/overview",
    "cells": "#/cells?model=urn",
    "difference": "#/cells?show=difference&model=urn",
    "compare": "#/compare?model=urn&length=6",
    "cost": "#/cost?model=urn&length=6",
    "runs": "#/runs?model=urn&search=dyck+gcg",
    "cell": "#/cell?model=urn&utility=dyck&length=6&method=gcg",
}
EVIL = {
    "model": "</script><script>window.hacked = 1</script>",
    "utility": '"><img src=x onerror="window.hacked = 2">',
    "error": "<b onmouseover='window.hacked = 3'>oh</b> ${window.hacked = 4}",
}


@pytest.fixture(scope="module")
def rows():
    return read_sweep(PAPER).rows


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("pages") / "paper.html"
    made = write_report(PAPER, out)
    assert made["runs"] == 5100 and made["bytes"] < 5_000_000
    return out


@pytest.fixture(scope="module")
def part(page):
    """The same with few utilities: what is checked node by node takes long on the whole."""
    out = page.with_name("part.html")
    some = ["dyck", "frequency(0.3)", "reverse-xent(sym-0.1)"]
    write_report(PAPER, out, {"model": ["urn"], "utility": some, "length": ["6"]})
    return out


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, rows):
    """Runs with names that want to be code, some of them failed, diverged or not to be trusted."""
    folder = tmp_path_factory.mktemp("hostile")
    base = next(row for row in rows if row["model"] == "urn" and row["method"].startswith("ppt-rb"))
    states = ["done", "failed", "diverged", "untrusted"]
    made = []
    for seed, state in enumerate(states):
        row = {**base, **EVIL, "run": f"{seed}" * 64, "seed": seed, "bank": None}
        row |= {"status": "done" if state == "untrusted" else state, "pareto_k": 0.1}
        if state == "untrusted":
            row["pareto_k"] = 1.5
        if state == "failed":
            row |= {"expected_utility": None, "prompt": None, "rank": None, "surrogate": None}
        else:
            row["error"] = None
        made.append(row)
    write_parquet(made, folder / "evil.parquet", {"configuration": None, "sessions": []})
    out = folder / "evil.html"
    write_report(folder / "evil.parquet", out)
    return out


@pytest.fixture(autouse=True)
def quiet_console(browser):
    browser.look()
    yield
    assert browser.complaints() == []


def shown_cells(browser):
    """By label, what every cell of the heat maps shows."""
    cells = "[...document.querySelectorAll('td.heat a')]"
    told = browser.read(
        f"{cells}.map((a) => [a.getAttribute('aria-label'), a.firstChild.textContent])"
    )
    return dict(told)


def number(text):
    return float(text.replace("\u2212", "-"))


def test_a_link_shows_what_it_names(browser, page, rows):
    """Differences of mean ranks from the published ones, against Python's own tables."""
    browser.open(page, "#/cells?statistic=rank&show=difference&model=urn&length=6")
    for name, value in {"statistic": "rank", "show": "difference", "model": "urn"}.items():
        assert browser.find(f"#filter-{name}").get_attribute("value") == value
    found = shown_cells(browser)
    cells = Cells(rows)
    headings = {"GCG": "gcg", "PPT-RB (A)": "ppt-rb-analytic", "PPT-RB": "ppt-rb"}
    headings |= {"PPT (A)": "ppt-analytic", "PPT": "ppt"}
    assert len(found) == 31 * 5
    for label, text in found.items():
        model, target, length, rest = label.split(", ", 3)
        key = (model, target, int(length.removeprefix("m=")), headings[rest.split(":")[0]])
        gap = cells.figure(key, "rank").value - published()[*key, "rank"].value
        assert number(text) == pytest.approx(gap, abs=0.051), key


def test_filters_search_and_back(browser, page):
    browser.open(page, "#/cells")
    assert len(shown_cells(browser)) == 510
    browser.choose("#filter-model", "urn")
    browser.wait("document.querySelectorAll('td.heat a').length === 310")
    browser.choose("#filter-length", "50")
    browser.wait("document.querySelectorAll('td.heat a').length === 155")
    assert browser.read("location.hash") == "#/cells?model=urn&length=50"
    assert browser.read("document.activeElement.id") == "filter-length"
    browser.driver.execute_script("document.activeElement.blur()")
    browser.press("/")
    assert browser.read("document.activeElement.id") == "search"
    browser.press("s", "y", "m", " ", "g", "c", "g")
    browser.wait("document.querySelectorAll('td.heat a').length === 9")
    assert "search=sym+gcg" in browser.read("location.hash")
    assert browser.read("document.activeElement.id") == "search", "typing goes on"
    browser.press("ESCAPE")
    browser.find("td.heat a").click()
    browser.wait("location.hash.startsWith('#/cell?')")
    browser.find("section table.data tbody a").click()
    browser.wait("location.hash.startsWith('#/run/')")
    browser.driver.back()
    browser.driver.back()
    browser.wait("document.querySelectorAll('td.heat a').length === 9")
    assert browser.find("#search").get_attribute("value") == "sym gcg"
    browser.find(".filters button").click()
    browser.wait("document.querySelectorAll('td.heat a').length === 510")
    browser.choose("#filter-state", "failed")
    browser.wait("document.querySelectorAll('td.heat a').length === 0")
    assert "No cell is left" in browser.find("main").text


def test_sorting_is_in_the_address(browser, page):
    browser.open(page, "#/cells?model=urn&length=6&family=reverse-xent&method=gcg")
    browser.find("th button.sort").click()
    browser.wait("document.querySelector('th[aria-sort=descending]') !== null")
    assert "sort=6+gcg" in browser.read("location.hash")
    values = [number(text) for text in shown_cells(browser).values()]
    assert values == sorted(values, reverse=True)
    browser.open(page, browser.read("location.hash").replace("descending", "ascending"))
    assert [number(text) for text in shown_cells(browser).values()] == sorted(values)


def test_keys(browser, page):
    browser.open(page, "#/cells?model=urn&length=6")
    browser.driver.execute_script("document.querySelector('td.heat a').focus()")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert browser.read(focused).startswith("urn, dyck, m=6, GCG")
    browser.press("ARROW_RIGHT")
    browser.press("ARROW_DOWN")
    assert browser.read(focused).startswith("urn, q-0.0, m=6, PPT-RB (A)")
    browser.press("ENTER")
    browser.wait("location.hash.startsWith('#/cell?')")
    browser.press("?")
    assert browser.read("document.getElementById('help').open") is True
    browser.press("ESCAPE")
    assert browser.read("document.getElementById('help').open") is False
    browser.press("ESCAPE")
    browser.wait("location.hash === '#/cells?model=urn'")


def test_exports(browser, page, rows):
    browser.open(page, "#/cells?statistic=ess&model=beta-bernoulli")
    browser.export("main section", "Save CSV")
    told = csv.DictReader(io.StringIO(browser.downloaded("beta-bernoulli-ess-ours.csv").decode()))
    cells = {}
    for row in rows:
        if row["model"] == "beta-bernoulli" and row["ess_fraction"] is not None:
            key = (row["utility"], str(row["length"]), row["method"])
            cells.setdefault(key, []).append(row["ess_fraction"])
    found = {(line["utility"], line["length"], line["method"]): line for line in told}
    assert found.keys() == cells.keys() and len(cells) == 160
    for key, values in cells.items():
        assert float(found[key]["ESS/L"]) == pytest.approx(fmean(values), rel=1e-6)
        target, method = target_of_utility(key[0]), key[2].partition("(")[0]
        place = ("beta-bernoulli", target, int(key[1]), method, "ess_over_l_mean")
        assert float(found[key]["published"]) == published()[place].value


def test_pictures_and_texts(browser, page):
    browser.open(page, "#/cells?model=urn&length=6&family=dyck")
    browser.export("main section", "Save SVG")
    root = ElementTree.fromstring(browser.downloaded("urn-J-ours.svg"))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "GCG" in texts and "0.279" in texts
    assert not any("class" in node.attrib for node in root.iter())
    browser.open(page, "#/compare?model=urn")
    browser.export("main figure", "Save PNG")
    png = browser.downloaded("compare-dyck.png")
    wide = 2 * browser.read("document.querySelector('main figure svg').viewBox.baseVal.width")
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(png[16:20], "big") == wide
    browser.export("main section", "Copy Markdown")
    browser.wait("document.querySelector('.told').textContent === 'Markdown copied'")
    read = "navigator.clipboard.readText().then(done, done)"
    text = browser.run(read)
    assert text.splitlines()[0].startswith("| utility | model | m | GCG | PPT-RB (A) |")
    browser.export("main section", "Copy LaTeX")
    browser.wait("document.querySelector('.told').textContent === 'LaTeX copied'")
    text = browser.run(read)
    assert text.startswith("\\begin{tabular}{llrrrrrr}") and "$-$" in text


def test_two_methods_are_paired_by_seed(browser, page, rows):
    a, b = "gcg", "ppt-rb(candidate-score=optimum-context)"
    browser.open(page, f"#/compare?a={a}&b={b}&model=urn&length=50")
    values = {}
    for row in rows:
        if (row["model"], row["length"]) == ("urn", 50) and row["method"] in (a, b):
            values[row["method"], row["utility"], row["seed"]] = row["expected_utility"]
    gaps = {}
    for (method, utility, seed), value in values.items():
        if method == a:
            gaps.setdefault(utility, []).append(value - values[b, utility, seed])
    means = [fmean(some) for some in gaps.values()]
    wins, losses = sum(m > 1e-3 for m in means), sum(m < -1e-3 for m in means)
    told = browser.find(".lead").text
    assert f"in {wins} of 31 cells, the same in {31 - wins - losses}, worse in {losses}" in told
    assert f"{fmean(means):+.3f}".replace("-", "\u2212") in told


def test_a_run_shows_its_prompt_its_latents_and_its_command(browser, page, rows):
    row = next(r for r in rows if r["model"] == "urn" and r["method"].startswith("ppt-rb(")
               and r["utility"] == "reverse-xent(sym-0.1)" and r["length"] == 50)  # fmt: skip
    browser.open(page, f"#/run/{row['run'][:16]}")
    assert "".join(browser.texts(".tokens li")) == row["prompt"]
    kernels = load_bank(FOLDER / "urn.tuning.safetensors").kernels[:1000].double()
    tokens = [int(c) for c in row["prompt"]]
    logs = sum(kernels[:, x, y].log() for x, y in pairwise(tokens))
    ess = float(1 / normalise(logs).square().sum())
    assert f"effective sample size {ess:.0f} of 1,000" in browser.find("main").text
    words = shlex.split(browser.find(".command code").text)
    given = dict(zip(words[2:-1:2], words[3:-1:2], strict=True))
    assert given == {
        **{"--model": "urn", "--utility": row["utility"], "--length": "50", "--horizon": "4"},
        **{"--method": row["method"], "--seed": str(row["seed"])},
    }
    assert len(browser.texts("figure")) >= 3
    assert browser.texts("figure details.behind table"), "a table behind every chart"


def test_names_are_shown_and_never_run(browser, hostile):
    for address in ("#/overview", "#/cells", "#/runs", "#/cost", "#/compare", "#/run/1111"):
        browser.open(hostile, address)
        assert browser.read("window.hacked === undefined")
        assert browser.read("document.querySelectorAll('img, b, script').length") == 2
    assert EVIL["error"] in browser.find("main").text
    assert EVIL["model"] in browser.find("h1").text
    browser.open(hostile, "#/cells")
    told = "".join(shown_cells(browser))
    for sign, count in {"failed": 1, "diverged": 1, "k-hat above 0.7": 1}.items():
        assert f"{count} of 4 runs" in told and sign in told
    assert browser.texts("td.heat .sign") == ["\u2715\u25b2\u25c6"]
    browser.open(hostile, "#/cells?search=%3Cimg%20src=x%20onerror=alert(1)%3E")
    browser.open(
        hostile, "#/%3Cimg%3E/x?model=%22%3E%3Cimg%20src=x%3E&sort=__proto__&statistic=__proto__"
    )
    browser.open(hostile, "#/cells?statistic=toString&show=constructor&model=%E0%A4%A")
    assert browser.read("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize(("size", "dark"), [("desk", False), ("phone", True)])
def test_pages_can_be_read_by_everybody(browser, part, rows, size, dark):
    """No serious finding of axe-core, nothing wider than the window."""
    pytest.importorskip("axe_core_python", reason="axe-core is not installed")
    ascent = next(row["run"] for row in rows if row["model"] == "urn" and row["surrogate"]
                  and row["utility"] == "dyck" and row["length"] == 6)  # fmt: skip
    browser.look(size, dark)
    for address in (*VIEWS.values(), f"#/run/{ascent[:16]}"):
        browser.open(part, address)
        assert browser.read("document.documentElement.scrollWidth <= innerWidth"), address
        assert browser.barriers() == [], address


def test_the_theme_is_the_systems_until_it_is_chosen(browser, page):
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.look(dark=True)
    browser.open(page)
    dark = browser.read(colour)
    browser.choose("#theme", "light")
    light = browser.read(colour)
    assert light == "rgb(255, 255, 255)" != dark
    browser.open(page, "#/runs")
    assert browser.read(colour) == light, "kept for the next visit"
    browser.choose("#theme", "system")
    assert browser.read(colour) == dark


def test_a_page_prints(browser, page):
    browser.open(page, "#/cells?model=urn&length=6")
    assert len(browser.command("Page.printToPDF", printBackground=True)["data"]) > 10_000


def test_data_of_the_page_are_json(browser, page):
    browser.open(page)
    assert json.loads(browser.read("document.getElementById('data').textContent"))["size"] == 5100
