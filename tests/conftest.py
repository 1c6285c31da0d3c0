"""Shapes written in annotations are enforced while tests run; neither cores nor load decide."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # one process per core already, and so for its children
    os.environ["OMP_NUM_THREADS"] = "1"

# Torch's path is what kernels are held against; tests of kernels ask for them.
os.environ.setdefault("POSTEER_KERNELS", "torch")
os.environ["POSTEER_CACHE"] = "off"  # tests share nothing by way of files

import pytest
import torch
from checking import Checked, check_first_calls
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Must run before any test module imports posteer.
check_first_calls()
install_import_hook("posteer", "beartype.beartype")


def pytest_runtest_setup():
    """Every test has its own first calls."""
    Checked.test += 1


if "PYTEST_XDIST_WORKER" in os.environ:  # pytest's plugins may have imported torch by now
    torch.set_num_threads(1)

# A loaded machine is not a failure, and what passes once passes again: the same examples each time.
settings.register_profile(
    "anywhere",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anywhere")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless one, for the tests of a page; they skip where there is none."""
    from browsers import NoBrowserError, browsing  # which imports posteer

    try:
        with browsing(tmp_path_factory.mktemp("browser")) as opened:
            yield opened
    except NoBrowserError as missing:
        pytest.skip(str(missing))
