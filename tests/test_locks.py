"""Claims: one owner at a time, across processes, threads and objects; none outlives its owner."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from posteer.core import locks
from posteer.core.locks import Claims

HOLD = """
import sys
from pathlib import Path
from posteer.core.locks import Claims
with Claims(Path(sys.argv[1])).claim("a") as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


def other_process(path):
    """Another process that claims `a`, says whether it is its own, and holds it until told."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip() == "True"


def claimed(path, key="a"):
    with Claims(path).claim(key) as mine:
        return mine


def test_one_process_at_a_time_and_the_dead_hold_nothing(tmp_path):
    path = tmp_path / "claims"
    process, theirs = other_process(path)
    with process:
        assert theirs and not claimed(path) and claimed(path, "b")
        process.kill()
    assert claimed(path)


def test_within_a_process_the_second_claim_is_refused(tmp_path):
    path = tmp_path / "claims"
    with Claims(path).claim("a") as mine:
        assert mine and not claimed(path) and claimed(path, "b")
        os.link(path, tmp_path / "other name")
        assert not claimed(tmp_path / "other name"), "it is the file that counts, not its name"
    assert claimed(path)


def held_open(path):
    """Whether this process has the file open."""
    sought = path.stat()
    for handle in range(256):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(handle), sought):
                return True
    return False


def test_a_refused_claim_does_not_free_what_is_held(tmp_path):
    """POSIX drops a process's locks on a file when it closes the file anywhere."""
    path = tmp_path / "claims"
    with Claims(path).claim("a"):
        assert not claimed(path) and claimed(path, "b") and held_open(path)
        process, theirs = other_process(path)
        process.communicate("")
        assert not theirs
    process, theirs = other_process(path)
    process.communicate("")
    assert theirs and not held_open(path)


def test_a_claim_that_fails_inside_is_freed(tmp_path):
    with pytest.raises(KeyError), Claims(tmp_path / "claims").claim("a"):
        raise KeyError
    assert claimed(tmp_path / "claims")


def test_waiting_for_a_thread_and_for_oneself(tmp_path):
    claims, had = Claims(tmp_path / "claims"), []

    def wait_for_it():
        with claims.claim("a", wait=True) as mine:
            had.append(mine)

    with claims.claim("a"):
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        with pytest.raises(RuntimeError, match="waits for itself"):
            claims.claim("a", wait=True).__enter__()
        assert had == []
    thread.join()
    assert had == [True]


def test_waiting_for_a_process(tmp_path):
    path = tmp_path / "claims"
    process, theirs = other_process(path)
    assert theirs
    threading.Timer(0.05, process.stdin.close).start()
    with Claims(path).claim("a", wait=True) as mine:
        assert mine
    process.wait()
    process.stdout.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_holds_none_of_its_parents(tmp_path):
    """It is refused what its parent has, and waits for that as for anybody's, not for itself."""
    path = tmp_path / "claims"
    told, tell = os.pipe()
    with Claims(path).claim("a"):
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.write(tell, b"1" if claimed(path) else b"0")
                with Claims(path).claim("a", wait=True) as mine:
                    code = 0 if mine else 2
            finally:
                os._exit(code)
        assert os.read(told, 1) == b"0"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(told)
    os.close(tell)


def test_without_posix_locks_everything_is_everybodys(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with Claims(tmp_path / "claims").claim("a"):
        assert claimed(tmp_path / "claims")
    assert list(tmp_path.iterdir()) == []
