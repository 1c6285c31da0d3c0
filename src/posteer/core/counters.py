"""Random numbers by their place: Philox4x32-10 (Salmon et al. 2011), the same on every device.

A number is a function of a key and a counter, so a run draws the same whether it is alone or in
company, on a CPU or a GPU, and nothing has to be drawn in order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posteer.core.randomness import entropy
from posteer.core.shapes import Float, Int

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF
UNIT = 2.0**-32


def key_of(seed: int, *purpose: str | int) -> tuple[int, int]:
    """The key of a stream: two words of 32 bits."""
    whole = entropy(seed, purpose)
    return whole & LOW, whole >> 32


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 bits, in int64, for each counter; words broadcast.

    >>> zero = torch.zeros(1, dtype=torch.long)
    >>> [f"{int(word):08x}" for word in philox((zero, zero, zero, zero), (zero, zero))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counter
    low, high = key
    for _ in range(ROUNDS):
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]  # 64 bits, whatever their sign
        a, b = (right >> 32 & LOW) ^ b ^ low, right & LOW
        c, d = (left >> 32 & LOW) ^ d ^ high, left & LOW
        low, high = low + WEYL[0] & LOW, high + WEYL[1] & LOW
    return a, b, c, d


def uniforms(
    keys: Int[Tensor, "B 2"], steps: Int[Tensor, "B"], n_draws: int, n_latents: int
) -> Float[Tensor, "B D L"]:
    """Multiples of 2^-32 in [0, 1): draw `d` of latent `l` of a run at its step is word `d mod 4`
    of counter `(l, step, d div 4, 0)` under the run's key."""
    device, n_blocks = keys.device, -(-n_draws // 4)
    latent = torch.arange(n_latents, device=device)
    block = torch.arange(n_blocks, device=device)[:, None]
    counter = (latent, steps[:, None, None], block, torch.zeros_like(latent))
    words = philox(counter, (keys[:, 0, None, None], keys[:, 1, None, None]))
    flat = torch.stack([word.double() for word in words], 2).flatten(1, 2)
    return flat[:, :n_draws] * UNIT
