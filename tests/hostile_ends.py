"""How hostile lines and calls end.

A line is answered with status 0 and what it says, or refused with 2, one line on standard error and
nothing written; a call returns, or raises the one error that a user can cause. Everything else is a
fault: `lost` if a file that was there is gone or another, `silent` if an answer is none, or a
refusal left something behind, `tracebacks` whatever did not end in one line. Work is counted in CPU
seconds, which load does not change.
"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hostile import FILES, command_line

MOST_SECONDS = 60.0
"""Of the CPU, for one line or call: the slowest take a tenth of it, so that a machine several times
slower still passes, and what never ends is caught."""

REFUSED, HARMLESS, LOST, SILENT, TRACEBACKS = FIGURES = (
    "refused",
    "harmless",
    "lost",
    "silent",
    "tracebacks",
)


class End(NamedTuple):
    """One of the figures, and what was wrong."""

    figure: str
    fault: str = ""


class TooLongError(BaseException):
    """Nothing catches it by accident."""


def _too_long(*_):
    raise TooLongError


@contextlib.contextmanager
def watched():
    """So much of the CPU and no more; a sleep that never ends is cut off as well."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 60 * MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def traced(error):
    """The end of what raised an error that nobody can cause."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = "; ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return End(TRACEBACKS, f"{type(error).__name__}: {str(error)[:200]} at {where}")


def end_of_line(line):
    """How a command line ends in this folder."""
    from posteer.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = contents()
    try:
        with watched(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(line)
        status = 0
    except SystemExit as left:
        status = left.code
    except BaseException as error:
        return traced(error)
    said, printed = err.getvalue(), out.getvalue()
    if status == 0 or (status == 1 and line[0] in ("train", "sweep")):  # diverged, or runs failed
        return changed(before) or unanswered(line, printed, said) or End(HARMLESS)
    if status != 2:
        return End(TRACEBACKS, f"status {status}: {said[:200]}")
    if not said.startswith("posteer: ") or said.count("\n") != 1 or len(said) > 2100:
        return End(TRACEBACKS, f"said {said[:300]!r}")
    if printed:
        return End(TRACEBACKS, f"printed {printed[:200]!r} and refused: {said[:200]}")
    return changed(before, said) or End(REFUSED)


def unanswered(line, printed, said):
    """What is wrong with what a line printed that was done: nothing said, or no JSON."""
    if not printed and not said:
        return End(SILENT, "said nothing")
    if "--json" in line and not {"-h", "--"} & set(line):
        try:
            json.loads(printed, parse_constant=_no_number)
        except ValueError as error:
            return End(SILENT, f"{error}: {printed[:200]!r}")
    return None


def _no_number(text):
    raise ValueError(text)


def changed(before, refused=None):
    """What is wrong with this folder by now: no file that was there may be another, and what was
    refused has left nothing."""
    after = contents()
    other = sorted(name for name, held in before.items() if after.get(name, ...) != held)
    if other:
        return End(LOST, f"{other[:4]} gone or changed")
    new = sorted(set(after) - set(before))
    if refused is not None and new:
        return End(SILENT, f"wrote {new[:4]} and refused: {refused[:200]}")
    return None


def contents():
    """What is in this folder: the bytes of each file, None for a folder."""
    found = {}
    for at, below, names in os.walk("."):
        found |= {os.path.join(at, name): None for name in below}
        found |= {(path := os.path.join(at, name)): Path(path).read_bytes() for name in names}
    return found


def furnish(home):
    """The files that lines name; whatever else is there is cleared away."""
    for path in home.iterdir():
        if path.name not in {name.partition("/")[0] for name in FILES}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, text in FILES.items():
        path = home / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode(errors="surrogateescape"))


def fuzz(n, seed, one):
    """How many of so many tries ended how, and the faults, in a folder of their own; `one` makes a
    try, by the random numbers that it is given, and says in which words and how it ended."""
    draw, faults, before = random.Random(seed), [], os.getcwd()
    ends = Counter(dict.fromkeys(FIGURES, 0))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for _ in range(n):
                furnish(Path(folder))
                started = time.process_time()
                words, end = one(draw)
                ends[end.figure] += 1
                if end.fault:
                    said = [word[:120] for word in words]
                    faults.append({"figure": end.figure, "fault": end.fault, "words": said})
                slow(words, time.process_time() - started)
        finally:
            os.chdir(before)
    return {"tries": n, **ends, "faults": faults}


def fuzz_lines(n, seed):
    """How so many lines end."""
    from posteer.views.terminal import panels

    panels.PATIENCE_SECONDS = 1e9

    def one(draw):
        line = command_line(draw)
        return line, end_of_line(line)

    return fuzz(n, seed, one)


SLOWEST = []


def slow(what, seconds):
    SLOWEST.append((round(seconds, 2), [str(word)[:60] for word in what]))
    SLOWEST.sort(key=lambda one: -one[0])
    del SLOWEST[10:]
