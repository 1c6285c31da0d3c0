"""Where tensors live, and running out of memory there, told apart from other failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from posteer.core.errors import require
from posteer.core.spec import shown


def pick_device(device: str | torch.device | Any) -> str:
    """`auto` is the GPU where there is one."""
    found = torch.cuda.is_available()
    known = isinstance(device, str | torch.device)
    require(known, f"device {shown(device)}: expected auto, cpu or cuda")
    device = str(device)
    if device == "auto":
        return "cuda" if found else "cpu"
    known = re.fullmatch(r"cpu|cuda(:\d+)?", device) is not None
    require(known, f"device '{device}': expected auto, cpu or cuda")
    require(device == "cpu" or found, f"device '{device}': no GPU here")
    return device


def is_out_of_memory(error: RuntimeError) -> bool:
    """On a GPU torch has an error of its own for it, on CPU only words."""
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)


def free_cached() -> None:
    """Give back what a failed pass left behind on a GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def differentiable() -> Iterator[None]:
    """Gradients can be taken inside, whatever mode the caller has put torch into."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
