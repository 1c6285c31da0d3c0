"""Where tensors live, in which modes torch computes, and running out of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from posteer.core.calls import one_call
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
def undisturbed() -> Iterator[None]:
    """Neither a default device nor an autocast of the caller's reaches what is computed inside,
    and a user's file is executed once in it.

    Every door is decorated with it. The default type is not changed, as it is one for all threads:
    tensors say of which type they are.
    """
    with one_call(), ExitStack() as inside:
        if torch.get_default_device().type != "cpu":  # a mode that slows every call down
            inside.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                inside.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def differentiable() -> Iterator[None]:
    """Undisturbed, and gradients can be taken, whatever mode the caller has put torch into."""
    with undisturbed(), torch.inference_mode(False), torch.enable_grad():
        yield
