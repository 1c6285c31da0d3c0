"""A user's own code: files named as `./file.py:name`, and calls of what they hold.

A file finds its neighbours, when it is opened and in later imports inside its functions, as if
Python had been started with it. It has neighbours of its own: two files may both have a `helper.py`
beside them. In one call or command it is executed once, so that what it gives shares its state, and
again if it or a neighbour has changed; later calls execute it anew, as what it reads may have
changed. Nothing is written beside a file, and what its code raises is one line.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

from posteer.core.calls import kept_in_call
from posteer.core.device import is_out_of_memory
from posteer.core.errors import InputError, require
from posteer.core.spec import meant, shown

TOLD_TO_END = Event()
"""Set by whoever lets a signal end this process by raising wherever it is: then that is raised in a
user's code too, but is not the user's."""


@dataclass(eq=False)
class Home:
    """The folder of a user's file, what was imported from it, and the texts of that."""

    folder: Path
    modules: dict[str, ModuleType] = field(default_factory=dict)
    texts: dict[Path, bytes] = field(default_factory=dict)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While inside, imports look here first; what they bring is kept apart from others'.

        This happens at every call of a user's function: it costs no more than what is imported.
        """
        covered = {name: sys.modules[name] for name in self.modules if name in sys.modules}
        sys.modules.update(self.modules)
        newest = next(reversed(sys.modules))
        wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            sys.dont_write_bytecode = wrote
            if str(self.folder) in sys.path:
                sys.path.remove(str(self.folder))
            for name in list(takewhile(lambda name: name != newest, reversed(sys.modules))):
                if self._owns(sys.modules[name]):
                    self._adopt(name, sys.modules[name])
            for name in self.modules:
                sys.modules.pop(name, None)
            sys.modules.update(covered)

    def _adopt(self, name: str, module: ModuleType) -> None:
        self.modules[name] = module
        path = Path(module.__file__ or "")
        if path.is_file():
            self.texts[path] = path.read_bytes()

    def _owns(self, module: Any) -> bool:
        where = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
        try:
            return self.folder in Path(where).parents
        except TypeError:  # whatever a module calls its file
            return False


@contextmanager
def users_own(name: str, home: Home | None = None, on: str = "") -> Iterator[None]:
    """Run a user's code: what it raises, or exits with, is refused in its name.

    Running out of memory is not: whoever asked may ask for less. What it prints is for people to
    see, and goes to standard error.
    """
    inside: AbstractContextManager[None] = nullcontext() if home is None else home.entered()
    try:
        with inside, redirect_stdout(sys.stderr):
            yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        out_of_memory = isinstance(error, RuntimeError) and is_out_of_memory(error)
        if out_of_memory or TOLD_TO_END.is_set():
            raise
        lines = str(error).strip().splitlines()
        what = f": {shown(lines[0])}" if lines else ""
        raise InputError(f"{name} raised {type(error).__name__}{what}{on}") from error


@contextmanager
def leaving(name: str) -> Iterator[None]:
    """For a whole search: code of a user's that would end the process is refused in its name."""
    try:
        yield
    except SystemExit as error:
        if TOLD_TO_END.is_set():
            raise
        raise InputError(f"{name} raised SystemExit: {shown(error)}") from error


@dataclass(frozen=True, eq=False)
class _Executed:
    """What a file defines."""

    names: dict[str, Any]
    home: Home

    @property
    def is_as_it_was(self) -> bool:
        """The file and all that was imported from beside it until now."""
        texts = self.home.texts.items()
        return all(path.is_file() and path.read_bytes() == text for path, text in texts)


def _executed(path: Path, called: str) -> _Executed:
    kept = kept_in_call()
    whole = path.resolve()
    known = kept.get(whole)
    if known is not None and known.is_as_it_was:
        return known
    home = Home(whole.parent, texts={whole: whole.read_bytes()})
    with users_own(f"'{called}'", home):
        names = runpy.run_path(str(path), run_name="posteer_user_file")
    kept[whole] = _Executed(names, home)
    return kept[whole]


def object_from_file(text: str) -> tuple[Any, Home]:
    """What the file calls by that name, and where it is at home."""
    path_text, _, attribute = text.rpartition(":")
    require(bool(path_text) and bool(attribute), f"'{shown(text)}': expected ./file.py:name")
    path = Path(path_text)
    require("\0" not in path_text and path.is_file(), f"'{shown(path_text)}': no such file")
    found = _executed(path, path_text)
    own = [name for name in found.names if not name.startswith("_")]
    hint = meant(attribute, own).strip()
    missing = f"'{path_text}' defines no '{shown(attribute)}'"
    require(attribute in found.names, f"{missing}: {hint}" if hint else missing)
    return found.names[attribute], found.home
