"""The notebooks of docs/ run from top to bottom, and are committed without outputs."""

import json
from pathlib import Path

import pytest
from matplotlib import pyplot

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path):
    return json.loads(path.read_text())["cells"]


def source(cell):
    return "".join(cell["source"])


@pytest.fixture(autouse=True)
def reading_from_its_folder(monkeypatch):
    monkeypatch.chdir(FOLDER)
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["paper", "sweep", "your_model"]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.stem == "paper")) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs(path, capsys):
    """Plain Python: it has no magic. Nothing is left beside it."""
    before, names = set(FOLDER.iterdir()), {"__name__": path.stem}
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    for cell in code:
        exec(compile(source(cell), f"{path.name}, {cell['id']}", "exec"), names)
    assert set(FOLDER.iterdir()) == before and capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_has_no_outputs(path):
    """Outputs are made when the site is built: none are out of date, and changes can be read."""
    found = cells(path)
    assert found[0]["cell_type"] == "markdown" and source(found[0]).startswith("# ")
    assert len({cell["id"] for cell in found}) == len(found)
    for cell in found:
        assert cell["cell_type"] != "code" or (cell["outputs"], cell["execution_count"]) == (
            [],
            None,
        )
