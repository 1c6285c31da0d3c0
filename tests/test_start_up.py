"""What a command does not load: torch's compiler takes longer than all else of it."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

PROGRAM = """
import sys
import posteer
posteer.elicit("exact:urn", "dyck", length=4)
posteer.load("urn")
heavy = {"dynamo", "inductor", "sympy", "triton", "numba", "pandas", "matplotlib"}
loaded = {name.removeprefix("torch.").lstrip("_") for name in sys.modules}
rooms = ("posteer.training", "posteer.banks.checks.report", "posteer.models.wrapped")
print(sorted(heavy & loaded), [name for name in sys.modules if name.startswith(rooms)])
"""

COMMAND = """
import gc
import sys
from posteer.cli import main
main(sys.argv[1:])
print("torch" in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def printed(program: str, *arguments: str) -> str:
    """What a program prints in a process of its own."""
    environment = {"PATH": "", "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_neither_a_search_nor_a_transformer_loads_a_compiler_or_what_others_need():
    assert printed(PROGRAM) == "[] []\n"


def test_what_a_command_loaded_is_not_looked_through_for_garbage():
    assert printed(COMMAND, "utilities", "--json").endswith("True True True\n")


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_help_loads_no_torch(asked):
    assert printed(COMMAND, asked).endswith("False True False\n")


def test_objects_of_a_process_that_has_torch_stay_collectable():
    import torch  # noqa: F401

    from posteer.cli.loading import loading

    frozen = gc.get_freeze_count()
    with loading():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
