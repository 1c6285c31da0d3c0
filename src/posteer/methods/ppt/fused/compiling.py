"""How the kernels of this package are compiled: by numba, where it is installed.

Compiled code is kept on disk in the user's cache, so that a machine compiles a kernel once. With
`POSTEER_KERNELS=python` kernels run as they are written, for tests.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Function = Callable[..., Any]

SWITCH = "POSTEER_KERNELS"
"""In the environment: `torch` keeps kernels out, `python` has those of the CPU interpreted, and
`triton` has those of the GPU used anywhere: on a CPU with TRITON_INTERPRET=1."""


def asked_for() -> str:
    """What the switch says."""
    return os.environ.get(SWITCH, "")


def can_compile() -> bool:
    """Whether kernels of this package can run here, compiled or as they are written."""
    return asked_for() == "python" or importlib.util.find_spec("numba") is not None


def kept_in() -> Path:
    """The folder of compiled code, beside what other programs keep for the user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "posteer" / "compiled"


@cache
def written_in(folder: Path) -> str:
    """A name for the kernels in a folder as they are written now.

    Compiled code holds all that its entry calls, and numba asks only whether the entry's own file
    has changed: kernels that are written otherwise must not find what was compiled of these.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def compiled(function: Function) -> Any:
    """A function for kernels to call, compiled with the first that does.

    Sums are not reordered; a product and a sum may become one operation.
    """
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry(function: Function) -> Any:
    """A kernel, compiled at its first call if the cache does not hold it. NUMBA_CACHE_DIR, where it
    is set, holds the cache."""
    return _compiled(function, cache=True)


def _compiled(function: Function, **options: bool) -> Any:
    if asked_for() == "python":
        return function
    import numba

    before = numba.config.CACHE_DIR
    folder = Path(before or kept_in()) / written_in(Path(__file__).parent)
    numba.config.CACHE_DIR = str(folder)  # read when a function is decorated, not later
    try:
        return numba.njit(nogil=True, error_model="numpy", fastmath={"contract"}, **options)(
            function
        )
    finally:
        numba.config.CACHE_DIR = before
