"""What the layout promises: imports point down, the core stands on torch and numpy alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "posteer"
TESTS = Path(__file__).parent

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
    "explorer",
    "cli",
    "__main__",
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


def is_private(name: str) -> bool:
    return re.fullmatch(r"_[a-zA-Z]\w*", name.rpartition(".")[2]) is not None


def trespasses(path: Path):
    """Private names of the code, and other tests, that a test file reaches for: imported, as an
    attribute, overridden, or named in a string (what is patched, programs for other processes)."""
    tree = ast.parse(path.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    foreign = {"self", "cls"}
    for node in imports:
        names = [alias.name for alias in node.names]
        modules = names if isinstance(node, ast.Import) else [node.module or ""]
        if any(module.split(".")[0].startswith("test_") for module in modules):
            yield f"{path.name}:{node.lineno} imports from a test"
        ours = any(module.split(".")[0] == "posteer" for module in modules)
        if ours and any(map(is_private, [*modules, *names])):
            yield f"{path.name}:{node.lineno} imports a private name"
        if not ours:
            foreign |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in foreign):
                yield f"{path.name}:{node.lineno} reads .{node.attr}"
        elif isinstance(node, ast.ClassDef) and node.bases:
            own = (part.name for part in node.body if isinstance(part, ast.FunctionDef))
            yield from (f"{path.name}:{node.lineno} overrides {n}" for n in own if is_private(n))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "setattr",
            "delattr",
        ):
            named = (a.value for a in node.args if isinstance(a, ast.Constant))
            if any(isinstance(value, str) and is_private(value) for value in named):
                yield f"{path.name}:{node.lineno} patches a private name"
        elif isinstance(node, ast.Constant) and re.search(r"\w\._[a-zA-Z]", str(node.value)):
            yield f"{path.name}:{node.lineno} names a private attribute in a string"


def test_tests_keep_to_public_names_and_to_themselves():
    assert [found for path in sorted(TESTS.glob("*.py")) for found in trespasses(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "from test_other import helper",
        "import test_other",
        "from posteer.core.spec import HIDDEN",
        "from posteer.HIDDEN import shown",
        "import posteer\nposteer.core.HIDDEN()",
        "model.HIDDEN = 3",
        "class Late(Runner):\n    def HIDDEN(self): pass",
        "monkeypatch.setattr(store, 'HIDDEN', 3)",
        "monkeypatch.setattr('posteer.core.HIDDEN', 3)",
        "program = 'trainer.HIDDEN(1)'",
    ],
)
def test_the_check_of_tests_can_fail(line, tmp_path):
    bad = tmp_path / "test_bad.py"
    bad.write_text(line.replace("HIDDEN", "_name"))
    assert list(trespasses(bad)) != []
    bad.write_text(line.replace("HIDDEN", "name").replace("test_", ""))
    assert list(trespasses(bad)) == []


def test_the_check_of_tests_allows_what_is_a_tests_own(tmp_path):
    good = tmp_path / "test_good.py"
    own = "import os\nos.HIDDEN(0)\nclass Own:\n    def f(self): return self.HIDDEN\n"
    good.write_text(own.replace("HIDDEN", "_name"))
    assert list(trespasses(good)) == []


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
