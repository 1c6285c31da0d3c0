"""Running out of memory, told apart from other failures."""

from __future__ import annotations

import torch


def is_out_of_memory(error: RuntimeError) -> bool:
    """On a GPU torch has an error of its own for it, on CPU only words."""
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)


def free_cached() -> None:
    """Give back what a failed pass left behind on a GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
