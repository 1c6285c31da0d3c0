"""Work in processes forked from one that has imported everything: killed, or held back."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRELOADED = (
    "posteer.cli",
    "posteer.sweeps.execution",
    "posteer.sweeps.results",
    "posteer.training.loop",
    "posteer.banks.sampling",
    "posteer.views.terminal.sweep",
    "posteer.views.terminal.banks",
)
FOR_TABLES = ("pandas", "pyarrow.parquet", "posteer.paper.tables")
FOR_FIGURES = ("matplotlib.pyplot",)
FOR_TRAINING = ("torch._dynamo",)
"""Slow to import, and not always needed."""
HANGS = 300.0
"""Seconds after which a command is taken to hang; none needs more than a few."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}


@cache
def _server() -> Connection:
    """The other end of a process that forks one for each piece of work it is sent. It has imported
    all that is needed and computed nothing yet: what it forks starts at once, and in one thread."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs,), daemon=True
    )
    process.start()
    theirs.close()
    return ours


def warm(*names: str) -> None:
    """Have modules imported before anything is forked."""
    _server().send(names)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)
    tempfile.gettempdir()  # found by writing to it, once: a child that cannot write inherits it


def _serve(pipe: Connection) -> None:
    _import(PRELOADED)
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        if isinstance(work, tuple):
            _import(work)
            continue
        child = os.fork()
        if child == 0:
            os._exit(_done(work, pipe))
        pipe.send(child)
        _, status = os.waitpid(child, 0)
        pipe.send(os.waitstatus_to_exitcode(status))


def _done(work: Callable[[Connection], None], pipe: Connection) -> int:
    try:
        work(pipe)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _forked(work: Callable[[Connection], None]) -> tuple[int, Any]:
    """How a piece of work ended in a process of its own, and what it sent; one that hangs is
    killed."""
    server, sent = _server(), None
    codes: list[int] = []
    server.send(work)
    while len(codes) < 2:  # the number of the process, and how it ended
        if codes and not server.poll(HANGS):
            os.kill(codes[0], signal.SIGKILL)
        got = server.recv()
        if isinstance(got, int):
            codes.append(got)
        else:
            sent = got
    return codes[1], sent


def die_at(change: int, folder: Path) -> None:
    """From now on, SIGKILL to this process before its n-th change of anything in a folder."""
    seen, inside = 0, os.fspath(folder)

    def changes(event: str, given: tuple[Any, ...]) -> bool:
        if event == "open":
            return isinstance(given[2], int) and bool(given[2] & WRITES)
        return event in CHANGES

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal seen
        swap = event == "ctypes.dlsym" and given[1] == "renameat2"
        if swap or (
            given and isinstance(given[0], str | os.PathLike) and changes(event, given)
            and os.fspath(given[0]).startswith(inside)
        ):  # fmt: skip
            seen += 1
            if seen == change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _victim(work: Callable[[Path], None], folder: Path, change: int, _pipe: Connection) -> None:
    if change:
        die_at(change, folder)
    work(folder)


def killed(work: Callable[[Path], None], folder: Path, change: int) -> bool:
    """Whether the work, in a process of its own, was killed before its n-th change of the folder; 0
    lets it live. Work that ends otherwise than by the kill or well is an error here."""
    code, _ = _forked(partial(_victim, work, folder, change))
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{work.__name__} ended with {code} in {folder}")
    return bool(code)


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str
    trace: str

    @property
    def one_line(self) -> bool:
        """Refused as it should be."""
        lines = [line for line in self.err.splitlines() if line.startswith("posteer: ")]
        return self.status == 2 and len(lines) == 1 and not self.trace


def _command(words: list[str], limit: int | None, obey: bool, answer: Connection) -> None:
    from posteer.cli import main

    out, err, status, trace = io.StringIO(), io.StringIO(), 0, ""
    if obey:
        obey_permissions()
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            trace = traceback.format_exc()
    answer.send(Said(status, out.getvalue(), err.getvalue(), trace))


def command(words: list[str], limit: int | None = None, obey: bool = False) -> Said:
    """`posteer WORDS` in a process of its own: with files of at most so many bytes, or, to `obey`,
    without root's right to write anywhere."""
    code, said = _forked(partial(_command, words, limit, obey))
    return said if isinstance(said, Said) else Said(-1, "", "", f"died of {code}: {words}")


def obey_permissions() -> None:
    """Root writes anywhere; without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH it does not."""
    if os.geteuid() != 0:
        return
    system = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    if system.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~0b110
    if system.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
