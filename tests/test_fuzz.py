"""Hostile command lines and calls by the thousand: no traceback, no silence, nothing written.

What is drawn is in `tests/hostile.py`, how it may end in `tests/hostile_ends.py`; `studies/audit`
runs it, for docs/RELIABILITY.md too. Each share runs in a process of its own, so that its memory
can be measured; `make test` runs a short one, CI one share, `make test-all` 5,000 lines and 500
calls.
"""

import random

import hostile
import hostile_calls
import hostile_ends
import pytest
from audit import fuzz

from posteer.core import errors


def clean(lines, calls, seed):
    for tally, tries in zip(fuzz.fuzz_once(lines, calls, seed), (lines, calls), strict=True):
        assert tally.faults == []
        assert tally.clean and tally.refused + tally.harmless == tally.tries == tries


def test_a_few_hostile_lines_and_calls_are_refused_or_answered():
    clean(60, 60, seed=100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2, 3, 4))]
)
def test_thousands_of_hostile_lines_and_calls_are_refused_or_answered(seed):
    clean(1000, 100, seed)


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """How a line ends where a command does this and that."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("mine")

    def one(does, line=("models",)):
        monkeypatch.setattr("posteer.cli.app", does)
        return hostile_ends.end_of_line(list(line))

    return one


def refuses(*_, **__):
    raise errors.InputError("no")


def test_the_fuzz_can_fail(ends, tmp_path, monkeypatch):
    def removes(*_, **__):
        (tmp_path / "mine").unlink()
        print("done")

    def alters(*_, **__):
        (tmp_path / "mine").write_text("theirs")
        refuses()

    def writes(*_, **__):
        (tmp_path / "left").touch()
        refuses()

    assert ends(lambda *_, **__: 1 / 0).figure == "tracebacks"
    assert "ZeroDivisionError" in ends(lambda *_, **__: 1 / 0).fault
    assert ends(refuses) == ("refused", "")
    assert ends(lambda *_, **__: print("done")) == ("harmless", "")
    assert ends(lambda *_, **__: None) == ("silent", "said nothing")
    assert ends(lambda *_, **__: print('{"J": NaN}'), ["models", "--json"]).figure == "silent"
    assert ends(alters).figure == "lost"
    assert ends(writes).figure == "silent"
    assert ends(removes).figure == "lost"
    monkeypatch.setattr("posteer.elicit", lambda: [][0], raising=False)
    assert "IndexError" in hostile_calls.end_of_call("elicit", [], {}).fault
    draws = [hostile.command_line(random.Random(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_faults_are_counted_by_what_they_are():
    """As `hostile.py` prints them, and shares add up to what was asked for."""
    fault = {"figure": "lost", "fault": "gone", "words": ["train"]}
    found = {"tries": 3, "refused": 1, "harmless": 1, "lost": 1, "faults": [fault]}
    tally = fuzz.counted("lines", found)
    assert (tally.tries, tally.refused, tally.harmless, tally.lost) == (3, 1, 1, 1)
    assert not tally.clean and "gone" in tally.faults[0]


def test_shares_add_up_to_what_was_asked_for(monkeypatch):
    asked = []

    def once(lines, calls, seed):
        asked.append((lines, calls, seed))
        return [fuzz.Tally("", lines), fuzz.Tally("", calls)]

    monkeypatch.setattr(fuzz, "fuzz_once", once)
    lines, calls = fuzz.fuzz(2500, 10)
    assert (lines.tries, calls.tries) == (2500, 10)
    assert len({seed for *_, seed in asked}) == len(asked) == 3
    assert max(share for share, *_ in asked) <= fuzz.SHARE
