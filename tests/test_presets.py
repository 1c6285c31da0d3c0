"""Sweeps by name."""

import subprocess
import sys

import pytest
from sweeps import small

from posteer.core.errors import InputError
from posteer.sweeps.presets import PRESETS, preset
from posteer.sweeps.runs import expand


def test_every_preset_is_called_what_it_is_and_expands():
    assert PRESETS.names()[:4] == ["paper", "own-context", "auto", "small"]
    for name in PRESETS.names():
        assert preset(name).name == name
        assert expand(preset(name)).runs


def test_an_unknown_one_is_one_line_with_those_there_are():
    with pytest.raises(InputError) as refused:
        preset("papr")
    expected = "did you mean paper? expected one of paper, own-context, auto, small"
    assert str(refused.value) == f"unknown preset 'papr': {expected}"


def test_one_of_ones_own():
    PRESETS.add("tiny", small)
    try:
        assert preset("tiny") == small()
    finally:
        PRESETS.remove("tiny")


def test_sweeps_stand_without_the_paper():
    code = """
import sys
import posteer.sweeps.execution, posteer.sweeps.results
from posteer.sweeps.presets import preset
preset("small")
assert not [name for name in sys.modules if name.startswith(("posteer.paper", "posteer.views"))]
preset("paper")
assert "posteer.paper.presets" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
