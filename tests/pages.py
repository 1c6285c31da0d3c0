"""Fenced blocks of the documentation: found, understood, run.

A block is `sh`, `python`, `toml` or `text`; the last is not run. A comment before it may mark it:
`<!-- long: 2 minutes -->` (not run here), `<!-- file: mine.py -->` (a file of the reader's),
`<!-- prints: posteer .. -->` (what the command prints).
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from posteer.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "studies" / "README.md"])
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*) -->\n)?^```(?P<kind>\S*)\n(?P<body>.*?)^```$", re.M | re.S
)
INLINE = re.compile(r"(?<!`)`(posteer [^`\n]*)`(?!`)")


@dataclass(frozen=True)
class Block:
    """One fenced block, and how it is marked."""

    page: str
    kind: str
    mark: str
    value: str
    body: str

    @property
    def runs(self):
        return self.kind in ("sh", "python") and self.mark == ""


def blocks(page):
    """The fenced blocks of a page, in order."""
    found = []
    for match in FENCE.finditer(page.read_text()):
        mark, _, value = (match["mark"] or "").partition(": ")
        found.append(Block(page.name, match["kind"], mark, value, match["body"]))
    return found


def commands(body):
    """The command lines of a shell block, as words."""
    lines = body.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_shell(body):
    """Run posteer's command lines in this process."""
    for words in commands(body):
        assert words[0] == "posteer", f"{words}: mark the block as long"
        main(words[1:])


def run_page(found):
    """Run what a page shows, in order, in the folder where we are; Python keeps its names."""
    names = {}
    for block in found:
        if block.mark == "file":
            Path(block.value).write_text(block.body)
        elif block.kind == "sh" and block.runs:
            run_shell(block.body)
        elif block.runs:
            exec(compile(block.body, block.page, "exec"), names)
