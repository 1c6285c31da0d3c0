"""Records in notebooks: tables that hold their figures, plots on axes, data frames."""

import json
import re
from html.parser import HTMLParser

import pytest
import torch
from matplotlib import pyplot

from posteer import check_filter, compare, elicit, evaluate, load_result, open_model, sample
from posteer.banks.checks.report import CheckSettings
from posteer.core.errors import InputError
from posteer.core.sealing import MARKS
from posteer.models.function import FunctionModel
from posteer.views.notebook.html import html_of
from posteer.views.notebook.plots import plot_of

ASCENT = "ppt-rb-analytic(samples=200,steps=20)"


@pytest.fixture(autouse=True)
def off_screen():
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def found():
    return elicit("exact:urn", "dyck", length=4, method=ASCENT)


@pytest.fixture(scope="module")
def both():
    return compare("exact:urn", "dyck", length=4, methods=[ASCENT, "coordinate"], seeds=2)


@pytest.fixture(scope="module")
def bank():
    return sample("exact:urn", rollouts=50, length=40)


class Cells(HTMLParser):
    """The texts of a table's cells, row by row."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        if self.rows:
            self.rows[-1].append(data)


def shown(record):
    return {row[0]: row[1:] for row in Cells(html_of(record)).rows}


def test_a_record_shows_prompt_utility_rank_and_cost(found):
    cells = shown(found)
    assert cells["prompt"] == ["".join(map(str, found.prompt))]
    assert cells["expected utility"] == [f"{found.expected_utility:.6g} (exact)"]
    assert cells["rank"] == [f"{found.rank} of 16"]
    assert cells["surrogate"][0].startswith(f"{found.surrogate:.4f} ±")
    assert cells["model tokens"] == ["0 forward, 0 backward"]
    assert getattr(found, "_repr" + "_html_")() == html_of(found)


def test_a_judgement_a_comparison_a_bank_and_a_check_have_tables(both, bank):
    judged = evaluate("exact:urn", "dyck", "0101")
    assert shown(judged)["prompt"] == ["0101"]
    rows = Cells(html_of(both)).rows
    assert [row[0] for row in rows] == ["method", ASCENT, "coordinate"]
    assert rows[1][1] == f"{both.methods[0].mean:.4f}"
    assert "50 latents of exact:urn" in html_of(bank)


@pytest.fixture(scope="module")
def check(bank):
    return check_filter(open_model("exact:urn"), bank, CheckSettings(effort=0.02))


def test_a_check_shows_its_verdict_and_a_p_value_each(check):
    cells = shown(check)
    assert cells["verdict"] == [check.verdict]
    assert {name for name in cells if name.endswith(", p")} == {f"{n}, p" for n in check.p_values}
    axes = plot_of(check)
    assert len(axes.patches) == len(check.p_values)


def test_names_are_escaped():
    evil = "<script>x()</script>&"
    fair = lambda tokens: torch.full((len(tokens), 2), 0.5)  # noqa: E731
    model = FunctionModel(fair, vocab_size=2, order=0, name=evil)
    judged = evaluate(model, "dyck", "01")
    assert evil not in html_of(judged) and "&lt;script&gt;" in html_of(judged)
    assert set(Cells(html_of(judged)).tags) == {"table", "caption", "tr", "th", "td"}


def test_plots_are_drawn_on_axes(found, both, bank):
    axes = found.plot()
    (curve,) = [line for line in axes.lines if line.get_label() == "surrogate"]
    assert curve.get_ydata().tolist() == found.answer.surrogate_history
    levels = [line.get_ydata()[0] for line in axes.lines if line is not curve]
    assert levels == [found.expected_utility, found.optimum]
    assert both.plot(axes) is axes
    points = bank.plot().collections[0].get_offsets()
    assert points.tolist() == bank.kernels[:, :, 1].tolist()
    coins = sample("exact:beta-bernoulli", rollouts=20, length=10)
    assert coins.plot().get_xlabel() == "P(1)"


@pytest.mark.parametrize(
    ("model", "family"),
    [("exact:mess3", "hmm(states=2)"), ("exact:mess3(x=[0.1,0.3],a=0.7)", "atoms")],
)
def test_latents_that_are_no_kernels_are_drawn_by_what_they_write(model, family):
    bank = sample(model, rollouts=9, length=30, family=family)
    points = bank.plot().collections[0].get_offsets()
    assert points.shape == (9, 2) and points.min() >= 0 and points.max() <= 1
    assert len(bank.to_frame()) == 9
    assert f"9 latents of {model}" in html_of(bank)


def test_what_has_no_plot_says_so():
    with pytest.raises(InputError, match="no plot of a Judgement"):
        evaluate("exact:urn", "dyck", "0101").plot()
    assert re.fullmatch(r"<pre>.*</pre>", html_of(3))


def test_judgements_banks_and_checks_are_frames_too(bank, check):
    judged = evaluate("exact:urn", "dyck", "0101")
    (row,) = judged.to_frame().to_dict("records")
    assert row["rank"] == judged.rank and row["prompt"] == [0, 1, 0, 1]
    frame = bank.to_frame()
    assert frame["kernels_0_1"].tolist() == bank.kernels[:, 0, 1].tolist()
    tests = check.to_frame()
    assert dict(zip(tests["check"], tests["p_value"], strict=True)) == check.p_values


def test_frames_have_a_row_for_each_run(found, both):
    (row,) = found.to_frame().to_dict("records")
    assert row["prompt"] == found.prompt and row["cost_forward_tokens"] == 0
    assert row["expected_utility"] == found.expected_utility
    frame = both.to_frame()
    assert frame[["method", "seed"]].values.tolist() == [
        [method, seed] for method in (ASCENT, "coordinate") for seed in (0, 1)
    ]


@pytest.mark.parametrize(
    ("model", "method", "more"),
    [
        ("exact:urn", ASCENT, {}),
        ("exact:urn", "auto", {"verify": 2}),
        ("exact:coins(0.2,0.7)", "auto", {"allowed": "first=0"}),
        ("urn", "gcg(steps=3)", {"context": "01"}),
    ],
)
def test_a_result_is_read_back_as_it_was(model, method, more, tmp_path):
    found = elicit(model, "dyck", length=4, method=method, **more)
    found.save(tmp_path / "found.json")
    again = load_result(tmp_path / "found.json")
    assert again.to_json() == found.to_json()
    assert again.answer.history == found.answer.history
    assert again.answer.surrogate_history == found.answer.surrogate_history
    assert html_of(again) == html_of(found)


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('"length": 4', '"length": "4"', "expected int"),
        ('"length": 4', '"width": 4', "asked: expected model, utility"),
        ('"tensor": "int64"', '"tensor": "code"', "no tensor"),
        ("posteer-result-1", "posteer-result-9", "no result of `save`"),
    ],
)
def test_what_was_never_saved_is_refused(found, before, after, complaint, tmp_path):
    path = tmp_path / "found.json"
    found.save(path)
    text = path.read_text()
    path.write_text(text.replace(before, after))
    with pytest.raises(InputError, match="its checksum does not match"):
        load_result(path)
    facts = {k: v for k, v in json.loads(path.read_text()).items() if k not in MARKS}
    path.write_text(json.dumps(facts))
    with pytest.raises(InputError, match=complaint):
        load_result(path)
