"""Random streams derived from (seed, purpose); nothing touches a global generator.

Two purposes never share a stream, and a stream does not depend on what else ran before it, so the
same command gives the same bytes and a run gives the same result alone or inside a batch.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def entropy(seed: int, purpose: tuple[str | int, ...]) -> int:
    """64 bits of (seed, purpose)."""
    text = "\x1f".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def numpy_stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """A numpy generator for draws torch has no explicit-generator form of (gamma, Dirichlet)."""
    return np.random.default_rng(entropy(seed, purpose))


def torch_stream(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A torch generator for uniforms drawn on the device where they are used."""
    return torch.Generator(device=device).manual_seed(entropy(seed, purpose) >> 1)
