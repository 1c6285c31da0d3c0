"""Hostile command lines and calls by the thousand: no traceback, no silence, nothing written.

What is drawn is in `tests/hostile.py`. Each share runs in a process of its own, so that its memory
can be measured; `make test` runs a short one, `make test-all` 5,000 lines and 500 calls.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MOST_BYTES = 4 * 2**30


def fuzz(seed, lines, calls):
    words = ["--lines", str(lines), "--calls", str(calls), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, str(HERE / "hostile.py"), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["faults"] == [], json.dumps(found["faults"][:10], indent=1)
    assert found["peak_bytes"] < MOST_BYTES


def test_a_few_hostile_lines_and_calls_are_refused_or_answered():
    fuzz(seed=100, lines=60, calls=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_thousands_of_hostile_lines_and_calls_are_refused_or_answered(seed):
    fuzz(seed, lines=1000, calls=100)


def test_the_fuzz_can_fail(tmp_path, monkeypatch):
    import hostile
    import hostile_calls

    from posteer.core import errors

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("posteer.cli.app", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in hostile.fault_of_line(["models"], tmp_path)

    def writes(*_, **__):
        (tmp_path / "left").touch()
        raise errors.InputError("no")

    monkeypatch.setattr("posteer.cli.app", writes)
    assert "wrote" in hostile.fault_of_line(["models"], tmp_path)
    monkeypatch.setattr("posteer.elicit", lambda: [][0], raising=False)
    assert "IndexError" in hostile_calls.fault_of_call("elicit", [], {})
    draws = [hostile.command_line(hostile.random.Random(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
