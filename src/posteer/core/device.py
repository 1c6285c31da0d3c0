"""Where tensors live."""

from __future__ import annotations

import re

import torch

from posteer.core.errors import require


def pick_device(device: str) -> str:
    """`auto` is the GPU where there is one."""
    found = torch.cuda.is_available()
    if device == "auto":
        return "cuda" if found else "cpu"
    known = re.fullmatch(r"cpu|cuda(:\d+)?", device) is not None
    require(known, f"device '{device}': expected auto, cpu or cuda")
    require(device == "cpu" or found, f"device '{device}': no GPU here")
    return device
