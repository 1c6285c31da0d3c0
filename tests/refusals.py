"""Command lines that are to be refused, and a sweep of one run to be spoiled."""

import pytest

from posteer.cli import main

ONE = {"models": "exact:urn", "utilities": "dyck", "methods": "beam", "seeds": [0]}


def refused(capsys, *line):
    """What is said of a line: one line on standard error, status 2, nothing else."""
    with pytest.raises(SystemExit) as left:
        main(line)
    printed = capsys.readouterr()
    assert left.value.code == 2 and printed.out == "" and printed.err.count("\n") == 1
    return printed.err
