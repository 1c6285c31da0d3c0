"""The audit of what is on disk and of what is asked, and docs/RELIABILITY.md from it.

    python studies/reliability.py [--part fuzz ..] [--out docs/RELIABILITY.md] [--kills 200]
        [--flips 70] [--lines 5000] [--calls 500]

Kills a sweep, a draw and a training; flips bits in every kind of file that we write and read; puts
forged files in the place of ours; fills the disk, and makes it read-only, under every command; asks
what no one should ask. Counts what was lost, what was silently wrong, and what ended in a
traceback. Parts that are not named keep their rows.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from audit import disks, flips, forged, fuzz, kills
from audit.tally import FIGURES, Tally
from places import ROOT
from running import Options, positive, run
from tables import heading

from posteer.core.files import write_atomically

MARK = "<!-- audit -->\n"
ALL = "**all**"


def _kills(given: argparse.Namespace) -> Iterator[Tally]:
    shares = [given.kills // len(kills.VICTIMS)] * len(kills.VICTIMS)
    shares[0] += given.kills - sum(shares)
    for victim, share in zip(kills.VICTIMS, shares, strict=True):
        yield _in_a_folder(partial(kills.kill_often, victim, share))


def _flips(given: argparse.Namespace) -> Iterator[Tally]:
    with TemporaryDirectory() as scratch:
        for kind in flips.make(Path(scratch)):
            yield flips.flip_often(kind, given.flips)


def _forged(_given: argparse.Namespace) -> Iterator[Tally]:
    yield _in_a_folder(forged.forge_all)


def _disks(_given: argparse.Namespace) -> Iterator[Tally]:
    for name, harm in (("full disk", disks.full), ("read-only disk", disks.read_only)):
        total = Tally(name)
        for one in disks.COMMANDS:
            total.add(_in_a_folder(partial(harm, one)))
        yield total


def _fuzz(given: argparse.Namespace) -> Iterator[Tally]:
    yield from fuzz.fuzz(given.lines, given.calls)


def _in_a_folder(work: Callable[[Path], Tally]) -> Tally:
    with TemporaryDirectory() as scratch:
        return work(Path(scratch))


@dataclass(frozen=True)
class Part:
    """Some rows of the table: how they are made, and a pattern of what they are called."""

    make: Callable[[argparse.Namespace], Iterable[Tally]]
    called: str


PARTS = {
    "kills": Part(_kills, "killed: .*"),
    "flips": Part(_flips, "flipped bits: .*"),
    "forged": Part(_forged, "forged files"),
    "disks": Part(_disks, "(full|read-only) disk"),
    "fuzz": Part(_fuzz, "hostile .*"),
}
"""In the order of the table."""


def table(tallies: list[Tally]) -> str:
    """One row each, and all of them together."""
    lines = heading("| what | tries | named or mended | harmless | lost | silent | tracebacks |")
    total = Tally(ALL)
    for one in tallies:
        total.add(one)
    for one in [*tallies, total]:
        shown = [one.what, *(str(getattr(one, name)) for name in FIGURES)]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def rows(text: str) -> list[Tally]:
    """What a table holds, but the sums."""
    row = r"^\| (.+?) " + r"\| (\d+) " * len(FIGURES) + r"\|$"
    found = []
    for what, *figures in re.findall(row, text, re.MULTILINE):
        found.append(Tally(what))
        for name, figure in zip(FIGURES, figures, strict=True):
            setattr(found[-1], name, int(figure))
    return [one for one in found if one.what != ALL]


def replaced(held: list[Tally], part: str, made: list[Tally]) -> list[Tally]:
    """The rows of a table, those of one part made anew."""
    return [
        one
        for name, each in PARTS.items()
        for one in (made if name == part else held)
        if name == part or re.fullmatch(each.called, one.what)
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "RELIABILITY.md")
    parser.add_argument("--part", nargs="+", choices=PARTS, help="these alone", metavar="PART")
    parser.add_argument("--kills", type=positive, default=200)
    parser.add_argument("--flips", type=positive, default=70, help="for each kind of file")
    parser.add_argument("--lines", type=positive, default=5000, help="hostile command lines")
    parser.add_argument("--calls", type=positive, default=500, help="hostile calls")
    given = parser.parse_args(arguments)
    given.out.read_text()  # refused now rather than after the work
    for name in given.part or PARTS:
        tallies = update(given.out, name, list(map(_told, PARTS[name].make(given))))
    print(table(tallies), end="")
    sys.exit(0 if all(one.clean for one in tallies) else 1)


def update(page: Path, part: str, made: list[Tally]) -> list[Tally]:
    """The rows of a page by now, those of one part made anew; its words may have changed since."""
    before, mark, held = page.read_text().partition(MARK)
    tallies = replaced(rows(held), part, made)
    write_atomically(page, (before + (mark or MARK) + table(tallies)).encode())
    return tallies


def _told(one: Tally) -> Tally:
    print(f"{one.what}: {one.tries} tries", file=sys.stderr, flush=True)
    for fault in one.faults:
        print(f"  {fault}", file=sys.stderr, flush=True)
    return one


if __name__ == "__main__":
    run(main)
