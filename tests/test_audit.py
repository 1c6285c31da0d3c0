"""The audit of what is on disk (studies/audit): a sample of it here, all of it where it is slow.

docs/RELIABILITY.md is made by the same code.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import reliability
from audit import disks, flips, forged, fuzz, kills, work
from audit.children import command
from audit.tally import Tally

from posteer.core.files import sha256
from posteer.core.sealing import check_listed, read_sums, write_sums

DOCS = Path(__file__).parent.parent / "docs"
SLOW = pytest.mark.slow
LONG = (pytest.mark.slow, pytest.mark.long)
KILLS = dict(zip((victim.name for victim in kills.VICTIMS), (60, 30, 60, 50), strict=True))


def clean(tally):
    assert tally.faults == []
    assert tally.tries > 0 and tally.clean


@pytest.mark.parametrize("share", [pytest.param(6, marks=SLOW), pytest.param(1, marks=LONG)])
@pytest.mark.parametrize("victim", kills.VICTIMS, ids=lambda victim: victim.name)
def test_kills_lose_nothing_and_end_alike(victim, share, tmp_path):
    """Each by SIGKILL, before a change of the folder; 200 in all, or a sixth of them."""
    n = KILLS[victim.name] // share
    tally = kills.kill_often(victim, n, tmp_path)
    clean(tally)
    assert tally.tries == n and sum(KILLS.values()) == 200


def test_a_few_kills(tmp_path):
    clean(kills.kill_often(kills.VICTIMS[2], 3, tmp_path, seed=1))


@pytest.mark.parametrize(
    ("make", "n"),
    [
        (flips.of_sweeps_and_draws, 4),
        pytest.param(flips.make, 15, marks=SLOW),
        pytest.param(flips.make, 55, marks=LONG),
    ],
)
def test_every_bit_counts(make, n, tmp_path):
    """Refused by name, mended or harmless; over 1,000 of them in the long run."""
    kinds = make(tmp_path)
    assert n < 55 or len(kinds) * n > 1000
    for kind in kinds:
        tally = flips.flip_often(kind, n, seed=n)
        clean(tally)
        assert tally.refused + tally.harmless == n
    if n > 4:
        assert [f"flipped bits: {kind.name}" for kind in kinds] == rows_of("flips")


def test_the_audit_of_bits_can_fail(tmp_path):
    path = tmp_path / "open.json"
    path.write_text(json.dumps({"figures": [12345678] * 20}))

    def unsealed(_told):
        return json.loads(path.read_text())

    tally = flips.flip_often(flips.Kind("open", path, unsealed, "open.json"), 40)
    assert tally.silent > 0 and tally.tracebacks > 0


def test_what_is_mended_wrongly_is_silent(tmp_path):
    path = tmp_path / "open"
    path.write_text("1" * 20)

    def mended(told):
        told += ["open: mended"] * (path.read_text() != "1" * 20)
        return len(told)

    for mends, silent in ((True, 9), (False, 0)):
        kind = flips.Kind("open", path, mended, "open", mends)
        tally = flips.flip_often(kind, 9)
        assert tally.silent == silent and tally.refused == 9 - silent


def test_the_audit_of_kills_can_fail(tmp_path):
    """Work that begins by throwing away what it had, and whose end depends on how it began."""
    victim = kills.Victim("careless", careless, ends_of, ends, 6)
    tally = kills.kill_often(victim, 6, tmp_path)
    assert tally.lost > 0 and tally.silent > 0


def careless(folder):
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    tries = log.read_text() if log.exists() else ""
    for path in folder.glob("end-*"):
        path.unlink()
    log.write_text(tries + "x")
    for name in ("end-1", "end-2"):
        (folder / name).write_text("")


def ends(folder):
    return {path.name: b"" for path in folder.glob("end-*")}


def ends_of(folder):
    return (folder / "log").read_text()


@SLOW
def test_forged_files(tmp_path):
    clean(forged.forge_all(tmp_path, every=2))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, marks=[] if "sample" in one.words and "--out" in one.words else SLOW)
        for one in disks.COMMANDS
    ],
    ids=lambda one: " ".join(one.words.split()[:2]),
)
def test_full_and_read_only_disks(one, tmp_path):
    clean(disks.full(one, tmp_path))
    clean(disks.read_only(one, tmp_path))


def test_every_command_is_tried_on_full_and_read_only_disks():
    said = command(["--help"]).out + command(["sweep", "--help"]).out
    names = set(re.findall(r"^│ ([a-z]+) ", said, re.MULTILINE))
    assert {"elicit", "train", "retry"} <= names
    tried = {word for one in disks.COMMANDS for word in one.words.split()[:2]}
    assert names <= tried | {"check", "completion", "explore", "report"}


def page():
    """The rows of docs/RELIABILITY.md."""
    rows = re.findall(r"^\| (.+?) \|(.+)\|$", (DOCS / "RELIABILITY.md").read_text(), re.MULTILINE)
    figures = {name: cells.split("|") for name, cells in rows if cells.strip()[0].isdigit()}
    return {name: [int(cell) for cell in cells] for name, cells in figures.items()}


def rows_of(part):
    """The names of a part's rows on the page."""
    return [name for name in page() if re.fullmatch(reliability.PARTS[part].called, name)]


def test_the_page_is_of_this_audit_and_all_zeros():
    figures = page()
    assert [name for part in reliability.PARTS for name in rows_of(part)] == list(figures)[:-1]
    assert list(figures)[-1] == "**all**"
    assert rows_of("kills") == [victim.name for victim in kills.VICTIMS]
    assert rows_of("forged") + rows_of("disks") == ["forged files", "full disk", "read-only disk"]
    assert rows_of("fuzz") == [fuzz.LINES, fuzz.CALLS]
    for cells in figures.values():
        assert cells[0] == cells[1] + cells[2] > 0 and cells[3:] == [0, 0, 0]
    tries = {part: sum(figures[name][0] for name in rows_of(part)) for part in reliability.PARTS}
    assert tries["kills"] >= 200 and tries["flips"] >= 1000 and tries["fuzz"] >= 5500
    assert sum(tries.values()) == figures["**all**"][0]


def test_a_part_of_the_page_is_made_alone(tmp_path, monkeypatch, capsys):
    """The rows of the others stay, and words that were changed meanwhile; the sums are of all."""
    path, parts = tmp_path / "page.md", reliability.PARTS

    def made(*tallies):
        def make(_given):
            path.write_text(path.read_text().replace("# Words", "# Other words"))
            yield from tallies

        return make

    def part(name, *tallies):
        changed = replace(parts[name], make=made(*tallies))
        monkeypatch.setitem(reliability.PARTS, name, changed)
        with pytest.raises(SystemExit) as ended:
            reliability.main(["--out", str(path), "--part", name])
        return ended.value.code, path.read_text()

    path.write_text("# Words\n")
    assert part("disks", Tally("full disk", 3, refused=3))[0] == 0
    code, text = part("fuzz", Tally(fuzz.CALLS, 5, refused=4, lost=1, faults=["which"]))
    assert code == 1 and "which" in capsys.readouterr().err
    code, text = part("kills", Tally("killed: sweep", 2, harmless=2))
    assert code == 1, "what stays on the page is not clean"
    assert text.splitlines() == [
        "# Other words",
        "<!-- audit -->",
        "| what | tries | named or mended | harmless | lost | silent | tracebacks |",
        "|---|---|---|---|---|---|---|",
        "| killed: sweep | 2 | 0 | 2 | 0 | 0 | 0 |",
        "| full disk | 3 | 3 | 0 | 0 | 0 | 0 |",
        f"| {fuzz.CALLS} | 5 | 4 | 0 | 1 | 0 | 0 |",
        "| **all** | 10 | 7 | 2 | 1 | 0 | 0 |",
    ]
    code, text = part("fuzz", Tally(fuzz.LINES, 1, refused=1), Tally(fuzz.CALLS, 1, refused=1))
    assert code == 0 and text.endswith("| **all** | 7 | 5 | 2 | 0 | 0 | 0 |\n")


def test_a_part_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        reliability.main(["--part", "magic"])
    assert ended.value.code == 2 and "'kills', 'flips'" in capsys.readouterr().err


def test_records_are_all_listed_and_whole():
    for folder in (DOCS / "records", DOCS / "records" / "training"):
        files = {path.name for path in folder.iterdir() if path.is_file()} - {"SHA256SUMS"}
        assert set(read_sums(folder / "SHA256SUMS")) == files
        for name in files:
            check_listed(folder / name)


def test_records_that_were_altered_are_refused_by_whoever_reads_them(tmp_path, capsys):
    import bank_seeds
    import results_page
    from running import run

    records = tmp_path / "records"
    shutil.copytree(DOCS / "records", records)
    for name, read in (
        ("bank-seeds.jsonl", lambda path: bank_seeds.main(["show", str(path)])),
        ("paper.parquet", lambda path: results_page.main([str(path)])),
    ):
        data = bytearray((records / name).read_bytes())
        data[len(data) // 2] ^= 4
        (records / name).write_bytes(bytes(data))
        with pytest.raises(SystemExit) as ended:
            run(lambda name=name, read=read: read(records / name))
        assert ended.value.code == 2
        assert f"{name} is damaged" in capsys.readouterr().err
    write_sums(records / "SHA256SUMS", {"paper.parquet": sha256(records / "paper.parquet")})


def test_tallies_add_up():
    one = Tally("a", tries=2, lost=1)
    one.add(Tally("b", tries=3, silent=1))
    assert (one.tries, one.lost, one.silent, one.clean) == (5, 1, 1, False)
    assert work.PLAN.steps == 8
