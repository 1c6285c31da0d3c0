"""Every command and code block of README and docs runs as it stands, or says how long it takes."""

import re
import tomllib

import pytest
from cyclopts import MissingArgumentError
from matplotlib import pyplot
from pages import INLINE, PAGES, ROOT, blocks, commands, run_page

from posteer.cli import app, main

BLOCKS = {str(page.relative_to(ROOT)): blocks(page) for page in PAGES}
EVERY = [block for found in BLOCKS.values() for block in found]
ELSEWHERE = {"docs/YOUR_MODEL.md"}  # test_your_model.py has what it needs
SLOW = {"README.md", "docs/FAMILIES.md", "docs/METHODS.md", "docs/SWEEPS.md"}
RUN = [name for name, found in BLOCKS.items() if any(one.runs for one in found)]


def test_every_block_says_what_it_is_and_a_long_one_how_long_it_takes():
    for block in EVERY:
        assert block.kind in ("sh", "python", "toml", "text"), block
        assert block.mark in ("", "long", "file", "prints"), block
        if block.mark == "long":
            assert re.search(r"\d+ (s|seconds?|minutes?|hours?)\b", block.value), block


def parsed(words):
    """Whether the command line takes these words; nothing is run."""
    try:
        app.parse_args(words[1:], exit_on_error=False, print_error=False)
    except MissingArgumentError:
        return True
    return True


def test_every_command_in_a_block_is_one():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for block in EVERY:
        if block.kind != "sh":
            continue
        for words in commands(block.body):
            if words[0] == "posteer":
                assert parsed(words)
            elif words[0] == "make":
                assert words[1] in targets, words
            elif words[0] == "python":
                assert words[1] == "-m" or (ROOT / words[1]).is_file(), words
            else:
                assert words[:2] == ["pip", "install"], words
                named = re.findall(r"\[([\w,]+)\]", " ".join(words))
                assert all(one in extras for some in named for one in some.split(",")), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_in_a_sentence_is_one(page):
    """Its options are there; one that is cut short by dots is left alone."""
    if page.name == "CHANGELOG.md":
        return
    for text in INLINE.findall(page.read_text()):
        if ".." not in text.replace("../", "").replace("..)", "") and "|" not in text:
            for words in commands(text):
                assert parsed(words), text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A reader's folder, with the records of the repository."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("Agg")
    yield tmp_path
    pyplot.close("all")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RUN],
)
def test_what_a_page_shows_runs(name, folder, capsys):
    if name not in ELSEWHERE:
        run_page(BLOCKS[name])
        assert capsys.readouterr().out


PRINTED = [block for block in EVERY if block.mark == "prints"]


@pytest.mark.slow
@pytest.mark.parametrize("block", PRINTED, ids=lambda block: block.value)
def test_what_a_page_says_is_printed_is(block, folder, capsys, monkeypatch):
    """Times apart."""
    monkeypatch.setenv("COLUMNS", "80")
    (words,) = commands(block.value)
    main(words[1:])
    printed, shown = capsys.readouterr().out, block.body
    assert untimed(printed) == untimed(shown)


def untimed(text):
    return [re.sub(r"[\d.]+ s +│", "s │", line).rstrip() for line in text.splitlines()]


def links(page):
    """Relative links of a page: file and anchor."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    return [one.partition("#")[::2] for one in found if not re.match(r"[a-z]+:", one)]


def anchors(page):
    """The anchors that headings of a page have on GitHub."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_links_lead_somewhere(page):
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {file}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {file}#{anchor}"


def test_every_page_leads_to_the_glossary():
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "GLOSSARY.md" or "GLOSSARY.md" in page.read_text(), page.name
