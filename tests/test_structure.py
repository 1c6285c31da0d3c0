"""What the layout promises: imports point down, the core stands on torch and numpy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "posteer"

LAYERS = [
    "core",
    "tokens",
    "goals",
    "families",
    "models",
    "training",
    "banks",
    "evaluation",
    "methods",
    "results",
    "api",
    "sweeps",
    "paper",
    "views",
    "cli",
]
HEIGHT = {room: height for height, room in enumerate(LAYERS)}


def room_of(module: str) -> str:
    return module.split(".")[1]


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        yield path, ".".join(parts)


def imports_of(path: Path):
    """Every posteer module imported anywhere in a file, lazily or not."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("posteer"):
            if node.module == "posteer":
                yield from (f"posteer.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("posteer."))


def test_every_room_has_a_layer():
    rooms = {room_of(name) for _, name in modules() if name != "posteer.__init__"}
    assert rooms == set(HEIGHT)


@pytest.mark.parametrize("path", [path for path, name in modules() if name != "posteer.__init__"])
def test_imports_point_down(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    for module in imports_of(path):
        if module == "posteer.__version__":
            continue
        target = room_of(module)
        assert target == own or HEIGHT[target] < HEIGHT[own], f"{own} imports {target}"


def test_the_layer_check_can_fail(tmp_path):
    bad = tmp_path / "kernels.py"
    bad.write_text("def f():\n    from posteer.cli import main\n    return main\n")
    assert list(imports_of(bad)) == ["posteer.cli"]
    assert HEIGHT["cli"] > HEIGHT["families"]


def test_no_file_grows_past_its_seams():
    root = SOURCE.parent.parent
    paths = [
        path for part in ("src", "tests", "benchmarks") for path in (root / part).rglob("*.py")
    ]
    long = {p.name: n for p in paths if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


def test_the_numeric_core_needs_only_torch_numpy_and_safetensors():
    """Train-machine conditions: everything else that is installed refuses to be imported."""
    code = """
import importlib.abc, sys
class Refuse(importlib.abc.MetaPathFinder):
    banned = {"rich", "cyclopts", "jaxtyping", "beartype", "scipy", "arviz_stats", "hypothesis",
              "pandas", "pyarrow", "matplotlib"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.banned:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import posteer
method = "ppt(samples=50,steps=3,rollout-length=9)"
found = posteer.elicit("exact:urn", "dyck", length=4, method=method)
assert len(found.prompt) == 4
import posteer.sweeps.execution, posteer.sweeps.runner
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_is_ever_unpickled():
    for path, _ in modules():
        text = path.read_text()
        assert "pickle" not in text
        assert "torch.load(" not in text
