"""What a command does not load: torch's compiler takes longer than all else of it."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

PROGRAM = """
import sys
import posteer
posteer.elicit("exact:urn", "dyck", length=4)
posteer.load("urn")
heavy = ("sympy", "triton", "numba", "pandas", "matplotlib")
print([name for name in heavy if name in sys.modules])
"""


def test_neither_a_search_nor_a_transformer_loads_a_compiler():
    environment = {"PATH": "", "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "[]\n", ran.stderr
