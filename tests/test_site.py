"""The sources of the site: every page has its place, and links still lead somewhere."""

import json
import os
import re
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parent.parent
SITE = run_path(str(ROOT / "docs" / "making" / "site.py"))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "source"
    SITE["stage"](out)
    return out


def test_every_page_and_notebook_is_in_the_navigation():
    named = {page.relative_to(ROOT) for page in SITE["pages"]()}
    own = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/notebooks/*.ipynb"), *ROOT.glob("*.md")]
    assert named >= {page.relative_to(ROOT) for page in own}


def test_links_of_the_site_lead_somewhere(source):
    made = {source / name for name in SITE["MADE"]}
    for page in source.rglob("*.md"):
        for _, target in SITE["LINK"].findall(page.read_text()):
            if not re.match(r"[a-z]+:|#", target):
                meant = Path(os.path.normpath(page.parent / target.partition("#")[0]))
                assert meant.exists() or meant in made, f"{page.name}: {target}"
        assert "<picture>" not in page.read_text()


def test_links_are_rewritten():
    read = SITE["rewritten"]
    text = "[a](docs/SWEEPS.md#look-at-it) [b](src/posteer/results.py) ![c](docs/figures/x.svg)"
    assert read(text, ROOT / "README.md") == "[a](SWEEPS.md#look-at-it) b ![c](figures/x.svg)"
    assert read("[d](../CONTRIBUTING.md)", ROOT / "docs" / "LOG.md") == "[d](CONTRIBUTING.md)"
    assert read("[e](https://a.b/c)", ROOT / "README.md") == "[e](https://a.b/c)"
    assert read("[f](../docs/LOG.md)", ROOT / "studies" / "README.md") == "[f](../LOG.md)"


def test_the_gallery_shows_every_figure():
    shown = SITE["gallery"]()
    for file in (ROOT / "docs" / "figures").glob("*.svg"):
        assert f"(figures/{file.name})" in shown


def test_links_in_notebooks_lead_somewhere():
    for path in ROOT.glob("docs/notebooks/*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            assert (path.parent / target).exists(), target
