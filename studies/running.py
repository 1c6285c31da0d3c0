"""How a study is started: its options, and one line about what is wrong with them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from posteer.core.errors import InputError
from posteer.core.files import write_atomically
from posteer.core.sealing import (
    check_listed,
    list_file,
    read_sealed,
    read_sealed_lines,
    sealed_line,
)


class Options(argparse.ArgumentParser):
    """Options of a study, described by its docstring."""

    def __init__(self, described: str | None) -> None:
        super().__init__(
            description=described, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def positive(text: str) -> int:
    """A whole number of at least 1, as the type of an option."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def run(main: Callable[[], None]) -> None:
    """Call a study; input that it refuses and files it cannot use end it with one line."""
    try:
        main()
        sys.stdout.flush()
    except InputError as error:
        _refuse(" ".join(str(error).split()))
    except BrokenPipeError:  # whoever read it has gone, as in `.. | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere
        sys.exit(141)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}")


def _refuse(why: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(2)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a file that holds one as JSON on each line, compared with its seals and with
    the SHA256SUMS beside it."""
    check_listed(path)
    try:
        return read_sealed_lines(path)
    except InputError as error:
        raise InputError(f"{path} is not a file of records: {error}") from error


def read_document(path: Path) -> dict[str, Any]:
    """A record that is one JSON document, compared with its seal and the SHA256SUMS beside it."""
    if not path.is_file():
        raise InputError(f"{path}: no such record")
    check_listed(path)
    return read_sealed(path)


def write_document(path: Path, facts: dict[str, Any]) -> None:
    """Keep a record as one sealed line, and list it in the SHA256SUMS beside it."""
    write_atomically(path, sealed_line(facts).encode())
    list_file(path)


def write_records(path: Path, lines: list[dict[str, Any]]) -> None:
    """Keep records as a sealed line each, and list the file in the SHA256SUMS beside it."""
    write_atomically(path, "".join(map(sealed_line, lines)).encode())
    list_file(path)
