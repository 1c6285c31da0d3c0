"""Shapes written in annotations are enforced while tests run."""

import os

import torch
from jaxtyping import install_import_hook

# Must run before any test module imports posteer.
install_import_hook("posteer", "beartype.beartype")

if "PYTEST_XDIST_WORKER" in os.environ:  # one process per core already
    torch.set_num_threads(1)
