"""The data of a report's page: what is in it, what can never get out of it, and how large it is."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sweeps import SMALL, small

from posteer.banks.drawn import draw_analytic
from posteer.cli import main
from posteer.core.errors import InputError
from posteer.models import open_model
from posteer.paper.published import published
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.results import consolidate, read_histories, read_sweep
from posteer.views.pages import bundle, report
from posteer.views.pages.columns import columns_of, is_untrusted, kernel_of, published_of
from posteer.views.pages.curves import LEVELS, curves_of, grid_of, levels_of
from posteer.views.pages.latents import latents_of
from posteer.views.pages.report import write_report

ASSETS = Path(bundle.__file__).parent / "assets"


class Parts(HTMLParser):
    """Texts of scripts and styles, and attributes of every tag, as a browser would take them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.within = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.within = tag
        if tag in ("script", "style"):
            self.texts.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag):
        self.within = None

    def handle_data(self, data):
        if self.within in ("script", "style"):
            tag, attrs, before = self.texts[-1]
            self.texts[-1] = (tag, attrs, before + data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("report") / "runs"
    run_sweep(small(lengths=[4]), where, device="cpu")
    consolidate(where)
    return where


@pytest.fixture(scope="module")
def paper():
    return read_sweep(Path(__file__).parent.parent / "docs" / "records" / "paper.parquet").rows


@pytest.fixture(scope="module")
def page(folder):
    out = folder.parent / "report.html"
    made = write_report(folder, out)
    text = out.read_text()
    assert made == {"file": str(out), "runs": 24, "bytes": len(text.encode()), "curves": 24}
    return Parts(text)


def data_of(parts):
    (text,) = [t for tag, attrs, t in parts.texts if attrs.get("type") == "application/json"]
    return json.loads(text)


def column(data, name):
    """A column of texts as it was."""
    values, codes = data["texts"][name].values()
    codes = codes if isinstance(codes, list) else [codes] * data["size"]
    return [None if code < 0 else values[code] for code in codes]


def test_columns_are_the_rows(folder, page):
    rows, data = read_sweep(folder).rows, data_of(page)
    assert data["size"] == len(rows) and data["name"] == SMALL["name"]
    for name in ("model", "utility", "method", "length", "seed", "prompt", "status"):
        assert column(data, name) == [row[name] for row in rows]
    for name, found in data["figures"].items():
        told = found if isinstance(found, list) else [found] * len(rows)
        for one, row in zip(told, rows, strict=True):
            assert one == (None if row.get(name) is None else pytest.approx(row[name], rel=1e-6))
    assert data["runs"] == [row["run"][:16] for row in rows] and len(set(data["runs"])) == len(rows)
    assert data["headings"] == ["PPT-RB (A)", "coordinate"]


def test_ascents_have_their_kernel_and_their_curves(folder, page):
    data, rows = data_of(page), read_sweep(folder).rows
    ascents = {str(i) for i, row in enumerate(rows) if row["method"].startswith("ppt")}
    assert set(data["kernels"]) == ascents and len(ascents) == 12
    for table in data["kernels"].values():
        assert all(sum(law) == pytest.approx(1, abs=1e-5) for law in table)
    histories = read_histories(folder)
    for at in ascents:
        kept = data["curves"]["runs"][at]
        whole = histories[rows[int(at)]["run"]]["surrogate"]
        assert kept["steps"] == len(whole) <= data["curves"]["whole"]
        low, high, packed = kept["series"]["surrogate"]
        levels = np.frombuffer(base64.b64decode(packed), dtype="<u2")
        drawn = low + (high - low) * levels / LEVELS
        assert drawn == pytest.approx(whole, abs=(high - low) / LEVELS)


def test_a_series_keeps_its_gaps_and_its_ends():
    low, high, text = levels_of([0.25, float("nan"), -1.0, float("inf"), 3.0])
    levels = np.frombuffer(base64.b64decode(text), dtype="<u2").tolist()
    assert (low, high) == (-1.0, 3.0)
    assert levels[1] == levels[3] == LEVELS + 1 and levels[2] == 0 and levels[4] == LEVELS
    assert levels_of([2.0, 2.0])[:2] == [2.0, 2.0]
    assert levels_of([float("nan")])[:2] == [0, 0]


def test_fewer_steps_are_kept_where_room_is_scarce():
    assert grid_of(1, 6) == [1]
    assert len(grid_of(5000, 6)) > 2 * len(grid_of(5000, 1)) - 5
    kept = curves_of({"a": {"surrogate": [0.1] * 100}, "b": {}}, ["b", "a"], 1)
    assert kept["grid"] == [1, 2, 4, 8, 16, 32, 64] and list(kept["runs"]) == ["1"]
    rising = [float(step) for step in range(1, 101)]
    low, high, text = curves_of({"a": {"surrogate": rising}}, ["a"], 1)["runs"]["0"]["series"][
        "surrogate"
    ]
    levels = np.frombuffer(base64.b64decode(text), dtype="<u2")
    assert low + (high - low) * levels / LEVELS == pytest.approx([*kept["grid"], 100], abs=1e-2)


def test_a_page_allows_its_own_script_and_style_and_nothing_else(page):
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and rules["base-uri"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (text,) = [
            t for name, a, t in page.texts if name == tag and a.get("type") != "application/json"
        ]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    linked = [a for _, a in page.tags if "src" in a or "href" in a]
    assert [a["href"] for a in linked] == ["data:,"], "nothing is loaded"


def test_assets_write_texts_and_never_markup():
    told = {path.name: path.read_text() for path in ASSETS.iterdir()}
    words = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|setAttributeNS"
    )
    for name, text in told.items():
        assert not re.search(words, text), name
        outside = set(re.findall(r"\w+://[^\s\"'`]+", text))
        assert outside <= {"http://www.w3.org/2000/svg"}, name
        assert len(text.splitlines()) <= 400, name


def test_modules_are_joined_once_each_and_their_names_do_not_clash(monkeypatch):
    script = bundle.joined("report.js")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    assert script.count("class Sweep") == 1
    files = {
        "a.js": 'import { two } from "./b.js";\nexport const one = two;\n',
        "b.js": 'import { one } from "./a.js";\nexport const two = 2;\n',
        "c.js": 'import { two } from "./d.js";\nconst two = 1;\n',
        "d.js": "export const two = 2;\n",
    }
    monkeypatch.setattr(bundle, "asset", files.__getitem__)
    with pytest.raises(InputError, match="imports itself"):
        bundle.joined("a.js")
    with pytest.raises(InputError, match="both have two"):
        bundle.joined("c.js")


@pytest.mark.parametrize(
    "text", ["</script><script>x()</script>", "<!--", "]]>&lt;", "\u2028\u2029", "\x00", "']\\"]
)
def test_json_neither_ends_a_script_nor_begins_markup(text):
    told = bundle.safe_json({text: [text]})
    assert not set(told) & set("<>&") and told.isascii()
    assert json.loads(told) == {text: [text]}


def test_names_are_texts_in_the_title_too():
    told = bundle.one_file("</title><script>x()</script>", "report.js", "pages.css", {})
    assert [tag for tag, _ in Parts(told).tags].count("script") == 2


def test_published_figures_stand_beside_their_cells(paper):
    found = {
        (one["model"], one["utility"], one["length"], one["method"].partition("(")[0]): one
        for one in published_of(paper)
    }
    assert len(found) == 510
    theirs = published()["urn", "q-0.3", 6, "gcg", "rank"]
    told = found["urn", "frequency(0.3)", 6, "gcg"]["figures"]["rank"]
    assert told == [theirs.value, theirs.standard_error]
    held = columns_of(paper)
    assert held["texts"]["method"]["values"][0] == "gcg"
    assert held["texts"]["utility"]["values"][:3] == ["dyck", "frequency(0.0)", "frequency(0.1)"]
    assert held["headings"] == ["GCG", "PPT-RB (A)", "PPT-RB", "PPT (A)", "PPT"]


def test_latents_are_the_priors_own(folder):
    told = latents_of(read_sweep(folder).rows, folder)["exact:urn"]
    prior = open_model("exact:urn").prior
    drawn = draw_analytic(prior, told["shown"], seed=0).kernels.float().numpy()
    held = np.frombuffer(base64.b64decode(told["kernels"]), dtype="<f4")
    assert (told["vocab"], told["order"], told["of"]) == (2, 1, None)
    assert np.array_equal(held.reshape(drawn.shape), drawn)


def test_latents_of_a_trained_model_are_the_first_of_its_bank(paper):
    found = latents_of([row for row in paper if row["seed"] == 0], None)
    assert {name: (one["shown"], one["of"]) for name, one in found.items()} == {
        "beta-bernoulli": (1000, 5000),
        "urn": (1000, 5000),
    }


def test_no_file_is_opened_because_a_record_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("open('ran', 'w')\n")
    (tmp_path / "atoms").write_text('{"kernels": [[[0.5, 0.5]]], "weights": [1.0]}')
    names = ["./mine.py:model", "mine.py:model", "exact:./mine.py:x", "some/folder"]
    names += ["exact:mixture(atoms)", "exact:mixture(../atoms.json)", "exact:hmm(atoms)"]
    found = latents_of([{"model": name, "bank": None} for name in names], None)
    assert {one["why"].split(" of this")[0] for one in found.values()} == {"No bank"}
    assert not (tmp_path / "ran").exists()


def test_latents_without_a_picture_say_so():
    names = ["exact:markov(vocab=3,order=1)", "exact:markov(vocab=4,order=9)", "exact:mess3"]
    small, large, hidden = latents_of([{"model": n, "bank": None} for n in names], None).values()
    assert (small["vocab"], small["order"], small["shown"]) == (3, 1, 1000)
    assert "262144 by 4: too large" in large["why"] and "expected Markov" in hidden["why"]


def test_which_runs_are_not_trusted_and_which_kernels_are_tables():
    assert is_untrusted({"pareto_k": 0.71})
    assert not is_untrusted({"pareto_k": 0.7}) and not is_untrusted({"pareto_k": None})
    assert not is_untrusted({"pareto_k": 2.0, "estimator_name": "conjugate", "ess_fraction": None})
    assert kernel_of({"prompt_kernel": "[[0.25,0.75],[1,0]]"}) == [[0.25, 0.75], [1, 0]]
    for bad in (None, "", "x", "3", "[]", "[[]]", "[[1],[0,1]]", "[[2,0]]", '[["a"]]', "[[NaN]]"):
        assert kernel_of({"prompt_kernel": bad}) is None


def test_too_many_runs_are_one_line_and_a_part_of_them_is_a_page(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MOST_RUNS", 20)
    out = tmp_path / "part.html"
    with pytest.raises(InputError, match="24 runs, and a page has room for 20: name some by"):
        write_report(folder, out)
    assert not out.exists()
    made = write_report(folder, out, {"model": ["exact:urn"], "utility": ["dyck"]})
    assert made["runs"] == 6
    assert "Only model exact:urn; utility dyck." in data_of(Parts(out.read_text()))["notes"]
    with pytest.raises(InputError, match="24 runs, and a page has room for 20"):
        write_report(folder / "results.parquet", out)
    with pytest.raises(InputError, match="no run is of length 99"):
        write_report(folder, out, {"length": ["99"]})


def test_curves_make_way_before_a_page_grows_too_large(folder, tmp_path, monkeypatch):
    whole = write_report(folder, tmp_path / "whole.html")["bytes"]
    monkeypatch.setattr(report, "MOST_BYTES", whole - 1000)
    made = write_report(folder, tmp_path / "less.html")
    assert made["bytes"] < whole - 1000
    monkeypatch.setattr(report, "MOST_BYTES", 10_000)
    with pytest.raises(InputError, match="24 runs make a page of"):
        write_report(folder, tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_the_command(folder, tmp_path, capsys):
    main(["report", str(folder), "--out", str(tmp_path / "one.html"), "--length", "4", "--json"])
    assert json.loads(capsys.readouterr().out)["runs"] == 24
    main(["report", str(folder)])
    assert "24 runs" in capsys.readouterr().out and (folder / "report.html").exists()
    with pytest.raises(SystemExit):
        main(["report", str(folder), "--out", str(tmp_path / "one.pdf")])
    assert "expected a file called .html" in capsys.readouterr().err
