"""What is installed runs, and what is sent out is whole."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = ROOT / "src" / "posteer"


def needed(requirements):
    return {text.partition(">")[0].partition("[")[0] for text in requirements}


def imported(path):
    """Packages a file imports, at once or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_the_command_needs_nothing_that_is_not_installed_with_it():
    rooms = [PACKAGE / "cli", PACKAGE / "views" / "terminal"]
    found = {name for room in rooms for path in room.glob("*.py") for name in imported(path)}
    others = found - set(sys.stdlib_module_names) - {"posteer", "__future__"}
    assert others <= needed(PROJECT["dependencies"])
    assert {"cyclopts", "rich"} <= needed(PROJECT["dependencies"])


def test_the_project_says_who_made_it_and_what_it_is():
    assert PROJECT["authors"] and len(PROJECT["classifiers"]) >= 5
    assert "pip install" in (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_archives_hold_what_they_should(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path / "posteer"
    out_of_it = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
    shutil.copytree(ROOT, copy, ignore=out_of_it)
    build = (
        "from setuptools import build_meta\n"
        "build_meta.build_sdist('dist')\nbuild_meta.build_wheel('dist')\n"
    )
    (copy / "dist").mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build], cwd=copy, check=True, capture_output=True
    )
    with tarfile.open(next((copy / "dist").glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    docs = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert docs | {"CHANGELOG.md", "constraints.txt", "tests/test_packaging.py"} <= names
    assert not [name for name in names if name.endswith(".pyc")]
    beside = [name for name in names if name.startswith("studies/models/")]
    assert beside and not [name for name in beside if name.endswith(".safetensors")], "too large"
    with zipfile.ZipFile(next((copy / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "installed")
    metadata = next((tmp_path / "installed").glob("*.dist-info/METADATA")).read_text()
    assert "Requires-Dist: cyclopts" in metadata and "Requires-Dist: rich" in metadata
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", "from posteer.cli import main; main(['--help'])"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and "elicit" in done.stdout, done.stderr
