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
heavy = {"dynamo", "inductor", "sympy", "triton", "numba", "pandas", "matplotlib"}
loaded = {name.removeprefix("torch.").lstrip("_") for name in sys.modules}
print(sorted(heavy & loaded))
"""


def test_neither_a_search_nor_a_transformer_loads_a_compiler():
    environment = {"PATH": "", "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "[]\n", ran.stderr
