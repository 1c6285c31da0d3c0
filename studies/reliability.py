"""The audit of what is on disk, and docs/RELIABILITY.md from it.

    python studies/reliability.py [--out docs/RELIABILITY.md] [--kills 200] [--flips 70]

Kills a sweep, a draw and a training; flips bits in every kind of file that we write and read; puts
forged files in the place of ours; fills the disk, and makes it read-only, under every command.
Counts what was lost, what was silently wrong, and what ended in a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from audit import disks, flips, forged, kills
from audit.tally import Tally
from places import ROOT
from running import Options, positive, run
from tables import heading

from posteer.core.files import write_atomically

MARK = "<!-- audit -->\n"


def audit(n_kills: int, n_flips: int) -> Iterator[Tally]:
    """All of it, a tally for each row."""
    shares = [n_kills // len(kills.VICTIMS)] * len(kills.VICTIMS)
    shares[0] += n_kills - sum(shares)
    for victim, share in zip(kills.VICTIMS, shares, strict=True):
        yield _in_a_folder(partial(kills.kill_often, victim, share))
    with TemporaryDirectory() as scratch:
        for kind in flips.make(Path(scratch)):
            yield flips.flip_often(kind, n_flips)
    yield _in_a_folder(forged.forge_all)
    for name, harm in (("full disk", disks.full), ("read-only disk", disks.read_only)):
        total = Tally(name)
        for one in disks.COMMANDS:
            total.add(_in_a_folder(partial(harm, one)))
        yield total


def _in_a_folder(work: Callable[[Path], Tally]) -> Tally:
    with TemporaryDirectory() as scratch:
        return work(Path(scratch))


def table(tallies: list[Tally]) -> str:
    """One row each, and all of them together."""
    lines = heading("| what | tries | named or mended | harmless | lost | silent | tracebacks |")
    total = Tally("**all**")
    for one in tallies:
        total.add(one)
    for one in [*tallies, total]:
        shown = [one.tries, one.refused, one.harmless, one.lost, one.silent, one.tracebacks]
        lines.append(f"| {one.what} | {' | '.join(map(str, shown))} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "RELIABILITY.md")
    parser.add_argument("--kills", type=positive, default=200)
    parser.add_argument("--flips", type=positive, default=70, help="for each kind of file")
    given = parser.parse_args(arguments)
    before, mark, _ = given.out.read_text().partition(MARK)
    tallies = []
    for one in audit(given.kills, given.flips):
        print(f"{one.what}: {one.tries} tries", file=sys.stderr, flush=True)
        for fault in one.faults:
            print(f"  {fault}", file=sys.stderr, flush=True)
        tallies.append(one)
    made = table(tallies)
    write_atomically(given.out, (before + (mark or MARK) + made).encode())
    print(made, end="")
    sys.exit(0 if all(one.clean for one in tallies) else 1)


if __name__ == "__main__":
    run(main)
