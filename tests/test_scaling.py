"""The measuring behind benchmarks/scaling.py: growth, memory, processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from measuring import MIB, RESOLUTION, RETURNING, FreshProcesses, growth, timed  # noqa: E402


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.3, 3.0])
def test_the_exponent_of_a_power_law(power):
    x = [10, 50, 100, 1000, 10_000]
    assert growth(x, [7 * value**power for value in x]) == pytest.approx(power)


def test_the_exponent_is_that_of_the_last_points_and_of_what_was_measured():
    assert growth([1, 2, 4, 8, 16], [5, 5, 4, 8, 16]) == pytest.approx(1)
    assert growth([1, 2, 4, 8], [0, 3, 0, 12]) == pytest.approx(1)
    assert growth([1, 2], [0, 3]) is None


def test_a_slow_call_is_taken_as_it_is():
    calls = []
    slow = timed(lambda: calls.append(sum(range(10**6))), budget=0.0)
    assert slow.repeats == len(calls) == 1
    assert slow.seconds > 0


def test_memory_of_a_known_size():
    """64 MiB in one piece, within 5 % and the stated resolution: what was freed before the call
    must not hide what it needs. In pieces of a MiB an allocator takes up to half as much again."""
    code = f"""
import json, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import torch
from measuring import peak_extra_bytes
def pieces(): return [torch.ones(2**17, dtype=torch.float64) for _ in range(64)]
torch.ones(2**25, dtype=torch.float64)
one = peak_extra_bytes(lambda: torch.ones(2**23, dtype=torch.float64))
kept = torch.ones(2**22, dtype=torch.float64)
print(json.dumps([one, peak_extra_bytes(pieces), peak_extra_bytes(lambda: None)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | RETURNING,
        capture_output=True,
        text=True,
        check=True,
    )
    one, many, none = json.loads(done.stdout)
    assert one == pytest.approx(64 * MIB, rel=0.05, abs=RESOLUTION)
    assert 63 * MIB < many < 128 * MIB
    assert none < RESOLUTION


def test_each_question_has_a_process_of_its_own_within_limits(tmp_path):
    server = tmp_path / "server.py"
    server.write_text(
        f"""
import os, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from measuring import serve
def answer(question):
    if question["do"] == "fill": return {{"size": len(bytearray(2**30))}}
    while question["do"] == "spin": pass
    return {{"process": os.getpid()}}
serve(answer, seconds=1, size=2**28)
"""
    )
    with FreshProcesses(str(server), {}) as fresh:
        first, second = fresh.ask({"do": "tell"}), fresh.ask({"do": "tell"})
        assert first["process"] != second["process"]
        assert fresh.ask({"do": "fill"}) == {"left_out": "more than 0.25 GiB"}
        assert fresh.ask({"do": "spin"}) == {"left_out": "more than 1 s"}
        assert "process" in fresh.ask({"do": "tell"})
